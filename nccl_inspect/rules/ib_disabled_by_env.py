"""NCCL_IB_DISABLE or NCCL_NET=Socket keeps hosts on TCP."""

from collections.abc import Iterator

from nccl_inspect.judging.connecting import is_alone
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, hosts_of, lines_of, unset, words_of
from nccl_inspect.judging.impact import Estimate, over_tcp
from nccl_inspect.judging.networks.fabrics import efa_hints, ib_cards, ib_hints, switched_off, tcp_paths
from nccl_inspect.judging.networks.interfaces import offered
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.platforms import Platform
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="ib-disabled-by-env",
    category="network",
    severity="warning",
    title="InfiniBand and RoCE are switched off by a setting",
    echoes=("socket-instead-of-ib", "socket-instead-of-rdma"),
)

_LOOK = "ibv_devinfo; ls /dev/infiniband   # is there a card in the container at all?"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge by effect: it counts where hosts talk over TCP; EFA and other plugins do not heed NCCL_IB_DISABLE."""
    settings = switched_off(facts)
    if not settings:
        return
    network = facts.platform.network if facts.platform else None
    by_plugin = bool(efa_hints(facts)) if network is None else network not in ("ib", "roce")
    slow = tcp_paths(facts).where(lambda _: not by_plugin)
    hardware = bool(ib_hints(facts)) or network in ("ib", "roce")
    proved = [*ib_cards(facts), *_ipoib(facts)]
    if (hardware or proved) and not (by_plugin or facts.job.paths or is_alone(facts)):
        known = bool(proved) or network in ("ib", "roce")
        yield _suspected(facts, settings, proved, sure=known and facts.several_hosts())
        return
    yield RULE.finding(
        f"{words_of(settings)} " + (f"keeps {count(len(slow), 'path')} on TCP" if slow else "is set"),
        cause=f"{words_of(settings)} is set in the {listed(setting.source for setting in settings)}; often copied from "
        "another cluster, or left over from a test",
        impact=_impact(slow, hardware, by_plugin, facts.platform),
        fix=[*unset(settings), _LOOK],
        severity="info" if not slow else "error" if hardware else "warning",
        confidence="likely" if slow and not hardware else "certain",
        ranks=facts.ranks_with(settings),
        hosts=hosts_of(slow) or {host for setting in settings for host in setting.hosts},
        evidence=[*lines_of(settings), *_consequences(facts), *first_lines(slow)[:2]],
        paths=slow,
    )


def _ipoib(facts: Facts) -> list[Evidence]:
    """Lines that list an interface of IP over InfiniBand."""
    return [one.said.evidence[0] for one in offered(facts) if one.is_ipoib][:2]


def _suspected(facts: Facts, settings: list[Setting], cards: list[Evidence], *, sure: bool) -> Finding:
    """What is said where there are cards, and the log ends before connections between hosts."""
    return RULE.clue(
        f"InfiniBand and RoCE are switched off by {words_of(settings)}, although there are cards",
        cause=f"{words_of(settings)} is set in the {listed(setting.source for setting in settings)}; often copied from "
        "another cluster, or left over from a test",
        impact=over_tcp(facts.platform).after("no connection between hosts is in the log; it would use TCP. "),
        fix=[*unset(settings), _LOOK],
        confirm="Look for 'via NET/Socket' between hosts, after the first collective.",
        confidence="likely" if sure else "possible",
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=[*lines_of(settings), *(cards or ib_hints(facts))],
    )


def _consequences(facts: Facts) -> list[Evidence]:
    """What 2.29 and later warn of all the same: GPU-initiated networking asks for InfiniBand that was never loaded."""
    warned = facts.notices("nccl/library-not-initialized")
    return [notice.evidence[0] for notice in warned if (notice.location or "").startswith("misc/ibvwrap.cc")]


def _impact(slow: Selection, hardware: bool, by_plugin: bool, platform: Platform | None) -> str | Estimate:
    if by_plugin:
        return "none: the network of this machine is not InfiniBand or RoCE, and its plugin does not heed the setting"
    if not slow:
        return "none in this log: no path between hosts uses TCP"
    unsure = "" if hardware else "if the hosts have InfiniBand or RoCE cards, which the log cannot show: "
    return over_tcp(platform).after(unsure)
