"""Transfers between NICs get no response: status 12, retries exceeded."""

from nccl_inspect.judging.engine import Effects, Facts, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, unset_steps
from nccl_inspect.judging.networks.ib_errors import OTHER_ROOTS, UNANSWERED, after_another
from nccl_inspect.judging.networks.transfers import silent_peers
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="ib-timeout-err12",
    category="network",
    layer=Layer.LOSS,
    title="Transfers over InfiniBand or RoCE get no response (status 12)",
    shows=("death", "lost-transfer"),
)
_USUAL_WAIT = 18
"""NCCL_IB_TIMEOUT from 2.14 on; 20 from 2.23 on."""


def judge(facts: Facts) -> Results:
    """Judge the first failed transfers; where failover took over, NCCL continues and it is a warning."""
    late = after_another(facts)
    yield Effects(late)
    failed = [notice for notice in facts.completions(UNANSWERED) if notice not in late]
    survived = [n for n in facts.notices("nccl/ib-resilient-completion-error") if value(n, "status") == UNANSWERED]
    lost = facts.notices("nccl/ib-error-fatal", "nccl/ib-failover-impossible")
    if not failed and (not survived or facts.completions(UNANSWERED)):
        return
    notices = [*failed, *survived]
    settings = [*_short_waits(facts), *(s for s in facts.user_settings("NCCL_IB_GID_INDEX") if s.value != "-1")]
    dead = bool(failed or lost)
    silent = silent_peers(facts, failed)
    ranks = _ranks_at(facts, silent, {str(value(notice, "device")) for notice in failed})
    yield RULE.finding(
        f"{count(len(notices), 'transfer')} got no response from the peer (status 12, retries exceeded)"
        f"{_where(notices)}" + (f", meant for {listed(silent)}, where no rank reports an error" if silent else ""),
        cause="packets are lost between the two NICs: a bad cable or switch port, RoCE without PFC or ECN, a wrong "
        "route or GID, or the peer died (then its log ends before this)",
        impact="the communicator is lost, and with it the job"
        if dead
        else "NCCL moved the traffic to another port and continues with less bandwidth",
        fix=[
            *unset_steps(settings),
            "Check whether the peer is alive: its log, its pod, dmesg on its host.",
            "ibstat; perfquery -x; rdma statistic   # ports and cables of both ends",
            "ethtool -S <netdev> | grep -iE 'pause|discard|err'   # RoCE, on both ends",
            "ib_write_bw -d mlx5_0   # on one host; on the other: ib_write_bw -d mlx5_0 <host>; each pair of cards",
        ],
        severity="error" if dead else "warning",
        confidence="possible" if facts.completions(*OTHER_ROOTS) else "likely",
        notices=notices,
        ranks=ranks or None,
        hosts=silent or None,
        evidence=[*first_evidence([*notices, *lost])[:4], *evidence_of_settings(settings, 1)],
        fatal=dead,
    )


def _ranks_at(facts: Facts, hosts: set[str], devices: set[str]) -> set[int]:
    """Return the ranks of some hosts; those that use the NICs of these names, the rails of the reporters, if any do."""
    ranks = {rank for host in facts.job.hosts if host.name in hosts for rank in host.ranks}
    on_rails = {
        path.dst
        for path in facts.inter_host_rdma_paths()
        if path.dst in ranks and any(link.receive and link.receive.nic in devices for link in path.links)
    }
    return on_rails or ranks


def _short_waits(facts: Facts) -> list[Setting]:
    """Settings that wait less than NCCL does by default."""
    return [s for s in facts.user_settings("NCCL_IB_TIMEOUT") if s.value.isdigit() and 0 < int(s.value) < _USUAL_WAIT]


def _where(notices: list[Notice]) -> str:
    """The card and the peer that all of them name: look there first."""
    cards = {str(card) for notice in notices if (card := value(notice, "device"))}
    peers = {str(peer).partition("<")[0] for notice in notices if (peer := value(notice, "peer"))}
    common = [f"card {listed(cards)}"] if len(cards) == 1 else []
    common += [f"peer {listed(peers)}"] if len(peers) == 1 else []
    return f", all of them {' and '.join(common)}" if common and len(notices) > 1 else ""
