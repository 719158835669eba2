"""GPUDirect-TCPX or TCPXO times out while waiting for its receive daemon or for a peer."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Facts, Notice, value
from nccl_inspect.judging.facts import hosts_in
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import message_of

_PLUGINS = ("NET/FasTrak", "NET/GPUDirectTCPX")
_RETURNS = "tcpxResult_t"
"""TCPX prints the signature of a function where other warnings have their source location."""
_TIMED_OUT = ("timed out", "timeout", "deadline exceeded")
_OF_DAEMON = ("daemon-ends", "daemon-gone")
_WAITS, _ABORTED = "tcpxo/fastrak-rxdm-not-ready", "tcpxo/fastrak-init-failed"
_ABORTS = ("DEADLINE_EXCEEDED: ", "connect() error", "receive() error")


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find a daemon that does not become ready or ends, and warnings about timeouts.

    The TCPX plugin is recognized by its texts only: its WARN about a timeout counts.
    """
    own = facts.with_role("daemon-ends")
    gone = [*facts.with_role("daemon-gone"), *google_plugins.aborted(facts, *_ABORTS)]
    late = [notice for notice in facts.job.notices if _is_timeout(notice)]
    ready = {process for notice in facts.notices("tcpxo/fastrak-rxdm-ready") for process in notice.processes}
    waiting = [one for one in facts.notices(_WAITS) if not one.processes or set(one.processes) - ready]
    works, is_failure = google_plugins.works(facts), bool(own or gone or late)
    ended = facts.job.failed or bool(facts.job.ended_by)
    if facts.is_over():
        yield Effects(gone)  # the daemon may end before the job
    if works and not facts.job.failed and (facts.is_over() or not is_failure):
        return
    if waiting and not is_failure and not ended:
        yield Hit(named={"open": True})
    elif notices := [*own, *gone, *late, *waiting]:
        where = {str(value(notice, "host")) for notice in gone if value(notice, "host")} or hosts_in(gone)
        nanos = value(late[0], "nanos") if late else None
        texts = [message_of(notice) for notice in gone]
        yield Hit(
            notices,
            {
                "own": _text(own[0]) if own else "",
                "gone": own or gone,
                "where": sorted(where),
                "late": _text(late[0]) if late else "",
                "waiting": waiting,
                "nanos": nanos and int(nanos) // 10**9,
                **({name: value(late[0], name) for name in ("peer", "interface", "what")} if nanos else {}),
                "seconds": max((int(value(notice, "seconds") or 0) for notice in waiting), default=0),
                "refused": any("111" in text or "refused" in text for text in texts) and not own,
                "works": works and not ended,
                "certain": own or facts.notices("tcpxo/fastrak-rxdm-timeout"),
                "fatal": ended or (is_failure and not works),
            },
        )


def _is_timeout(notice: Notice) -> bool:
    """Whether a peer does not answer; messages about the daemon or the machine do not count."""
    own = notice.message.startswith(_PLUGINS) or (notice.location or "").startswith(_RETURNS)
    own = own or notice.rule == "tcpx-timeout"
    if notice.level != "WARN" or not own or notice.rule not in ("", "tcpx-timeout"):
        return False
    if not notice.roles.isdisjoint(_OF_DAEMON) or notice.production in (_WAITS, _ABORTED):
        return False
    return any(phrase in notice.message.lower() for phrase in _TIMED_OUT)


def _text(notice: Notice) -> str:
    """The message without its head: the plugin's name and time, or the prefix of a line of the daemon."""
    mark = "] " if notice.production.startswith("tcpxo/rxdm-") else ": "
    return message_of(notice).partition(mark)[2].strip() or notice.message
