"""What lines of kernel logs are about: the hosts and ranks of the job, or another run or program."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from nccl_inspect.artifacts import KERNEL_HOST
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.times import moment

_PID = compile_later(r"\bpid=(\d+)")
_STAMP = compile_later(r"\[?(?:(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2} +\d+ [\d:]{8})|(\d{4}-\d\d-\d\d[ T][\d:]{8}))")
"""The time in front of a line, without its year: syslog prints none."""
_DAY, _YEAR = 86_400.0, 366 * 86_400.0


def confidence(facts: Facts, notice: Notice) -> str:
    """Return how surely a line of the kernel is about this job, by its host, process and time, and for Xids by GPU.

    The ring buffer of a kernel goes back for weeks, and a file may be that of another machine. What stands among the
    lines of the job is of its time.
    """
    line = notice.evidence[0]
    if not notice.production.startswith("kernel/"):
        return "likely"
    pid = value(notice, "process") or value(notice, "pid") or next(iter(_PID.findall(line.text)), None)
    own = {last.process.pid: last.process.host for last in facts.job.last_lines}
    is_own = None if pid is None or not str(pid).isdigit() else int(str(pid)) in own
    if is_own is False and len(facts.job.ranks_seen) != facts.job.world_size:
        is_own = None
    hosts = hosts_meant(facts, [notice])
    is_here = True if hosts else None if _named_host(line.text) is None else False
    if is_own and is_here:
        is_here = own[int(str(pid))] in hosts
    # A source with lines of NCCL or PyTorch is output of the job.
    of_torch = (other for other in facts.job.notices if other.production.startswith("torch/"))
    outputs = {source.name for source in facts.job.sources if source.nccl_lines}
    is_now: bool | None = line.source in outputs.union(one.source for other in of_torch for one in other.evidence)
    if not is_now:  # printed within a day of the last lines of the job?
        texts = [last.time for last in facts.job.last_lines if last.time]
        others = (other for other in facts.job.notices if not other.production.startswith("kernel/"))
        near = [is_near(line.text, text) for text in texts or [other.evidence[-1].text for other in others]]
        is_now = True in near if set(near) - {None} else None
    is_gpu = bool(ranks_meant(facts, [notice]))
    is_own = is_own or (None if is_gpu else is_own)  # containers have process ids of their own
    if False in (is_own, is_here, is_now):
        return "possible"
    if is_own and (is_gpu or value(notice, "bus_id") is None):
        return "certain" if hosts or not is_gpu else "likely"
    return "likely" if is_own or is_now or is_gpu else "possible"


def names_rank(facts: Facts, notices: Iterable[Notice]) -> bool:
    """Return whether a line that is surely about this job has the pid of a rank, as none has in pods."""
    sure = {value(notice, "pid") for notice in notices if confidence(facts, notice) != "possible"}
    return any(last.process.pid in sure for last in facts.job.last_lines if last.ranks)


def is_near(line: str, other: str) -> bool | None:
    """Return whether two lines were printed within a day of each other, in any year; None if one has no date."""
    matches = filter(None, map(_STAMP.match, (line, other)))
    times = [when for match in matches if (when := moment(match[1] or match[2]))]
    if len(times) < 2:
        return None
    first, second = (datetime.fromtimestamp(when.seconds, UTC).replace(year=2000).timestamp() for when in times)
    gap = abs(first - second)
    return min(gap, _YEAR - gap) <= _DAY


def _named_host(line: str) -> str | None:
    return match[1] if (match := KERNEL_HOST.match(line)) else None


def hosts_meant(facts: Facts, notices: Iterable[Notice]) -> set[str]:
    """Return the hosts of the job that lines of kernel logs are about: by their syslog prefix, else the file name."""
    return {host for notice in notices for host in _hosts(facts, notice)}


def ranks_meant(facts: Facts, notices: Iterable[Notice]) -> set[int]:
    """Return the ranks that use a GPU named by the driver; without a host, that of the only process with the pid."""
    from nccl_inspect.judging.evidence.settled import rank_of  # most jobs have no such line

    ranks = set[int]()
    for notice in (notice for notice in notices if value(notice, "bus_id")):
        hosts = _hosts(facts, notice)
        if not hosts and _named_host(notice.evidence[0].text) is None:
            pid = str(value(notice, "process"))
            having = [last.process.host for last in facts.job.last_lines if str(last.process.pid) == pid]
            hosts = set(having) if len(having) == 1 else set()
        ranks.update(rank for host in hosts for rank in rank_of(facts, host, str(value(notice, "bus_id")), None))
    return ranks


def _hosts(facts: Facts, notice: Notice) -> set[str]:
    """Return all hosts that printed the same line."""
    from nccl_inspect.artifacts import joining  # most logs have no line of the driver

    job_hosts = joining.hosts_of(tuple(facts.hosts()))
    hosts = set(notice.hosts)
    for line in notice.evidence:
        named = _named_host(line.text)
        hosts.add((job_hosts.match_host(named) if named else job_hosts.find_host(line.source)) or "")
    return hosts & set(job_hosts.names)
