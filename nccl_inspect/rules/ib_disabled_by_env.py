"""NCCL_IB_DISABLE or NCCL_NET=Socket keeps hosts on TCP."""

from nccl_inspect.judging.connecting import is_single_host
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines, hosts_of_paths, unset_steps
from nccl_inspect.judging.impact import Estimate, over_tcp
from nccl_inspect.judging.networks.fabrics import disabling_settings, efa_hints, ib_cards, ib_hints, tcp_paths
from nccl_inspect.judging.networks.interfaces import listed_interfaces
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.platforms import Platform
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="ib-disabled-by-env",
    category="network",
    severity="warning",
    title="A setting disables InfiniBand and RoCE",
    may_cause=("no-ib",),
    shows=("setting",),
)

_LOOK = "ibv_devinfo; ls /dev/infiniband   # does the container have a card at all?"


def judge(facts: Facts) -> Results:
    """Judge by effect: it matters where hosts use TCP; EFA and other plugins ignore NCCL_IB_DISABLE."""
    settings = disabling_settings(facts)
    if not settings:
        return
    network = facts.platform.network if facts.platform else None
    by_plugin = bool(efa_hints(facts)) if network is None else network not in ("ib", "roce")
    slow = tcp_paths(facts).where(lambda _: not by_plugin)
    hardware = bool(ib_hints(facts)) or network in ("ib", "roce")
    proved = [*ib_cards(facts), *_ipoib(facts)]
    if (hardware or proved) and not (by_plugin or facts.job.paths or is_single_host(facts)):
        has_cards = bool(proved) or network in ("ib", "roce")
        yield _suspected(facts, settings, proved, sure=has_cards and facts.spans_hosts())
        return
    yield RULE.finding(
        f"{as_shell(settings)} " + (f"keeps {count(len(slow), 'path')} on TCP" if slow else "is set"),
        cause=f"{as_shell(settings)} is set in the {listed(setting.source for setting in settings)}; often copied from "
        "another cluster, or left over from a test",
        impact=_impact(slow, hardware, by_plugin, facts.platform),
        fix=[*unset_steps(settings), _LOOK],
        severity="info" if not slow else "error" if hardware else "warning",
        confidence="likely" if slow and not hardware else "certain",
        ranks=facts.ranks_with(settings),
        hosts=hosts_of_paths(slow) or {host for setting in settings for host in setting.hosts},
        evidence=[*evidence_of_settings(settings), *_consequences(facts), *first_lines(slow)[:2]],
        paths=slow,
    )


def _ipoib(facts: Facts) -> list[Evidence]:
    """Lines that list an interface of IP over InfiniBand."""
    return [interface.notice.evidence[0] for interface in listed_interfaces(facts) if interface.is_ipoib][:2]


def _suspected(facts: Facts, settings: list[Setting], cards: list[Evidence], *, sure: bool) -> Finding:
    """The clue where there are cards, and the log ends before hosts connect."""
    return RULE.clue(
        f"{as_shell(settings)} disables InfiniBand and RoCE, although there are cards",
        cause=f"{as_shell(settings)} is set in the {listed(setting.source for setting in settings)}; often copied from "
        "another cluster, or left over from a test",
        impact=over_tcp(facts.platform).after("the log has no connections between hosts; they would use TCP. "),
        fix=[*unset_steps(settings), _LOOK],
        confirm="Look for 'via NET/Socket' between hosts, after the first collective.",
        confidence="likely" if sure else "possible",
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=[*evidence_of_settings(settings), *(cards or ib_hints(facts))],
    )


def _consequences(facts: Facts) -> list[Evidence]:
    """Warnings of 2.29 and later: GPU-initiated networking requests InfiniBand, which was never loaded."""
    warned = facts.notices("nccl/library-not-initialized")
    return [notice.evidence[0] for notice in warned if (notice.location or "").startswith("misc/ibvwrap.cc")]


def _impact(slow: Selection, hardware: bool, by_plugin: bool, platform: Platform | None) -> str | Estimate:
    if by_plugin:
        return "none: the network of this machine is not InfiniBand or RoCE, and its plugin ignores the setting"
    if not slow:
        return "none in this log: no path between hosts uses TCP"
    unsure = "" if hardware else "if the hosts have InfiniBand or RoCE cards, which the log cannot show: "
    return over_tcp(platform).after(unsure)
