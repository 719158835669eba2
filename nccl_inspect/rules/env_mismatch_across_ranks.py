"""A variable that must agree differs between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.event import is_named
from nccl_inspect.event_types import BootstrapInterface
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Setting
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, global_ranks, lines_of, ranks_word

RULE = Rule(
    name="env-mismatch-across-ranks",
    category="environment",
    severity="error",
    title="A variable that must be the same on all ranks differs",
    local=True,
)

MUST_AGREE = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_CTAS",
    "NCCL_MIN_CTAS",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_IB_DISABLE",
    "NCCL_PXN_DISABLE",
    "NCCL_CROSS_NIC",
    "NCCL_COLLNET_ENABLE",
    "NCCL_NET_GDR_LEVEL",
)
"""Different values on any two ranks break or slow down a communicator."""
AGREE_ON_A_HOST = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA")
"""May differ from host to host, but not between ranks of one."""
CHOOSE_DEVICES = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA")
"""A launcher may give each rank its own on purpose: where the ranks then connect, it does no harm."""
READ_BY_EVERY_RANK = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_CUMEM_ENABLE")
"""Read and echoed by every rank before its initialisation is complete: a rank without the line does not have it."""
_SHOWN = 8
"""Values that are told; where each rank has its own there are thousands."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge values that differ, and variables that some ranks show and others, which came as far, do not."""
    for name in (*MUST_AGREE, *AGREE_ON_A_HOST):
        values = facts.settings(name)
        if not values:
            continue
        if outliers := _differing(facts, name, values) or _lonely(facts, name, values):
            if name not in CHOOSE_DEVICES or facts.job.failed or facts.failures():
                yield _finding(name, values, outliers, harmless=False)
            elif len(values) == 1 or _joined(facts, outliers):
                yield _finding(name, values, outliers, harmless=_joined(facts, outliers))
            else:
                yield _clue(name, values, outliers)


def _differing(facts: Facts, name: str, values: list[Setting]) -> list[Setting]:
    """Settings that less than the usual number of ranks have."""
    if len(values) < 2:
        return []
    if name in AGREE_ON_A_HOST:
        hosts = [host for setting in values for host in set(setting.hosts) if is_named(host)]
        if len(set(hosts)) == len(hosts):  # each has one value
            return []
    ranked = sorted(values, key=lambda setting: len(setting.processes), reverse=True)
    return ranked[1:]


def _lonely(facts: Facts, name: str, values: list[Setting]) -> list[Setting]:
    setting = values[0]
    if len(values) > 1 or setting.ranks is None or any(source.damaged_lines for source in facts.job.sources):
        return []
    if name == "NCCL_SOCKET_IFNAME":
        if not (facts.job.failed or facts.failures()):
            return []  # the line of a peer may have been cut off, and they found each other
        return [setting] if _peers_came_up_without(facts, setting) else []
    if name not in READ_BY_EVERY_RANK or not setting.ranks or facts.job.excerpt:  # lines may have been left out
        return []
    others = seen_to_come_up(facts) - set(setting.ranks)
    if setting.source == "plugin":  # which sets it before NCCL announces the communicator
        others &= _begun(facts)
    return [setting] if others else []


def seen_to_come_up(facts: Facts) -> set[int]:
    """The ranks whose log is there from its beginning up to the end of an initialisation: what it lacks is not set.

    Where the beginning of a log was cut off, each rank lacks other lines. A process prints some variables only for its
    first communicator, which is that of all ranks.
    """
    comms = facts.job.communicators
    completed = {rank for comm in comms for rank in global_ranks(comm, comm.completed)}
    announced = {rank for comm in comms if comm.id == "world" for rank in global_ranks(comm, comm.announced)}
    return completed & (announced | _begun(facts))


def _begun(facts: Facts) -> set[int]:
    """The ranks that say which interface they chose: that is among the first lines."""
    return {rank for notice in facts.said(BootstrapInterface) for rank in notice.ranks}


def _peers_came_up_without(facts: Facts, setting: Setting) -> bool:
    """Whether another process of the same host chose its interface without being told."""
    chose = {process for notice in facts.said(BootstrapInterface) for process in notice.processes}
    return any(host in setting.hosts for host, *_ in chose - set(setting.processes))


def _joined(facts: Facts, outliers: list[Setting]) -> bool:
    """Whether the ranks connected to each other."""
    ranks = {rank for setting in outliers for rank in setting.ranks or ()}
    connected = any(comm.state == "connected" for comm in facts.job.communicators)
    return connected or (bool(ranks) and ranks <= {end for path in facts.job.paths for end in (path.src, path.dst)})


def _clue(name: str, values: list[Setting], outliers: list[Setting]) -> Finding:
    """Each rank has its own device, on purpose or not, and the log does not show whether they connect."""
    return RULE.clue(
        _summary(name, values),
        cause="a launcher gives each rank its own device, or the ranks got different values by mistake",
        impact="none where the ranks connect; else they wait for each other",
        fix=_fixes(name),
        confirm="Look for 'Channel ... via' lines of these ranks: if they are there, it does no harm.",
        severity="warning",
        confidence="possible",
        ranks={rank for setting in outliers for rank in setting.ranks or ()},
        hosts={host for setting in outliers for host in setting.hosts},
        evidence=lines_of(values[:_SHOWN]),
    )


def _summary(name: str, values: list[Setting]) -> str:
    told = "; ".join(f"{setting.value} on {_who(setting)}" for setting in values[:_SHOWN])
    told += f"; and {count(len(values) - _SHOWN, 'other value')}" if len(values) > _SHOWN else ""
    return f"{name} differs between ranks: {told}"


def _fixes(name: str) -> list[str]:
    return [
        f"Give {name} the same value in 'env:' of all roles and in all launchers (mpirun -x, srun --export=ALL,…).",
        f"grep -s {name} /etc/nccl.conf ~/.nccl.conf; env | grep {name}   # on each host, in each container",
    ]


def _finding(name: str, values: list[Setting], outliers: list[Setting], *, harmless: bool) -> Finding:
    alone = len(values) == 1
    return RULE.finding(
        _summary(name, values) + ("; the other ranks show no such line" if alone else ""),
        cause="the variable reaches some ranks only: set in one role, one host or one launcher shell"
        if alone
        else "the ranks got different values: from their roles, their hosts or a launch script",
        impact="none in this log: the ranks connected. To choose the NIC of each GPU, and for PXN, NCCL needs to see "
        "all of them"
        if harmless
        else "ranks that disagree wait for each other (ALGO, PROTO), fail to connect (P2P, SHM, interfaces) "
        "or share the slowest setting",
        fix=_fixes(name),
        severity="info" if harmless else RULE.severity,
        confidence="likely" if alone else "certain",
        ranks={rank for setting in outliers for rank in setting.ranks or ()},
        hosts={host for setting in outliers for host in setting.hosts},
        evidence=lines_of(values[:_SHOWN]),
    )


def _who(setting: Setting) -> str:
    if setting.ranks is None:
        return "all ranks"
    return f"{ranks_word(setting.ranks)}" if setting.ranks else f"host {', '.join(setting.hosts)}"
