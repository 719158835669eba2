"""Classification of single statements: errors, or reports that only pass an error on."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from functools import cache
from pathlib import Path as File
from typing import Any

from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.model.evidence import positions_in
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job, Notice
from nccl_inspect.model.statements import job_failure
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import encode

FLUSHED = 5  # the status of transfers that were aborted because an earlier one failed
EXTERNAL = (-signal.SIGTERM, -signal.SIGINT)  # signals with which launchers and users end processes that did not fail
NIC_FIELDS = ("device", "hca", "name")  # fields of messages that name a NIC
_NO_REPORT = events.ProcessEnded(order="own")
_RANK_PREFIX = compile_later(r"(?:^|[\s:])\[rank(\d{1,7})\](?=: |:\[)")
_NUMBER = compile_later(r"(?:Unknown error |error |errno )?(-?)(\d{1,3})")


@cache
def list_table(kind: str) -> dict[str, str]:
    """Return what a table of ``tables.txt`` says of each of its numbers or names, in order."""
    lines = File(__file__).with_name("tables.txt").read_text(encoding="utf-8").split("\n")
    own = (line.removeprefix(f"{kind} ").partition(":") for line in lines if line.startswith(f"{kind} "))
    return {key: words.strip() for key, _, words in own}


def notices_shown(notices: Iterable[Notice], finding: Finding) -> list[Notice]:
    """Return the statements with a line in the evidence of a finding."""
    lines = positions_in(finding.evidence)
    return [notice for notice in notices if not lines.isdisjoint(positions_in(notice.evidence))]


def is_error(notice: Notice) -> bool:
    """Return whether a statement reports that something went wrong."""
    event, name = notice.event, notice.production
    if ("probe" in notice.roles and notice.level == "INFO") or job_failure.is_shutting_down(event):
        return False
    if event is None or isinstance(event, events.CudaFailure):
        return notice.level == "WARN"  # unknown to the grammar, or at INFO NCCL continues without it
    if isinstance(event, events.CollectiveTimeout):
        return True
    if getattr(event, "tone", "info") != "error":
        return False
    if name.startswith("nccl/ib-"):
        return bool(value(notice, "status") != FLUSHED)
    if name == "nccl/proxy-socket-failed":
        # A helper thread stopped accepting connections because its communicator ended (src/proxy.cc), and prints
        # whatever errno an earlier call left; if accept() really failed, src/misc/socket.cc warns.
        return value(notice, "error") not in ("Resource temporarily unavailable", "Success")
    if name == "kernel/xid":
        return gpu_fault(notice) is not None
    # PyTorch may retry what its store only logs, and raises an error when it gives up.
    return "logged-retry" not in notice.roles or "Error: " in str(value(notice, "_head"))


def is_survived(notice: Notice, job: Job) -> bool:
    """Return whether NCCL continued despite an error, as connections show."""
    return "survivable" in notice.roles and bool(job.paths)


def gpu_fault(notice: Notice) -> str | None:
    """Return the hardware fault of a GPU in the kernel log; None for an Xid that programs cause or was repaired."""
    if notice.production != "kernel/xid":
        return None
    xid = value(notice, "xid")
    text = str(value(notice, "text"))
    if xid in range(144, 151):  # of units of NVLink 5
        return "fatal NVLink error" if "Fatal" in text else None
    if xid == 154:  # the recovery action of the GPU changed
        wanted = text.rpartition("(")[2].rstrip(")")
        return f"the driver asks for: {wanted}" if wanted not in ("", "None") else None
    return list_table("xid").get(str(xid))


def is_forced(notice: Notice) -> bool:
    """Return whether a statement says that processes were ended from outside: that is not a failure of theirs."""
    is_external = isinstance(notice.event, events.ProcessEnded) and notice.event.is_external
    return is_external or "forced-end" in notice.roles


def is_propagated_error(notice: Notice) -> bool:
    """Return whether a statement only passes an error on."""
    return "propagated-error" in notice.roles


def value(notice: Notice, name: str) -> Any:
    """Return a field of a statement; None if it has no such field."""
    if not isinstance(notice.event, events.Notice):
        return None
    if name.startswith("__"):
        production = engine.load_grammar().find(notice.event.dialect, notice.event.production)
        found: Any = ((production and production.read(encode(notice.event.message))) or {}).get(name)
    else:
        found = dict(notice.event.values).get(name)
    if name != "error" or not isinstance(found, str) or not found[-1:].isdigit():
        return found
    # An error of the system may be a mere number: -110, error 111. Results of NCCL are below 8.
    match = _NUMBER.fullmatch(found)
    is_errno = match is not None and bool(match[1] or int(match[2]) >= 8)
    return list_table("errno").get(str(int(match[2])), found) if match and is_errno else found


def layer_of(notice: Notice) -> Layer:
    """Return the layer of failure that the grammar states of a statement, or that follows from roles and tone."""
    dialect, _, name = notice.production.partition("/")
    return engine.find_layer(dialect, name)


def states_layer(notice: Notice) -> bool:
    """Return whether the grammar states the layer of a statement itself."""
    dialect, _, name = notice.production.partition("/")
    return bool(engine.find_details(dialect, name).layer)


def error_of(notice: Notice) -> str:
    """Return the error that a statement names, as printed by CUDA, NCCL or the system; empty if none."""
    return str(value(notice, "error") or getattr(notice.event, "error", None) or "")


def message_of(notice: Notice) -> str:
    """Return the text of a statement without prefixes of collectors."""
    return notice.event.message if notice.event else notice.message


def find_text(notice: Notice) -> str:
    """Return what a line of another program says, but its place in the source and what is always in front."""
    text = str(value(notice, "text") or message_of(notice)).strip()
    return text.removeprefix("what():").removeprefix("NET/OFI").strip()


def rank_prefix(notice: Notice) -> int | None:
    """Return the rank in PyTorch's prefix ``[rank3]:``, which may follow that of a collector."""
    return find_rank(notice.message)


def find_rank(text: str) -> int | None:
    """Return the rank in such a prefix of a line."""
    match = _RANK_PREFIX.search(text)
    return int(match[1]) if match else None


def report_of(notice: Notice) -> events.ProcessEnded:
    """Return the report of the end of a process in a statement; an empty one for any other statement."""
    return notice.event if isinstance(notice.event, events.ProcessEnded) else _NO_REPORT
