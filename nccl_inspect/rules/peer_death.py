"""A rank went away while the others were at work."""

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, LastLine, Notice, NotJudged
from nccl_inspect.rules.efa_completion_error import lost_peers
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import FLUSHED, Facts, first_said, global_ranks, hosts_in, is_retold, ranges, ranks_in
from nccl_inspect.rules.ib_timeout_err12 import after_another

RULE = Rule(
    name="peer-death",
    category="failures",
    severity="error",
    title="A rank went away while the others were at work",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge closed connections where nobody names an error: what the log then shows are echoes."""
    closed = [*facts.notices("socket-closed-by-peer"), *filter(_is_reset, facts.job.notices)]
    closed.extend(lost_peers(facts))
    given_up = [*after_another(facts), *facts.completions(FLUSHED)]
    local = facts.notices("proxy-connection-closed")
    comms = facts.job.communicators
    echoes = set(map(id, [*closed, *given_up]))
    errors = [notice for notice in facts.failures() if id(notice) not in echoes and not is_retold(notice)]
    if not (closed or local or given_up) or errors:
        return
    if comms and all(len(comm.ended) == comm.nranks for comm in comms):
        return  # every rank came to its end: connections close then
    said = [*closed, *given_up, *local]
    gone = _gone(facts, said)
    aborted = any(comm.state == "aborted" for comm in comms)
    if closed or given_up or (gone and aborted):  # local connections close at every exit
        yield _finding(gone, said, sure=bool(closed or gone))


def _gone(facts: Facts, echoes: list[Notice]) -> list[LastLine]:
    """The processes that fell silent before the first echo and came to no end, if others did."""
    first: dict[str, int] = {}
    for line in (line for notice in echoes for line in notice.evidence):
        first[line.source] = min(line.line, first.get(line.source, line.line))
    victims = {process for notice in echoes for process in notice.processes}
    ended = {rank for comm in facts.job.communicators for rank in global_ranks(comm, comm.ended)}
    silent = [
        last
        for last in facts.job.last_lines
        if last.ranks
        and last.process not in victims
        and not ended & set(last.ranks)
        and last.line < first.get(last.source, last.line + 1)
    ]
    return silent if ended or len(silent) == 1 else []


def _is_reset(notice: Notice) -> bool:
    """Whether a call failed for no other reason than that the other side is gone."""
    gone = ("reset by peer", "Broken pipe")
    return notice.production == "socket-recv-failed" and any(word in notice.message for word in gone)


def _finding(gone: list[LastLine], echoes: list[Notice], *, sure: bool) -> Finding:
    ranks = {rank for last in gone for rank in last.ranks}
    return RULE.finding(
        _summary(gone, ranks),
        cause="its lines stop without an error or an end: killed (out of memory, preemption, spot loss), crashed, or "
        "its machine was lost"
        if gone
        else "every line about it is an echo: these ranks are victims of one whose log is not here, or does not tell",
        impact="the job is dead: a communicator does not survive the loss of a rank. 'Connection closed by remote "
        "peer' on the others is the effect, not the fault",
        fix=[
            "kubectl describe pod <pod> (OOMKilled, 137, Evicted); kubectl logs --previous <pod>",
            "on its host: dmesg -T | grep -iE 'oom|xid|segfault'",
            "the output of that rank itself: a traceback or a segmentation fault does not stand in NCCL's lines"
            if gone
            else "give this tool the logs of all ranks: the one that ends first or names another error is the cause",
        ],
        confidence="likely" if sure else "possible",
        ranks=ranks or ranks_in(echoes),
        hosts={last.process[0] for last in gone} or hosts_in(echoes),
        evidence=first_said(echoes),
        fatal=True,
    )


def _summary(gone: list[LastLine], ranks: set[int]) -> str:
    if not gone:
        return "ranks lost their connections to a peer; the first failing rank is not in this log"
    if len(gone) > 1:
        return f"rank {ranges(ranks)} fell silent before the others lost a connection: one of them went away, or all"
    (host, pid, _), line = gone[0].process, gone[0].line
    return f"rank {ranges(ranks)} ({host}, pid {pid}) went away: silent after line {line}, others lost connections"
