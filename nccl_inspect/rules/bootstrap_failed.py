"""Bootstrap failed for a reason other than an unreachable peer."""

from collections.abc import Iterator

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.check import Facts, Hit, Notice, value
from nccl_inspect.judging.connecting import (
    NO_ROUTE,
    REFUSED,
    failed_connections,
    has_built_communicator,
    link_local_refused,
)
from nccl_inspect.judging.facts import ranks_concerned
from nccl_inspect.judging.networks.fabrics import network_mismatches
from nccl_inspect.judging.networks.interfaces import NO_FAMILY, without_family
from nccl_inspect.judging.statements import error_of

_CALLS = ("socket", "bind", "listen", "accept", "getsockname", "getsockopt", "setsockopt", "fcntl")
"""Those on sockets; others concern shared memory, files and threads."""
_BOOTSTRAP, _SOCKETS = "bootstrap.", "socket."
_STOPPED = 3
"""What sockets return if the program aborts the communicator that waits for them (src/misc/socket.cc)."""
_CALLERS = ("init.", "group.", "enqueue.", "collectives.")
"""A frame of these files means that the error reached NCCL's caller, which reports it as well."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find bootstrap errors, except those that only show that a peer is gone (see peer-death)."""
    is_built = has_built_communicator(facts)
    if errors := _find_errors(facts, is_built=is_built):
        named = {
            "working": is_built and not facts.job.failed,
            "other family": NO_FAMILY in error_of(errors[0]),
        }
        yield Hit(errors, named, ranks=ranks_concerned(facts, errors, "rank"))
    elif not is_built and (frames := _find_frames(facts)):
        yield Hit(frames, {"frame": frames[-1].message.partition(" ->")[0]})


def _find_errors(facts: Facts, *, is_built: bool) -> list[Notice]:
    calls = [notice for notice in facts.notices("nccl/system-call-failed") if value(notice, "call") in _CALLS]
    links = [] if is_built else link_local_refused(facts)  # for bootstrap-wrong-interface
    lost = set(map(id, [*failed_connections(facts, *REFUSED, *NO_ROUTE), *links]))
    # For mixed-networks and bootstrap-no-interface.
    judged = set(map(id, [*network_mismatches(facts), *without_family(facts)]))
    connections = [notice for notice in failed_connections(facts) if id(notice) not in lost]
    system = [] if is_built else [*facts.with_role("socket-refused"), *calls]
    errors = [*facts.errors_of_rule("bootstrap-failed"), *connections, *system]
    return [notice for notice in errors if id(notice) not in judged]


def _find_frames(facts: Facts) -> list[Notice]:
    """Find frames of the bootstrap, if no line says why it failed and none shows that the error reached the caller."""
    frames = facts.with_event(ErrorCascade)
    files = [frame.event.file.rpartition("/")[2] for frame in frames if isinstance(frame.event, ErrorCascade)]
    codes = {frame.event.code for frame in frames if isinstance(frame.event, ErrorCascade)}
    set_up = (_BOOTSTRAP,) if codes == {_STOPPED} else (_BOOTSTRAP, _SOCKETS)
    is_judged = (
        any(notice.level == "WARN" for notice in facts.job.notices)
        or any(comm.completed for comm in facts.job.communicators)
        or facts.errors(forced_ends=False)
        or any(file.startswith(_CALLERS) for file in files)
    )
    return frames if not is_judged and any(file.startswith(set_up) for file in files) else []
