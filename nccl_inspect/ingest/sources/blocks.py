"""Opens what the user names (files, folders, archives, ``-``) and gives blocks of whole lines in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING

from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.lines.torn import LOOK_AHEAD, LineReader, Mended, Numbered, Rejoiner, is_torn, wrap_reader
from nccl_inspect.ingest.sources import compression, files, log_detection, streams
from nccl_inspect.ingest.sources.compression import Allowance
from nccl_inspect.ingest.sources.files import File, Input
from nccl_inspect.ingest.sources.streams import Pieces, StreamError
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import escape_controls, has_line_of

if TYPE_CHECKING:
    from nccl_inspect.ingest.sources.archives import Member

Progress = Callable[[int, int | None], None]
"""Account how many bytes were read (as stored, not as unpacked), and how many there are where that is known."""


class Source(Frozen):
    """One stream of log bytes."""

    name: str  # path, ``archive.tar.gz:path/in/it``, ``<stdin>``, ``<bytes>`` or ``<stream>``
    open: Callable[[], Pieces]
    """Gives the bytes as stored; those of an archive's member until the next source is asked for."""
    is_cut: bool = False  # whether it is some lines of a plain file that is not torn: bytes are taken as they are
    allowance: Allowance = field(default_factory=Allowance)  # how much its input may unpack to
    newest_first: bool = False  # whether it is read from its end


def find(inputs: Input | Sequence[Input], progress: Progress | None = None) -> Iterator[Source]:
    """Yield the sources that the inputs stand for, one after the other: read one before you ask for the next.

    A folder gives the logs in it, an archive its members that look like logs. What is missing or unreadable is a source
    as well: reading it raises the error.
    """
    inputs_found = files.find(inputs)
    total = files.size(inputs_found) if progress else None
    for file in inputs_found:
        yield from open_file(file, lambda size: progress(size, total) if progress else None)


def open_file(file: File, count: Callable[[int], None]) -> Iterator[Source]:
    """Yield the sources that a file stands for."""
    data = file.open() if file.again else streams.count_lengths(file.open(), count)
    allowance = Allowance()
    try:
        stored, data = streams.peek(data, log_detection.tells_archives)
        head, unpacked = streams.peek(compression.unpack_data(data, allowance), log_detection.tells_archives)
    except (StreamError, OSError) as error:
        yield Source(file.name, streams.failing(_problem(error)))
        return
    if log_detection.is_tar(head):
        from nccl_inspect.ingest.sources import archives  # few logs are in one

        if file.again:
            unpacked = compression.unpack_data(streams.count_lengths(file.open(), count), allowance)
        yield from _members(file, archives.read_tar(unpacked), allowance)
    elif log_detection.is_zip(head) and file.place is None and file.stream is None:
        problem = StreamError("a zip archive cannot be read from a pipe", "name the file, or use tar")
        yield Source(file.name, streams.failing(problem))
    elif log_detection.is_zip(head):
        from nccl_inspect.ingest.sources import archives  # few logs are in one

        allowance.take(file.size or 0)
        members = (
            m._replace(open=lambda m=m: streams.count_lengths(m.open(), allowance.give))  # type: ignore[misc]
            for m in archives.read_zip(file.place or file.stream, count)
        )
        yield from _members(file, members, allowance)
    else:
        again = file.open if compression.is_packed(stored) else lambda: unpacked
        yield Source(
            file.name,
            (lambda: streams.count_lengths(again(), count)) if file.again else lambda: unpacked,
            allowance=allowance,
        )


def _members(file: File, members: Iterator[Member], allowance: Allowance) -> Iterator[Source]:
    empty = True
    try:
        for member in members:
            if member.name in file.without:
                continue
            empty = False
            yield Source(f"{file.name}:{escape_controls(member.name)}", member.open, allowance=allowance)
    except (StreamError, OSError) as error:
        yield Source(file.name, streams.failing(_problem(error)))
        return
    if empty and not file.found:
        problem = StreamError("the archive holds no log", "give its members the suffix .log, or unpack it")
        yield Source(file.name, streams.failing(problem))


def _problem(error: StreamError | OSError) -> StreamError:
    if isinstance(error, StreamError):
        return error
    return StreamError(error.strerror or str(error), "check the file")


def raw_blocks(source: Source) -> Iterator[bytes]:
    """Yield the bytes of a source, unpacked by their first bytes, not by its name, in pieces of about a block.

    A NoInputError says that the data breaks off or cannot be read, after what came before that was given.
    """
    try:
        yield from (
            source.open()
            if source.is_cut
            else streams.as_utf8(compression.unpack_data(source.open(), source.allowance))
        )
    except (StreamError, OSError) as error:
        problem = _problem(error)
        raise NoInputError(f"{source.name}: {problem.what}", problem.hint) from None


class Lines:
    """Whole lines without their line ends, in one piece or one by one: whichever form a reader asks for is made then.

    Args:
        lines: in their order; left out where ``text`` holds them.
        size: bytes that they took in the source, with line ends and what was cut off.
        mended: where torn lines were put together, so that the lines do not simply follow each other.
        text: the lines with a line end between each two; at least one.
    """

    __slots__ = ("_lines", "_text", "mended", "size")

    def __init__(
        self, lines: Iterable[bytes] | None, size: int, mended: Mended | None = None, text: bytes | None = None
    ) -> None:
        self._lines = None if lines is None else list(lines)
        self._text = text
        self.size = size
        self.mended = mended

    @property
    def lines(self) -> list[bytes]:
        """Return each line separately."""
        if self._lines is None:
            self._lines = [] if self._text is None else self._text.split(b"\n")
        return self._lines

    @property
    def text(self) -> bytes:
        """Return all in one, with a line end between each two."""
        if self._text is None:
            self._text = b"\n".join(self.lines)
        return self._text

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.lines)

    def __bool__(self) -> bool:
        return self._lines is None or bool(self._lines)

    def __len__(self) -> int:
        return self._text.count(b"\n") + 1 if self._lines is None and self._text is not None else len(self.lines)


def cut(pieces: Iterator[bytes], look: int = LOOK_AHEAD) -> Iterator[Lines]:
    """Yield the lines in pieces of a source, as they come; torn ones are put together again.

    The first bytes show whether it is torn, as many as ``look`` says.
    """
    rest, size, seen, ends = b"", 0, 0, 0
    several = streams.grown(pieces)
    for taken in several:
        size += (new := sum(map(len, taken)))
        if seen < look and is_torn(text := b"".join((rest, *taken))):
            yield from read(Rejoiner(ends), chain([text], chain.from_iterable(several)), size)
            return
        seen += new
        *before, last = taken if b"\n" in taken[-1] else [b"".join(taken)]
        end = last.rfind(b"\n")
        if end < 0:
            rest = (rest + last)[: streams.BLOCK]
            continue
        text = b"".join((rest, *before, memoryview(last)[:end]))
        if has_line_of(text, streams.BLOCK + 1):
            text = b"\n".join([line[: streams.BLOCK] for line in text.split(b"\n")])
        if b"\r" in text and (b"\r\n" in text or text.endswith(b"\r")):
            text = b"\n".join([line.rstrip(b"\r") for line in text.split(b"\n")])
        whole = Lines(None, size, text=text)
        rest = last[end + 1 :][: streams.BLOCK]
        if seen < look:
            ends += len(whole)
        yield whole
        size = 0
    if rest:
        yield Lines([rest.rstrip(b"\r")], size)


# Exports: a line for each record, and the oldest first. Lines that are not consecutive in the source are numbered in
# the order of reading, and state where they are (Mended.stands).

_LOOK = 4096
MAX_TURNED = 64 << 20  # bytes of a source that is read from its end: all of it must be in memory
_TOO_LARGE = f"its newest line comes first, and it is too large to be turned round (more than {MAX_TURNED >> 20} MB)"
_SORT = "export it with the oldest line first: gcloud --order=asc, logcli --forward, Logs Insights | sort @timestamp"
_COLUMNS = frozenset(
    b"message @message textpayload jsonpayload.message logmessage logentry content _raw line log body msg".split()
)  # names of columns with log lines, in small letters: one of them is in the first line of a table


def records_of(source: Source, turned: bool = False, as_it_is: bool = False) -> Iterator[Lines | NoInputError]:
    """Yield the lines of a source, also those in an export, then the error that ended it if there was one."""
    try:
        if source.is_cut or as_it_is:
            yield from cut(raw_blocks(source), 0 if source.is_cut else LOOK_AHEAD)
            return
        head, data = streams.peek(raw_blocks(source), tells)
        reader = reader_of(head[: streams.HEAD], turned)
        lines = read(reader, data) if reader else cut(data)
        yield from _from_the_end(lines, source.name, reader is not None) if turned else lines
    except NoInputError as error:
        yield error


def reader_of(head: bytes, turned: bool = False) -> LineReader | None:
    """Return what reads a source that begins so; None where its lines are read as they stand."""
    if not may_be_export(head):
        return wrap_reader(head)
    from nccl_inspect.ingest.sources import exports  # few logs are such

    return exports.table_reader(head, turned) or exports.reader(head, turned)


def tells(head: bytes) -> bool:
    """Return whether these first bytes show if the source is an export."""
    return len(head) >= streams.HEAD or (head != b"" and not may_be_export(head))


def may_be_export(head: bytes) -> bool:
    """Return whether a source begins like a JSON document or a table; most logs only cost a look at the first line."""
    text = head[:_LOOK].lstrip()
    then = text[1:].lstrip()[:1]
    if text[:1] == b"[":
        return then in (b"", b"[", b"{", b'"')
    if text[:1] == b"{":
        return then in (b"", b'"')
    if text[:1] == b'"' and b"\\n" in text:
        return True  # a log in one string
    names = text.partition(b"\n")[0].lower()
    return any(name.strip(b'"\r') in _COLUMNS for mark in (b",", b";", b"\t") for name in names.split(mark))


def read(reader: LineReader, data: Pieces, first: int | None = None) -> Iterator[Lines]:
    """Yield the lines that a reader gives.

    Args:
        reader: takes the pieces.
        data: to read; if it breaks off, the lines before that are given.
        first: bytes of the first piece that were not counted before.
    """
    total, problem, piece = 0, None, b""
    while True:
        try:
            piece = next(data)
            entries = list(reader.feed(piece))
        except (StopIteration, NoInputError) as error:
            entries, first, problem = list(reader.finish()), 0, error
        yield number_lines(entries, total, len(piece) if first is None else first, reader)
        first, total = None, total + len(entries)
        if isinstance(problem, NoInputError):
            raise problem
        if problem:
            return


def number_lines(entries: list[Numbered], before: int, size: int, reader: LineReader) -> Lines:
    """Return the lines of a block with their numbers: where they begin, or in the order of reading."""
    stands, lines = (
        [entry.number for entry in entries],
        (entry.line[: streams.BLOCK].rstrip(b"\r") for entry in entries),
    )
    if isinstance(reader, Rejoiner):
        doubtful = [entry for entry in entries if entry.repaired or entry.cut]
        return Lines(lines, size, Mended(stands, reader.lines, reader.repaired, doubtful))
    numbers = range(before + 1, before + len(entries) + 1)
    return Lines(lines, size, Mended(numbers, reader.lines, stands=stands))


def _from_the_end(lines: Iterable[Lines], name: str, is_export: bool) -> Iterator[Lines]:
    """Yield the lines in the opposite order; a NoInputError says that there are too many."""
    gathered: list[tuple[Lines, Sequence[int]]] = []
    size = total = read = 0
    for block in lines:
        mended = block.mended or Mended(range(total + 1, total + len(block) + 1), total + len(block))
        gathered.append((block, mended.numbers if mended.stands is None else mended.stands))
        total = mended.lines
        size += block.size
        if size > MAX_TURNED:
            raise NoInputError(f"{name}: {_TOO_LARGE}", _SORT if is_export else f"tac {name} | nccl-inspect summarize")
    while gathered:
        block, stands = gathered.pop()
        numbers = range(read + 1, read + len(block) + 1)
        yield Lines(reversed(block.lines), block.size, Mended(numbers, total, stands=stands[::-1]))
        read += len(block)
