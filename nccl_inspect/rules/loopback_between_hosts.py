"""Several hosts use the loopback interface to reach each other."""

from collections.abc import Iterator

from nccl_inspect.event.types import Event, NetDevices
from nccl_inspect.judging.connecting import has_built_communicator, is_single_host
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, as_shell, evidence_of_settings, first_evidence, hosts_in, ranks_in
from nccl_inspect.judging.networks.interfaces import allows_loopback, listed_interfaces
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Setting

RULE = Rule(
    name="loopback-between-hosts",
    category="bootstrap",
    severity="error",
    title="Several hosts use the loopback interface",
    causes=("hang-after-init", "watchdog-*"),
    echoes=("bootstrap-connect-refused", "bootstrap-no-route"),
    supersedes=("bootstrap-wrong-interface",),
)

_LET_IN = "a list from the user replaces NCCL's default, which excludes lo, and lo comes first"
_LOOK = "ip -br addr   # inside the container: the interface that other hosts can reach"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the bootstrap interface and the devices of NET/Socket where the communicators span hosts."""
    setup = [
        interface.notice for interface in listed_interfaces(facts) if interface.for_setup and interface.is_loopback
    ]
    let_in = list(filter(allows_loopback, facts.user_settings("NCCL_SOCKET_IFNAME")))
    if not facts.spans_hosts():
        if setup and let_in and not (is_single_host(facts) or has_built_communicator(facts)):
            yield _suspected(setup, let_in)
        return
    data = [notice for notice in facts.with_event(NetDevices, _is_loopback) if _is_socket(notice)]
    named = [setting for setting in facts.settings("NCCL_SOCKET_IFNAME") if setting.value.lstrip("=").startswith("lo")]
    carried = facts.paths("inter", "NET", "Socket").where(lambda kind: kind.nic == "lo")
    if not setup and not data:
        if named and not has_built_communicator(facts):
            yield _of_settings(facts, named)
        return
    works = bool(carried) and any(comm.connected and len(comm.hosts) > 1 for comm in facts.job.communicators)
    dead = facts.job.failed or (bool(facts.job.ended_by) and not facts.job.paths)
    stuck = (
        not dead and not facts.job.paths and facts.none_initialized(facts.job.communicators)
    )  # or the log was cut there
    yield RULE.finding(
        "ranks of several hosts use the loopback interface (lo)"
        + (", and connect: these hosts are on one machine" if works else ", which cannot reach another host"),
        cause=f"{as_shell(named)} selects it"
        if named
        else f"{as_shell(let_in)} does not exclude it: {_LET_IN}"
        if let_in
        else "the host or pod has no other interface that NCCL may use",
        impact="they talk over TCP inside one machine; on separate hosts the job stops during bootstrap"
        if works
        else "loopback addresses lead back to the same host: the job stops during bootstrap, or when it connects",
        fix=[CHOOSE_INTERFACE, _LOOK],
        severity="warning" if works else "error",
        confidence="certain" if data and named and not stuck else "likely",
        ranks=ranks_in([*setup, *data]),
        hosts=hosts_in([*setup, *data]),
        evidence=[*first_evidence([*setup, *data])[:4], *evidence_of_settings(named or let_in, 1)],
        fatal=dead or stuck,
        paths=carried,
    )


def _suspected(setup: list[Notice], let_in: list[Setting]) -> Finding:
    """The clue where the log shows one host, and loopback was hardly intended."""
    return RULE.clue(
        f"bootstrap traffic uses the loopback interface, which {as_shell(let_in)} does not exclude",
        cause=_LET_IN,
        impact="if the job has several hosts, they cannot reach each other: it stops during bootstrap",
        fix=[f"NCCL_SOCKET_IFNAME=^lo,{let_in[0].value.removeprefix('^')}   # or name the interface", _LOOK],
        confirm="Check how many hosts the job has, and whether 'Init COMPLETE' follows.",
        severity="warning",
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
        severity="warning",
        ranks=facts.ranks_with(named),
        hosts={host for setting in named for host in setting.hosts},
        evidence=evidence_of_settings(named),
    )


def _is_loopback(event: Event) -> bool:
    return isinstance(event, NetDevices) and any(str(device[1]) == "lo" for device in event.devices[:1])


def _is_socket(notice: Notice) -> bool:
    return getattr(notice.event, "net", None) == "Socket"
