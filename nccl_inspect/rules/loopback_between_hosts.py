"""Several hosts use the loopback interface to reach each other."""

from __future__ import annotations

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.connecting import has_built_communicator, is_single_host
from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, hosts_in, ranks_in
from nccl_inspect.judging.networks.interfaces import allows_loopback, listed_interfaces
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.util.records import Frozen, frozen

RULE = Rule(
    name="loopback-between-hosts",
    category="bootstrap",
    layer=Layer.SETTING,
    may_cause=("wait", "loss", "call", "stage"),
    shows=("setting",),
    title="Several hosts use the loopback interface",
    supersedes=("bootstrap-wrong-interface",),
)

_LET_IN = "a list from the user replaces NCCL's default, which excludes lo, and lo comes first"
_LOOK = "ip -br addr   # inside the container: the interface that other hosts can reach"


@frozen
class _Loopback(Frozen):
    """Holds which traffic between hosts uses the loopback interface, and the settings that allow it."""

    setup: list[Notice]
    """The bootstrap."""
    data: list[Notice]
    """The devices of NET/Socket."""
    carried: Selection
    """The paths over it."""
    named: list[Setting]
    """Settings that name it."""
    let_in: list[Setting]
    """Settings that do not exclude it."""

    @property
    def notices(self) -> list[Notice]:
        """The lines that show it."""
        return [*self.setup, *self.data]


def judge(facts: Facts) -> Results:
    """Judge the bootstrap interface and the devices of NET/Socket where the communicators span hosts."""
    loopback = _loopback(facts)
    if not facts.spans_hosts():
        is_known_to_work = is_single_host(facts) or has_built_communicator(facts)
        if loopback.setup and loopback.let_in and not is_known_to_work:
            yield _suspected(loopback.setup, loopback.let_in)
    elif loopback.notices:
        yield _finding(facts, loopback)
    elif loopback.named and not has_built_communicator(facts):
        yield _of_settings(facts, loopback.named)


def _loopback(facts: Facts) -> _Loopback:
    interfaces = [interface for interface in listed_interfaces(facts) if interface.for_setup and interface.is_loopback]
    settings = facts.settings("NCCL_SOCKET_IFNAME")
    return _Loopback(
        setup=[interface.notice for interface in interfaces],
        data=facts.with_event(NetDevices, _is_loopback),
        carried=facts.paths("inter", "NET", "Socket").where(lambda kind: kind.nic == "lo"),
        named=[setting for setting in settings if setting.value.lstrip("=").startswith("lo")],
        let_in=list(filter(allows_loopback, facts.user_settings("NCCL_SOCKET_IFNAME"))),
    )


def _finding(facts: Facts, loopback: _Loopback) -> Finding:
    works = bool(loopback.carried) and any(comm.connected and len(comm.hosts) > 1 for comm in facts.job.communicators)
    is_dead = facts.job.failed or (bool(facts.job.ended_by) and not facts.job.paths)
    is_open = not is_dead and not facts.job.paths and facts.none_initialized(facts.job.communicators)
    is_stuck = is_open and not facts.job.excerpt  # or the log was cut there
    return RULE.finding(
        "ranks of several hosts use the loopback interface (lo)"
        + (", and connect: these hosts are on one machine" if works else ", which cannot reach another host"),
        cause=_cause(loopback),
        impact="they talk over TCP inside one machine; on separate hosts the job stops during bootstrap"
        if works
        else "loopback addresses lead back to the same host: the job stops during bootstrap, or when it connects",
        fix=[CHOOSE_INTERFACE, _LOOK],
        severity="warning" if works else "error",
        confidence="certain" if loopback.data and loopback.named and not is_stuck else "likely",
        ranks=ranks_in(loopback.notices),
        hosts=hosts_in(loopback.notices),
        evidence=[
            *first_evidence(loopback.notices)[:4],
            *evidence_of_settings(loopback.named or loopback.let_in, 1),
        ],
        fatal=is_dead or is_stuck,
        paths=loopback.carried,
    )


def _cause(loopback: _Loopback) -> str:
    if loopback.named:
        return f"{as_shell(loopback.named)} selects it"
    if loopback.let_in:
        return f"{as_shell(loopback.let_in)} does not exclude it: {_LET_IN}"
    return "the host or pod has no other interface that NCCL may use"


def _suspected(setup: list[Notice], let_in: list[Setting]) -> Finding:
    """The clue where the log shows one host, and loopback was hardly intended."""
    return RULE.clue(
        f"bootstrap traffic uses the loopback interface, which {as_shell(let_in)} does not exclude",
        cause=_LET_IN,
        impact="if the job has several hosts, they cannot reach each other: it stops during bootstrap",
        fix=[f"NCCL_SOCKET_IFNAME=^lo,{let_in[0].value.removeprefix('^')}   # or name the interface", _LOOK],
        confirm="Check how many hosts the job has, and whether 'Init COMPLETE' follows.",
        confidence="possible",
        notices=setup,
        evidence=[*first_evidence(setup)[:3], *evidence_of_settings(let_in, 1)],
    )


def _of_settings(facts: Facts, named: list[Setting]) -> Finding:
    """The clue where the log ends before ranks name the interface they use."""
    return RULE.clue(
        f"{as_shell(named)} is set, and the job has several hosts",
        cause=f"{as_shell(named)} names the loopback interface",
        impact="loopback addresses lead back to the same host: the job stops during bootstrap",
        fix=[CHOOSE_INTERFACE, _LOOK],
        confirm="Look for 'Bootstrap: Using lo' on each host.",
        ranks=facts.ranks_with(named),
        hosts={host for setting in named for host in setting.hosts},
        evidence=evidence_of_settings(named),
    )


def _is_loopback(event: NetDevices) -> bool:
    return event.net == "Socket" and any(str(device[1]) == "lo" for device in event.devices[:1])
