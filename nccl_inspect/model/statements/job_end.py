"""Which lines prove that a log goes on to the end of the job: a log that was merely cut looks like one that hangs.

Only what launchers, shells, schedulers and PyTorch's watchdog really print counts; words such as ``timeout=1800`` or
``exited with code 0`` in the output of a program prove nothing.
"""

from __future__ import annotations

from nccl_inspect.event.types import CollectiveTimeout, Event
from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes

_WIDTH = 400
"""Bytes that are shown of such a line."""


def end_text(line: bytes, wrapped: bool) -> bytes | None:
    """Return what a line that is not NCCL's says of the end of the job, without what stands around it, or None.

    Args:
        line: as it stands.
        wrapped: whether lines of the log are in envelopes.
    """
    grammar = engine.load_grammar()
    for text in envelopes.texts(line) if wrapped else [line]:
        if grammar.parse_foreign(text, grammar.last):
            return text[:_WIDTH]
    return None


def is_end(event: Event | None) -> bool:
    """Return whether a statement shows that the processes of a job have ended."""
    return event is not None and (engine.has_role(event, "ends-job") or isinstance(event, CollectiveTimeout))
