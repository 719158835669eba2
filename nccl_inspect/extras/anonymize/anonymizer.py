"""The same log without names: hosts, pods, users, addresses, paths and identifiers are replaced, always by the same.

A log is read twice. The first reading learns names where their meaning is known: the host of a prefix, the label that a
collector states, fields of messages, keys of JSON, home folders. The second one replaces them wherever they stand, and
addresses, paths, URLs and tokens by their shape. Torn lines are put together first; lines come out whole. Exports stay
exports: their lines are read as every command reads them, and the text around those is kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from nccl_inspect.event.types import EnvSetting, Event
from nccl_inspect.extras.anonymize.learning import Learned, words
from nccl_inspect.extras.anonymize.names import ACCOUNTS, LIBRARIES, Names, expand, is_plain, message_words, split_hosts
from nccl_inspect.extras.anonymize.text import FileNames, Remains, Scrubber, is_distinct
from nccl_inspect.grammar import engine
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.exports import record_lines
from nccl_inspect.ingest.exports.record_lines import Reader
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.blocks import Lines, Source
from nccl_inspect.ingest.sources.streams import BLOCK, HEAD, Pieces, peeked
from nccl_inspect.scanning.counts import Counts, Text
from nccl_inspect.scanning.excerpts import Short
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util.secrets import MASK
from nccl_inspect.util.text import decode, encode

_BETWEEN = re.compile(rb"(\r?\n|(?<=[}\]]),|(?<!\\)(?:\\\\)*(?:\\r)?\\n)")
"""What ends every name and message: line ends, in letters too, and the commas between objects and lists."""
_MOST_BYTES = 8 * BLOCK
"""Bytes without such a place; more are cut anywhere."""


class Part(NamedTuple):
    """A part of a log."""

    pieces: list[bytes]
    """The text, cut so that each piece holds at most one line."""
    end: bytes
    """What comes after each piece."""
    lines: Lines
    """The lines in it, as every other command reads them."""


def log_parts(source: Source) -> Iterator[Part]:
    """Yield a source part by part.

    Raises:
        NoInputError: it cannot be read, or not to its end; what came before that was given.
    """
    head, data = peeked(blocks.raw_blocks(source), record_lines.tells)
    reader = record_lines.reader_of(head[:HEAD])
    if reader is None or not record_lines.may_be_export(head):
        for lines in blocks.cut(data) if reader is None else record_lines.read(reader, data):
            yield Part([*envelopes.spelled_out(lines.lines, lines.text)], b"\n", lines)
    else:
        yield from _export_parts(reader, data)


def _export_parts(reader: Reader, data: Pieces) -> Iterator[Part]:
    rest, total = b"", 0
    for piece in data:
        *pieces, rest = _BETWEEN.split(rest + piece)
        if len(rest) > _MOST_BYTES:
            pieces, rest = [*pieces, rest], b""
        lines = [entry.line for entry in reader.feed(piece)]
        yield Part(pieces, b"", _numbered_lines(lines, total, len(piece)))
        total += len(lines)
    yield Part([rest], b"", _numbered_lines([entry.line for entry in reader.finish()], total, 0))


def _numbered_lines(lines: list[bytes], before: int, size: int) -> Lines:
    numbers = range(before + 1, before + len(lines) + 1)
    return Lines(lines, size, Mended(numbers, before + len(lines)))


_MAX_REMEMBERED = 100_000
_FEW, _MANY = 3, 10
"""Lines of a process whose name is damaged, and of one that is not."""
_HOST_FIELDS = {"node", "nodes", "host", "hostname", "address"}
_HOST_DIALECTS = {"launchers", "torch", "nccl-tests", "frameworks"}
"""Where a node is a host; in NCCL's own messages it is a GPU, NIC or bridge of the topology."""
_IDENTIFIERS = {"guid": "guid", "serial": "guid", "uuid_high": "guid", "uuid_low": "guid"}
_NUMBERS = {"lid", "interface_hex"}
"""Numbers that are the same for a port of InfiniBand wherever it is named."""
_HOST_SETTINGS = {"NCCL_HOSTID", "NCCL_COMM_ID"}
_PRINTERS = re.compile(rb"(?<![\w.-])([A-Za-z0-9_][\w.-]{0,250}):\d{1,10}:\d{1,10} (?:\[-?\d{1,10}\] |NCCL )")
"""The hosts of lines of which nothing else can be read."""
_LABEL = re.compile(r"[A-Za-z]{4,}")
_HEXADECIMAL = re.compile(r"[a-f]+")


class Anonymizer:
    """Learns names, then replaces them.

    Args:
        names: the table, which may hold some already.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self._hosts: set[str] = set()
        self._labels: set[str] = set()
        self._learned = Learned()
        self._printed: dict[tuple[str, int], int] = {}
        """Lines of each process, by host and pid."""
        self._doubtful: set[str] = set()
        """What looks like hosts, before which a line may have been torn."""
        self._grammar = engine.load_grammar()
        self._scanner = Scanner(self._grammar)
        self._counts = Counts()
        self.lines_read = 0
        self.nccl_lines = 0
        """Those of NCCL, and of programs that tell something about it."""
        self._objects: set[str] = set()
        self._secrets: set[str] = set()
        self.scrubber = Scrubber(names)
        self._remains = Remains(names)
        self._heads: dict[bytes, bytes] = {}
        self._rests: dict[bytes, bytes] = {}
        self._clean: dict[str, str] = {}
        """Texts of evidence, which come again and again, without what is left of names."""

    # --- first reading ------------------------------------------------------------------------------------------

    def learn_from(self, source: Source) -> None:
        """Take names out of a source.

        Raises:
            NoInputError: it cannot be read, or not to its end.
        """
        self._counts = Counts()
        short = Short()
        try:
            for part in log_parts(source):
                text = part.lines.text if part.end else b"".join(part.pieces)
                self._learned.learn(text)
                damaged = self._counts.damaged_lines
                self._scanner.scan(part.lines.lines, self._counts, self._learn_line, part.lines.mended)
                if self._counts.damaged_lines > damaged:
                    self._doubtful.update(decode(match[1]) for match in _PRINTERS.finditer(text))
                short.add(part.lines)
            for line in short.read(source.name, self._counts, self._grammar):
                self._learn_line(*line)
        finally:
            self.lines_read += self._counts.lines
            self.nccl_lines += self._counts.nccl_lines + self._counts.related_lines

    def _learn_line(self, _number: int, origin: Origin, text: Text) -> None:
        if origin.head and not prefix.is_masked(origin.process):
            key = origin.process.host, origin.process.pid
            self._printed[key] = self._printed.get(key, 0) + 1
        if origin.label:
            self._labels.update(words(origin.label))
        if text.parsed and (text.parsed.kind is EnvSetting or text.parsed.production.dialect in _HOST_DIALECTS):
            self._learn_message(text.parsed)

    def _learn_message(self, parsed: Parsed) -> None:
        event: Event = parsed.event
        if isinstance(event, EnvSetting):
            if event.name in _HOST_SETTINGS:
                self._hosts.update(word for word in words(event.value) if not is_plain(word))
            return
        for name, value in (parsed.production.read(parsed.message) or {}).items():
            if name in _HOST_FIELDS and isinstance(value, str):
                self._hosts.update(word for host in split_hosts(value) for word in words(host))

    def learn_text(self, text: bytes) -> None:
        """Collect names from a text that is not a log."""
        self._learned.learn(text)

    def learn_names(self, meaning: str, names: Iterable[str]) -> None:
        """Take names whose meaning is known.

        Args:
            meaning: ``host``, ``user``, ``secret``, ``object`` (others are made from its name) or another name.
        """
        by_meaning = {
            "host": self._hosts,
            "user": self._learned.users,
            "object": self._objects,
            "secret": self._secrets,
        }
        by_meaning.get(meaning, self._labels).update(names)

    def remove_names(self, text: str) -> str:
        """Return a text without the names still left in it."""
        if text not in self._clean:
            if len(self._clean) >= _MAX_REMEMBERED:
                self._clean.clear()
            self._clean[text] = decode(self._remains.replace_names(encode(text)))
        return self._clean[text]

    def settle(self) -> None:
        """Give each name its replacement: the first reading is over."""
        for (host, pid), lines in self._printed.items():
            # Not those with other text in front: ``loss 0.5node-1:11:11 [0] NCCL INFO …``.
            ends = (self._printed.get((host[at:], pid), 0) for at in range(1, len(host)))
            if lines > _FEW or max(ends, default=0) <= _MANY:
                self._hosts.add(host)
        suffixes = tuple(self._hosts)
        self._hosts |= {name for name in self._doubtful if not name.endswith(suffixes)}
        self._hosts |= set(filter(is_distinct, self._learned.hosts))
        hosts = {name for name in self._hosts if not name.isdigit() and not _is_address(name)}
        listed = self._find_brackets(hosts)
        hosts.update(*listed.values())
        domains = {name: domain for name in hosts if (domain := _domain_of(name))}
        hosts |= {name.partition(".")[0] for name in domains}
        users = {name for name in self._learned.users if name.lower() not in ACCOUNTS} - hosts
        labels = {name for name in self._labels | self._learned.labels | self._objects if not _is_address(name)}
        labels |= {expression.partition("[")[0] for expression in listed}
        labels |= {word for name in labels | hosts for word in _LABEL.findall(name) if not _HEXADECIMAL.fullmatch(word)}
        labels -= LIBRARIES
        labels -= {
            form for name in labels for form in (name.upper(), name.capitalize()) if form != name == name.lower()
        }
        labels = {name for name in labels if not is_plain(name) and name.lower() not in message_words()}
        before = {name for entries in self.names.table.values() for name in entries}
        self.names.settle("host", hosts - domains.keys())
        self.names.settle("user", users)
        self.names.settle("name", labels - hosts - users)
        self.names.settle(
            "domain",
            {".".join(parts[at:]) for parts in map(_split_labels, domains.values()) for at in range(len(parts) - 1)},
        )
        self._join(((hosts - domains.keys()) | (labels & self._objects)) - before)
        for name in sorted(domains):
            short, _, domain = name.partition(".")
            self.names.put("host", name, f"{self.names.get('host', short)}.{self.names.get('domain', domain)}")
        self.names.settle("cloud", self._learned.accounts)
        self.names.settle("secret", self._secrets - {"", MASK})
        self.scrubber.refresh()
        self._remains = Remains(self.names)

    def _join(self, names: Iterable[str]) -> None:
        """Give the replacement of a derived name the replacement of its object as a prefix.

        Pods and hosts are named after their job: ``llama-0``, ``llama``.
        """
        for name in sorted(names, key=len):
            parts = name.split("-")
            fronts = ("-".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
            front = next((front for front in fronts if front in self._objects), None)
            if front:
                replacement = self.names.table["host"].get(front) or self.names.table["name"].get(front) or front
                self.names.extend("host" if name in self.names.table["host"] else "name", name, f"{replacement}-")

    def _find_brackets(self, hosts: set[str]) -> dict[str, list[str]]:
        """Return expressions in brackets that stand for a known host, among others, with all that they stand for."""
        hosts_known = hosts | {name.partition(".")[0] for name in hosts}
        ordered, lists = sorted(hosts_known), {}
        for expression in self._learned.expressions:
            stem = expression.partition("[")[0]
            at = bisect_left(ordered, stem)
            if at < len(ordered) and ordered[at].startswith(stem):  # one of the known hosts begins so
                lists[expression] = expand(expression)
        return {expression: names for expression, names in lists.items() if not hosts_known.isdisjoint(names)}

    # --- second reading -----------------------------------------------------------------------------------------

    def blocks(self, source: Source) -> Iterator[bytes]:
        """Yield whole lines of a source with everything replaced, as they come.

        Raises:
            NoInputError: it cannot be read, or not to its end; what came before that was given.
        """
        for part in log_parts(source):
            yield self._remains.replace_names(b"".join([self.line(piece) + part.end for piece in part.pieces]))

    def line(self, line: bytes) -> bytes:
        """Return a line with everything replaced."""
        parts = prefix.split(line)
        if parts is None:
            return self._message(line, self._grammar.parse_bare(line))
        head, rest = parts
        return self._remember(self._heads, head, self._head) + b" NCCL " + self._remember(self._rests, rest, self._rest)

    def file_name(self, name: str) -> str:
        """Return the name of a file within a folder: known names in it are replaced, and all that is not plain."""
        return FileNames(self.scrubber).new_name(name)

    @staticmethod
    def _remember(memory: dict[bytes, bytes], key: bytes, make: Callable[[bytes], bytes]) -> bytes:
        try:
            return memory[key]
        except KeyError:
            if len(memory) >= _MAX_REMEMBERED:
                memory.clear()
            memory[key] = make(key)
            return memory[key]

    def _head(self, head: bytes) -> bytes:
        """Replace in the text before ``NCCL``: here short common words count as names as well."""
        return encode(self.scrubber.text(decode(head), structural=True))

    def _rest(self, rest: bytes) -> bytes:
        level, blank, message = rest.partition(b" ")
        return level + blank + self._message(message, self._grammar.parse(message))

    def _message(self, message: bytes, parsed: Parsed | None) -> bytes:
        """Replace in a message; where the grammar knows it only its values change, and never its words."""
        text = decode(message)
        if parsed is not None:
            match = parsed.production.match(message)
            assert match is not None
            shape = parsed.production.shape
            values = shape.values(match)
            new: dict[str, Any] = {name: self._value(name, value) for name, value in values.items()}
            if values == new:
                return message
            taken = shape.options_taken(match)
            if shape.write(values, taken) == text:
                return encode(shape.write(new, taken))
        return encode(self.scrubber.text(text))

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._value(name, item) for item in value)
        if isinstance(value, int) and name.rstrip("0123456789") in _NUMBERS and value:
            return int(self.names.get("guid", f"0x{value:x}"), 16)
        if not isinstance(value, str):
            return value
        if name in _IDENTIFIERS:
            return value if not value.strip("0x:") else self.names.get(_IDENTIFIERS[name], value)
        return self.scrubber.text(value)


def _domain_of(host: str) -> str:
    """Return the domain of a host that is called by its whole name, in words."""
    parts = _split_labels(host)
    return "" if len(parts) < 3 or any(part.isdigit() for part in parts) else ".".join(parts[1:])


def _split_labels(name: str) -> list[str]:
    return name.split(".")


def _is_address(name: str) -> bool:
    return re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", name) is not None
