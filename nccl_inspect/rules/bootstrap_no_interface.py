"""No network interface for the set-up traffic."""

from collections.abc import Iterator, Sequence

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, hosts_in, lines_of, ranks_in, words_of
from nccl_inspect.judging.networks.interfaces import included, offered, without_family
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="bootstrap-no-interface",
    category="bootstrap",
    severity="error",
    title="A rank finds no network interface to start with",
    echoes=("bootstrap-connect-refused", "bootstrap-failed", "hang-in-init"),
    local=True,
)

_NETWORK = "--network=host   # option of docker run; one host alone: NCCL_SOCKET_IFNAME=lo"


def _fitting_none(facts: Facts) -> list[Setting]:
    """Settings that name no interface listed on their host, of processes that show none themselves."""
    listed: dict[str, set[str]] = {}
    chose = set()
    for one in offered(facts):
        chose.update(one.said.processes)
        for host in one.said.hosts:
            listed.setdefault(host, set()).add(one.name)
    return [
        setting
        for setting in facts.chosen("NCCL_SOCKET_IFNAME")
        if (names := included(setting))
        and chose.isdisjoint(setting.processes)
        and any(listed.get(host) for host in setting.hosts)
        and not any(name.startswith(tuple(names)) for host in setting.hosts for name in listed.get(host, ()))
    ]


def _without_interface(facts: Facts) -> list[Setting]:
    """Settings that name interfaces, of processes that show none."""
    chose = {process for one in offered(facts) for process in one.said.processes}
    named = facts.chosen("NCCL_SOCKET_IFNAME")
    return [setting for setting in named if included(setting) and chose.isdisjoint(setting.processes)]


def _suspected(facts: Facts, named: list[Setting], odd: Sequence[Notice] = ()) -> Finding:
    """What is said where a setting may match nothing: by the interfaces of the host, or by an address that is none."""
    return RULE.clue(
        f"{words_of(named)} may match no interface: an address that is none was handed out"
        if odd
        else f"{words_of(named)} matches no interface that the log lists for that host",
        cause="a name without '=' is a prefix: no interface begins with it, or none is up there",
        impact="a rank that finds no interface stops, and all others wait for it",
        fix=["ip -br addr   # on that host, inside the container: which interfaces have an address?", CHOOSE_INTERFACE],
        confirm="Look for 'no socket interface found' or 'Bootstrap: Using' from these processes.",
        severity="warning",
        confidence="possible",
        ranks=facts.ranks_with(named),
        hosts=[host for setting in named for host in setting.hosts],
        evidence=[*lines_of(named), *first_said(odd)],
    )


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the warning of the rank itself; a NET/Socket one counts only where nothing was connected after all."""
    stated = facts.notices("nccl/bootstrap-no-interface")
    if not facts.job.paths:
        stated = [*stated, *facts.leading_to(RULE.name)]
    missing = stated or without_family(facts)
    if not missing:
        if named := _fitting_none(facts):
            yield _suspected(facts, named)
        elif (odd := facts.with_role("garbled-address")) and (named := _without_interface(facts)):
            yield _suspected(facts, named, odd)
        return
    where = {process for notice in missing for process in notice.processes}
    named = [setting for setting in facts.settings("NCCL_SOCKET_IFNAME") if where & set(setting.processes)]
    known = ranks_in(missing)
    who = f"{ranks_word(known)}" if known else "a process"
    yield RULE.finding(
        f"{who} on {', '.join(sorted(hosts_in(missing))) or 'some host'} finds no network interface"
        + (f" with {words_of(named)}" if named else ""),
        cause="NCCL found no IP address to listen at, and asks for a socket of no family: the container has no "
        "network, or a setting excludes its interfaces"
        if not stated
        else f"{words_of(named)} fits no interface of that host or pod (a name without '=' is a prefix)"
        if named
        else "the pod or host has no interface with an address besides loopback and docker's, or a setting that the "
        "log does not show excludes it",
        impact="this rank stops, and all others wait for it in the initialisation, without a time limit",
        fix=[
            CHOOSE_INTERFACE,
            "ip -br addr   # on that host, inside the container: which interfaces have an address?",
            *([_NETWORK] if not stated else []),
        ],
        confidence="certain" if stated else "likely",
        ranks=known,
        hosts=hosts_in(missing),
        evidence=[*first_said(missing), *lines_of(named)],
        fatal=True,
    )
