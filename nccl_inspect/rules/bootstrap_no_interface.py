"""No network interface for the set-up traffic."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, lines_of, ranks_in, ranks_word, words_of
from nccl_inspect.rules.remedies import CHOOSE_INTERFACE

RULE = Rule(
    name="bootstrap-no-interface",
    category="bootstrap",
    severity="error",
    title="A rank finds no network interface to start with",
    because=("env-mismatch-across-ranks",),
    local=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the warning of the rank itself; a NET/Socket one counts only where nothing was connected after all."""
    missing = facts.notices("bootstrap-no-interface")
    if not facts.job.paths:
        missing = [*missing, *facts.notices("socket-net-no-interface", "fastsocket-no-interface")]
    if not missing:
        return
    where = {process for notice in missing for process in notice.processes}
    named = [setting for setting in facts.settings("NCCL_SOCKET_IFNAME") if where & set(setting.processes)]
    known = ranks_in(missing)
    who = f"{ranks_word(known)}" if known else "a process"
    yield RULE.finding(
        f"{who} on {', '.join(sorted(hosts_in(missing))) or 'some host'} finds no network interface"
        + (f" with {words_of(named)}" if named else ""),
        cause=f"{words_of(named)} fits no interface of that host or pod (a name without '=' is a prefix)"
        if named
        else "the pod or host has no interface with an address besides loopback and docker's, or a setting that the "
        "log does not show excludes it",
        impact="this rank stops, and all others wait for it in the initialisation, without a time limit",
        fix=[
            "ip -br addr   # on that host, inside the container: which interfaces have an address?",
            CHOOSE_INTERFACE,
        ],
        ranks=known,
        hosts=hosts_in(missing),
        evidence=[*first_said(missing), *lines_of(named)],
        fatal=True,
    )
