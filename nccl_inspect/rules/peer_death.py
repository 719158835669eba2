"""A rank went away while the others were at work."""

import signal
from collections.abc import Iterator

from nccl_inspect.event_types import BootstrapInterface, CollectiveTimeout
from nccl_inspect.model import endings
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Finding, Notice, NotJudged
from nccl_inspect.rules.cuda import FULL
from nccl_inspect.rules.departures import TOLD, Departure, departures, last_words, traceback_of
from nccl_inspect.rules.efa_completion_error import lost_peers
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, global_ranks, hosts_in, listed, ranks_in, ranks_word
from nccl_inspect.rules.ib_timeout_err12 import after_another, precedes
from nccl_inspect.rules.statements import FLUSHED, is_retold, value

_AFTER_SIGKILL = (
    "kubectl describe pod <pod>; kubectl logs --previous <pod>   # OOMKilled, 137, Evicted?",
    "dmesg -T | grep -iE 'oom|xid|killed process'   # on its host",
    "Where memory ran out, give the container more (resources.limits.memory), or use fewer DataLoader workers.",
)
_AFTER_ERROR = (
    "Read the output of that rank above this line: a traceback, an assertion or a segmentation fault.",
    "torchrun --log-dir /logs --redirects 3 --tee 3 <script>   # a file for each rank; @record keeps the traceback",
    "CUDA_LAUNCH_BLOCKING=1   # after CUDA errors; compute-sanitizer tells more",
)
_AFTER_BUS_ERROR = (
    "df -h /dev/shm; ls -l /dev/shm   # on its host, or in its container: is it full, and of what?",
    "--shm-size=16g   # option of docker run; or --ipc=host",
    "volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: 64Gi}}]   # pod spec, mounted on /dev/shm",
    "dmesg -T | grep -iE 'oom|hardware error|mce'   # where /dev/shm has room: the memory limit, or broken memory?",
)
RULE = Rule(
    name="peer-death",
    category="failures",
    severity="error",
    title="A rank went away while the others were at work",
)


_KILLED = (
    *("out-of-memory", "out-of-memory-container", "kubernetes-oom", "ray-memory-node", "ray-memory"),
    *("slurm-out-of-memory", "slurm-out-of-memory-20-11"),
)
"""The kernel, or who runs the job, killed a process for want of memory."""
_SLURM_KILLED = "Out Of Memory"
_NAME_PEERS = ("socket-closed-by-peer", "socket-recv-failed")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge closed connections where nobody names an error: what the log then shows are echoes."""
    closed = [*facts.notices("socket-closed-by-peer"), *filter(_is_reset, facts.job.notices)]
    closed.extend(lost_peers(facts))
    late = _after_the_end(facts, closed)
    facts.pass_over(late)
    closed = [notice for notice in closed if not any(notice is one for one in late)]
    given_up = [*after_another(facts), *facts.completions(FLUSHED)]
    local = facts.notices("proxy-connection-closed")
    comms = facts.job.communicators
    echoes = set(map(id, [*closed, *given_up]))
    killed = [*facts.notices(*_KILLED), *filter(_is_slurm_kill, facts.notices("slurm-task-ended"))]
    departed = departures(facts)
    echoes |= set(map(id, [*killed, *_waits(facts, killed, departed)]))
    errors = [notice for notice in facts.failures() if id(notice) not in echoes and not _is_known_end(notice)]
    if errors:
        return
    if killed:
        yield _of_memory(killed, departed, [*closed, *given_up])
        return
    if departed:
        yield _departed(facts, departed, [*closed, *given_up])
        return
    if not (closed or local or given_up):
        return
    if comms and all(len(comm.ended) == comm.nranks for comm in comms):
        return  # every rank came to its end: connections close then
    said = [*closed, *given_up, *local]
    gone = _gone(facts, said)
    aborted = any(comm.state == "aborted" for comm in comms)
    if closed or given_up or (gone and aborted):  # local connections close at every exit
        yield _finding(gone, said, sure=bool(closed) or len(gone) == 1)


def _after_the_end(facts: Facts, closed: list[Notice]) -> list[Notice]:
    """Connections that closed after the scheduler had ended the job for a reason of its own."""
    ends = [notice for notice in facts.notices("slurm-cancelled") if endings.reason(notice.event)]
    return [notice for notice in closed if any(precedes(end, notice) for end in ends)]


def _waits(facts: Facts, killed: list[Notice], departed: list[Departure]) -> list[Notice]:
    """The ranks that waited in vain for a process that was killed, or that had crashed before."""
    crashes = [one.notice for one in departed if one.is_crash]
    waits = facts.said(CollectiveTimeout)
    return waits if killed else [wait for wait in waits if any(precedes(crash, wait) for crash in crashes)]


def _is_known_end(notice: Notice) -> bool:
    return is_retold(notice) or notice.production in TOLD or _is_of_program(notice)


def _is_of_program(notice: Notice) -> bool:
    """Whether it is a CUDA error that the program ended with; where memory ran out that is told by itself."""
    return notice.production == "cuda-error" and value(notice, "error") != FULL


def _is_slurm_kill(notice: Notice) -> bool:
    return str(value(notice, "how")).startswith(_SLURM_KILLED)


def _of_memory(killed: list[Notice], departed: list[Departure], echoes: list[Notice]) -> Finding:
    """Processes of which the kernel, or who runs the job, says that it killed them for want of memory."""
    gone = [one for one in departed if one.code == -signal.SIGKILL]
    return RULE.finding(
        f"a process was killed for want of host memory: {killed[0].message.strip()}",
        cause="the memory of the host, or what the pod or the job may use of it, was exhausted: data loaders, a "
        "checkpoint that is gathered or loaded on every rank, pinned buffers, or /dev/shm, which counts as memory",
        impact="the job is dead: a communicator does not survive the loss of a rank. The others lose connections, or "
        "wait until PyTorch gives up",
        fix=[
            "Give the pod more memory (resources.limits.memory); Slurm: --mem=0 is all of the node.",
            "Use less: fewer data loader workers, checkpoints loaded and saved in shards; an emptyDir of "
            "medium Memory counts towards the limit of the pod.",
            "dmesg -T | grep -i 'killed process'   # on its host: which process, and how much",
        ],
        ranks={rank for one in gone for rank in one.ranks},
        hosts={one.host for one in gone},
        evidence=first_said([*killed, *(one.notice for one in gone[:2]), *echoes]),
        fatal=True,
    )


def _departed(facts: Facts, departed: list[Departure], echoes: list[Notice]) -> Finding:
    """Processes of which the launcher says that they ended by themselves."""
    words = last_words(facts, departed)
    first = departed[0]
    trace = traceback_of(facts, first)
    others = f", and {len(departed) - 1} more" if len(departed) > 1 else ""
    effect = "; the others were ended or lost their connections" if first.is_by_launcher else ""
    return RULE.finding(
        f"{first.who} {first.how}{others}{effect}",
        cause=_why(facts, first, next(iter(words.values()), None), trace),
        impact="the job is dead: a communicator does not survive the loss of a rank",
        fix=_FIXES.get(-first.code, _AFTER_ERROR),
        confidence="likely" if first.pid is None else "certain",  # it may have been no rank
        ranks={rank for one in departed for rank in one.ranks},
        hosts={one.host for one in departed},
        evidence=first_said(
            [*(one.notice for one in departed[:2]), *words.values(), *([trace] if trace else []), *echoes[:2]]
        ),
        fatal=True,
    )


_FIXES: dict[int, tuple[str, ...]] = {signal.SIGKILL: _AFTER_SIGKILL, signal.SIGBUS: _AFTER_BUS_ERROR}


def _why(facts: Facts, departure: Departure, said: Notice | None, trace: Notice | None) -> str:
    if departure.code == -signal.SIGBUS:
        return _bus_error(facts, departure)
    if said is not None:
        return f"its own output tells: {value(said, 'error')}"
    if trace is not None and not departure.is_loader:
        line = trace.evidence[0]
        return f"an exception of the program: its traceback begins at {line.source.rpartition('/')[2]}:{line.line}"
    if departure.code == -signal.SIGKILL:
        return (
            "not in the log: killed from outside, most often by the out-of-memory killer of the kernel or the "
            "container, or by preemption"
        )
    if departure.is_crash:
        return "not in the log: the process crashed, in its own code or in a library"
    if departure.code == -signal.SIGABRT:
        return "not in the log: the process gave itself up, as PyTorch's watchdog or a failed assertion does"
    return "not in the log: an exception or an error of the program; the traceback stands in that rank's own output"


def _bus_error(facts: Facts, departure: Departure) -> str:
    """SIGBUS: a write to a file in memory that has no room."""
    sharing = "data loader workers hand over what they load in it" if departure.is_loader else ""
    if not sharing and facts.paths(transport="SHM"):
        sharing = "ranks of this job share memory in it (SHM)"
    if sharing:
        return (
            f"most likely /dev/shm is full or too small (containers get 64 MiB unless told otherwise): {sharing}, and "
            "SIGBUS is how a write ends that finds no room; 'df -h /dev/shm' tells"
        )
    return (
        "not in the log: the process crashed; possibly /dev/shm is full (SIGBUS is how a write ends that finds no "
        "room), else a mapped file that was cut, or broken memory"
    )


def _gone(facts: Facts, echoes: list[Notice]) -> list[LastLine]:
    """The processes that fell silent before the first echo and came to no end, if others did."""
    # The order of lines says something within a host only: hosts may have been put one after the other.
    first: dict[tuple[str, str], int] = {}
    for notice in echoes:
        for process, line in zip(notice.processes, notice.evidence, strict=False):  # evidence is of the first ones
            key = line.source, process.host
            first[key] = min(line.order, first.get(key, line.order))
    victims = {process for notice in echoes for process in notice.processes}
    # Several jobs in one log each have a rank 0: only what stands on the same host is about the same process.
    ended = {
        (host, rank)
        for comm in facts.job.communicators
        for host in comm.hosts
        for rank in global_ranks(comm, comm.ended)
    }
    silent = [
        last
        for last in facts.job.last_lines
        if last.ranks
        and last.process not in victims
        and not any((last.process.host, rank) in ended for rank in last.ranks)
        and last.order <= first.get((last.source, last.process.host), last.order)
    ]
    if not ended and (len(silent) != 1 or _some_are_missing(facts)):
        return []
    hosts = _hosts_lost(facts, echoes)
    return [last for last in silent if not hosts or last.process.host in hosts]


def _some_are_missing(facts: Facts) -> bool:
    """Whether ranks have no line in this log: that of one that says nothing is then no proof against it."""
    return any(len(comm.started) < comm.nranks for comm in facts.job.communicators)


def _hosts_lost(facts: Facts, echoes: list[Notice]) -> set[str]:
    """The hosts to which connections were lost, where all of these are known by their address or name."""
    known = {host.name: {host.name} for host in facts.job.hosts}
    for notice in facts.said(BootstrapInterface):
        assert isinstance(notice.event, BootstrapInterface)
        known.setdefault(str(notice.event.address).partition("<")[0], set()).update(notice.hosts)
    lost = _peers(echoes)
    return {host for peer in lost for host in known[peer]} if all(peer in known for peer in lost) else set()


def _peers(echoes: list[Notice]) -> list[str]:
    """The addresses or names to which connections were lost."""
    peers = (value(notice, "peer") for notice in echoes if notice.production in _NAME_PEERS)
    return sorted({str(peer).partition("<")[0] for peer in peers if peer})


def _is_reset(notice: Notice) -> bool:
    """Whether a call failed for no other reason than that the other side is gone."""
    gone = ("reset by peer", "Broken pipe")
    return notice.production == "socket-recv-failed" and any(word in notice.message for word in gone)


def _finding(gone: list[LastLine], echoes: list[Notice], *, sure: bool) -> Finding:
    ranks = {rank for last in gone for rank in last.ranks}
    return RULE.finding(
        _summary(gone, ranks, echoes),
        cause="its lines stop without an error or an end: killed (out of memory, preemption, spot loss), crashed, or "
        "its machine was lost"
        if gone
        else "every line about it is an echo: these ranks are victims of one whose log is not here, or does not tell",
        impact="the job is dead: a communicator does not survive the loss of a rank. 'Connection closed by remote "
        "peer' on the others is the effect, not the fault",
        fix=[
            "kubectl describe pod <pod>; kubectl logs --previous <pod>   # OOMKilled, 137, Evicted?",
            "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host",
            "Read the output of that rank itself: a traceback or a segmentation fault does not stand in NCCL's lines."
            if gone
            else "Give this tool the logs of all ranks: the one that ends first or names another error is the cause.",
        ],
        confidence="likely" if sure else "possible",
        ranks=ranks or ranks_in(echoes),
        hosts={last.process[0] for last in gone} or hosts_in(echoes),
        evidence=first_said(echoes),
        fatal=True,
    )


def _summary(gone: list[LastLine], ranks: set[int], echoes: list[Notice]) -> str:
    if not gone:
        victims = ranks_in(echoes)
        who = f"{ranks_word(victims)}" if victims else "ranks"
        peers = _peers(echoes)
        whom = f"a peer on {listed(peers)}" if peers else "a peer"
        return f"{who} lost connections to {whom}; the first failing rank is not in this log"
    if len(gone) > 1:
        return f"{ranks_word(ranks)} fell silent before the others lost a connection: one of them went away, or all"
    (host, pid, _), line = gone[0].process, gone[0].line
    return f"{ranks_word(ranks)} ({host}, pid {pid}) went away: silent after line {line}, others lost connections"
