"""JSON objects that differ in their line and their time only, as collectors write one after the other.

One regular expression takes a block of them apart, so that the lines in them are read in columns. The form of the
objects comes from the envelope that reads one of them, and is proved by having it read another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix, timestamps
from nccl_inspect.ingest.lines.envelope_fields import ISO, Inner, Stated
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Frame
from nccl_inspect.scanning.columns import Columns, Split
from nccl_inspect.scanning.heads import Known
from nccl_inspect.util.text import decode, encode

_TIME = re.compile(ISO)
_NAME = prefix.MARK.lstrip()
_OTHER_LINE = b"a:1:1" + prefix.MARK + b"INFO b"
_OTHER_TIME = b"2001-02-03T04:05:06Z"
_END = b"\t"
"""What stands between the time of an object and its line."""
_MAX_TRIES = 20
"""Lines whose form is looked for; then a log has none."""


class RecordFrame(Frame):
    """What lines of the same prefix have in common inside JSON objects, each after the time of its object."""

    __slots__ = ()

    def at(self, head: bytes) -> Origin:
        """The origin of a line by the time of its object and its prefix."""
        return self.with_time(head[self.begin :])

    def with_time(self, time: bytes) -> Origin:
        """The same by the time; more bytes may follow it."""
        if self.stamp is None:
            return self.origin
        before, after = self.stamp
        return self.origin._replace(time=before + decode(time[: len(self.time)]) + after)


class Form(NamedTuple):
    """Objects that differ in their line and their time only."""

    pattern: re.Pattern[bytes]
    stated: Stated
    """But for the time."""

    def lines_in(self, block: bytes) -> bytes | None:
        """For each line of a block the time of the object and the line in it, nothing where it is something else.

        None where most lines are.
        """
        size = block.count(b"\n") + 1
        inner, fit = self.pattern.subn(rb"\g<time>%b\g<text>" % _END, block)
        if fit == size:
            return inner
        if fit * 2 < size:
            return None
        found = map(self.pattern.fullmatch, block.split(b"\n"))
        return b"\n".join(match["time"] + _END + match["text"] if match else b"" for match in found)


class Records:
    """Finds the objects of a log.

    Args:
        columns: reads the lines in them.
        known: what is known of the prefixes of these.
    """

    def __init__(self, columns: Columns, known: Known) -> None:
        self._columns = columns
        self._seen = known.seen
        self._known = Known(_unknown, lambda _: None, self._frame, lambda head: known.is_news(_own(head)))
        self._form: Form | None = None
        self._tries = 0

    def split(self, block: bytes, first: int) -> Split | None:
        """Read a block of objects; None where they have no form, or nothing can be read so.

        Args:
            block: lines with a line end between each two.
            first: the number of the first one.
        """
        inner = self._lines_in(block)
        split = self._columns.split(inner, first, True, self._known) if inner else None
        if split is None:
            return None
        lines = block.split(b"\n")
        return split._replace(left=[lines[place] for place in split.others])

    def _lines_in(self, block: bytes) -> bytes | None:
        inner = self._form.lines_in(block) if self._form else None
        if inner is None and self._tries < _MAX_TRIES and block[:1] == b"{":
            self._tries += 1
            self._form = form_of(block[: block.find(b"\n")])
            inner = self._form.lines_in(block) if self._form else None
        return inner

    def _frame(self, head: bytes) -> RecordFrame | None:
        """What is known of lines with this prefix."""
        (origin,) = self._seen([_own(head)])
        if origin is None or self._form is None or prefix.is_masked(origin.process):
            return None
        begin, end = timestamps.place(head)
        time = decode(head.partition(_END)[0])
        around = time[:begin], time[end:]
        stamp = around if origin.time is None else None  # the time that a line states itself is nearer
        origin = prefix.stated_by(origin, self._form.stated)
        return RecordFrame(origin, time[begin:end], begin, len(head) - end, stamp, is_proven=True)


def form_of(line: bytes) -> Form | None:
    """The form of an object; None where it is not that plain."""
    inners = envelopes.contents(line)
    if len(inners) != 1 or inners[0].stated.time is None:
        return None
    text, stated = inners[0]
    shown, time = b'"' + text.removesuffix(b"\n"), b'"%b"' % encode(stated.time or "")
    if not _TIME.fullmatch(time[1:-1]) or line.count(_NAME) != 1 or line.count(shown) != 1 or line.count(time) != 1:
        return None
    other = line.replace(shown, b'"' + _OTHER_LINE).replace(time, b'"%b"' % _OTHER_TIME)
    end = text[len(shown) - 1 :]
    if envelopes.contents(other) != [Inner(_OTHER_LINE + end, stated._replace(time=decode(_OTHER_TIME)))]:
        return None
    pattern = re.escape(line).replace(re.escape(shown), rb'"(?P<text>[^"\\\n]*)')
    pattern = pattern.replace(re.escape(time), b'"(?P<time>' + ISO + b')"')
    return Form(re.compile(rb"(?m)^" + pattern + rb"$"), stated._replace(time=None))


def _unknown(heads: Iterable[bytes]) -> Iterable[Origin | None]:
    return [None for _ in heads]


def _own(head: bytes) -> bytes:
    return head.partition(_END)[2]
