"""The same log without names: hosts, pods, users, addresses, paths and identifiers are replaced, always by the same.

A log is read twice. The first reading learns names where their meaning is known: the host of a prefix, the label that a
collector states, fields of messages, and the patterns of ``places.txt``, whose groups say what they find. The second
one replaces them wherever they stand, and addresses, paths, URLs and tokens by their shape. Torn lines are put together
first; lines come out whole.
Exports stay exports: their lines are read as every command reads them, and the text around those is kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from nccl_inspect.event.types import EnvSetting
from nccl_inspect.extras.anonymize import text as texts
from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.blocks import Lines, Source
from nccl_inspect.ingest.sources.streams import BLOCK, HEAD, peek
from nccl_inspect.scanning.excerpts import Short
from nccl_inspect.scanning.found import Counts, Text
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util.secrets import MASK, find_secrets, find_spans, list_hinted
from nccl_inspect.util.text import decode, encode, read_parts

_USERS, _HOSTS, _SUBJECTS, _OF_PROGRAMS = (
    texts.LISTS[f"keys-of-{what}"] for what in ("users", "hosts", "names", "programs")
)
_INNER = ("internal", "local", "corp", "lan", "intra")
_WORD = re.compile(r"[A-Za-z0-9_][\w.@-]*")
_PART_OF_KEY = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_OPENS = re.compile(r"(?:[|>][-+\d]*|-----)\s*$")  # the last of a line before a secret of many lines, in YAML or PEM
_LINE_END = re.compile(r"\n|\\n")
_NEAR, _KEY_LINES = 2, 60
"""Lines from the name of a secret to its end, and from the first to the last line of a private key."""
_FOLDER = re.compile(r"(?=(?:[-_]*[A-Za-z]){5})[A-Za-z_-]+")


@cache
def _load_places() -> dict[str, tuple[list[bytes], re.Pattern[bytes]]]:
    places = {}
    for name, text in read_parts(__file__, "places.txt").items():
        head, _, rest = text.partition("\n")
        signs, source = (head.split()[1:], rest) if head.startswith("if ") else ([""], text)
        places[name] = [sign.encode() for sign in signs], re.compile(source.encode(), re.VERBOSE | re.MULTILINE)
    return places


class Learned:
    """Names by what they are of: ``user``, ``host``, ``account``, ``secret``, or anything (``label``).

    A ``likely-host`` is a host unless its name is made of common words only, an ``expression`` stands for hosts if one
    of these is known, and from the name of an ``object`` others are made.
    """

    def __init__(self) -> None:
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        self._last_lines: list[str] = []

    def learn(self, text: bytes) -> None:
        """Take names out of a part of a log."""
        lowered = text.lower()
        for place, (signs, _) in _load_places().items():
            if not place.startswith("of-") and any(sign in lowered for sign in signs):
                self._learn_at(place, text)
        # Secrets, also those in the line before or behind that of their name, or of many lines.
        lines = [*self._last_lines, *decode(text).splitlines()]
        self._last_lines = lines[-_NEAR:]
        near = [False] * (len(lines) + _KEY_LINES)
        for at in list_hinted(lines):
            span = range(max(at - 1, 0), at + (_KEY_LINES if _OPENS.search(lines[at]) else _NEAR))
            near[span.start : span.stop] = [True] * len(span)
        if any(near):
            wanted = (line if is_near else "" for line, is_near in zip(lines, near, strict=False))
            for found in find_secrets("\n".join(wanted)):
                self.names["secret"].update(part.strip() for part in _LINE_END.split(found))

    def _learn_at(self, place: str, text: bytes) -> None:
        _, pattern = _load_places()[place]
        kinds = list(pattern.groupindex)
        for values in set(pattern.findall(text)):
            found = dict(zip(kinds, map(decode, values if len(kinds) > 1 else [values]), strict=True))
            for kind, value in found.items():
                if value:
                    self._learn_found(kind.rstrip("123"), value, found)

    def _learn_found(self, kind: str, value: str, beside: dict[str, str]) -> None:
        match kind:
            case "value":
                for kind in kinds_of_value(beside["key"]):
                    self.names[kind].update(words(value))
            case "label":
                self.names["label"].update(words(value))
            case "hosts":
                self.names["likely-host"].update(texts.split_hosts(value))
            case "command" | "launch":
                self._learn_at(f"of-{kind}", value.encode())
            case "domain":
                # Whose it is tells the name before its last part: acme of gpu-1.cluster.acme.internal.
                parts = value.split(".")
                if parts[-1] in _INNER and any(map(str.isdigit, parts[0])):
                    self.names["likely-host"].add(parts[0])
                is_public = value.lower() in texts.PUBLIC_HOSTS or ".".join(parts[-2:]).lower() in texts.PUBLIC_DOMAINS
                if not is_public and len(parts[-2]) > 3:
                    self.names["label"].add(parts[-2])
            case "target":
                if beside["site"] not in texts.PUBLIC_HOSTS and not texts.PUBLIC_PLACES.match(
                    f"{beside['site']}/{value}"
                ):
                    self._learn_path(f"/{value}/")
            case "path":
                self._learn_path(value)
            case "package":
                self._learn_package(value)
            case "user" | "account" | "expression":
                self.names[kind].add(value)

    def _learn_path(self, path: str) -> None:
        if path.startswith(texts.KEPT_ROOTS):
            return
        parts = path.split("/")
        packages = [at for at, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
        if packages:
            self._learn_package("".join(parts[packages[-1] + 1 : packages[-1] + 2]))
            parts = parts[: packages[-1]]
        folders = (part.removesuffix(".git") for part in parts[:-1])
        self.names["label"].update(filter(_FOLDER.fullmatch, folders))

    def _learn_package(self, name: str) -> None:
        if name not in texts.LIBRARIES and len(name) > 3 and "." not in name:
            self.names["label"].add(name)


@cache
def kinds_of_value(key: str) -> tuple[str, ...]:
    """Return what a key says that its value is: a user, a host and a label, only a label, or nothing of that."""
    parts = [part.lower() for part in _PART_OF_KEY.findall(key)]
    if not parts or (parts[0] in _OF_PROGRAMS and len(parts) > 1):
        return ()
    if "-".join(parts[-2:]) in _SUBJECTS:
        return ("label",)
    if len(parts) > 1 and parts[-1] in ("name", "id"):
        parts.pop()
    if parts[-1] in _USERS:
        return ("user",)
    if parts[-1] in _HOSTS:
        return "likely-host", "label"
    is_label = parts[0] == "kube" or not _SUBJECTS.isdisjoint((parts[-1], "-".join(parts[-2:])))
    return ("label",) if is_label else ()


def words(label: str) -> list[str]:
    """Return the names in a label: ``pod/llama-0/trainer``, ``ml › llama-0``."""
    parts = re.split(r"[\s/,=():›]+", label)
    return [word for word in parts if len(word) > 1 and _WORD.fullmatch(word) and not word.isdigit()]


# Both readings of a log

_BETWEEN = re.compile(rb"(\r?\n|(?<=[}\]]),|(?<!\\)(?:\\\\)*(?:\\r)?\\n)")
"""What ends every name and message: line ends, in letters too, and the commas between objects and lists."""
_MOST_BYTES = 8 * BLOCK  # bytes without such a place; more are cut anywhere
_MAX_REMEMBERED = 100_000
_FEW, _MANY = 3, 10  # lines of a process whose name is damaged, and of one that is not
_PRINTERS = re.compile(rb"(?<![\w.-])([A-Za-z0-9_][\w.-]{0,250}):\d{1,10}:\d{1,10} (?:\[-?\d{1,10}\] |NCCL )")
"""The hosts of lines of which nothing else can be read."""
_NEXT_LINES = re.compile(rb"\bvalue\b|[|>][-+\d]*\r?\n|-----BEGIN")
"""A secret may follow in other lines than that of its name."""
_QUAD = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_LABEL = re.compile(r"[A-Za-z]{4,}")
_HEXADECIMAL = re.compile(r"[a-f]+")


def log_parts(source: Source) -> Iterator[tuple[list[bytes], bytes, Lines]]:
    """Yield a source part by part: its text, cut so that each piece holds at most one line, and its lines.

    The text has pieces, and what comes after each of them; the lines are as every other command reads them. A
    NoInputError says that it cannot be read, or not to its end, after what came before that.
    """
    head, data = peek(blocks.raw_blocks(source), blocks.tells)
    reader = blocks.reader_of(head[:HEAD])
    if reader is None:
        for block in blocks.cut(data):
            yield [*envelopes.spelled_out(block.lines, block.text)], b"\n", block
        return

    def number_lines(lines: list[bytes], size: int) -> Lines:
        numbers = range(total + 1, total + len(lines) + 1)
        return Lines(lines, size, Mended(numbers, total + len(lines)))

    rest, total = b"", 0
    for piece in data:
        *pieces, rest = _BETWEEN.split(rest + piece)
        if len(rest) > _MOST_BYTES:
            pieces, rest = [*pieces, rest], b""
        lines = [entry.line for entry in reader.feed(piece)]
        yield pieces, b"", number_lines(lines, len(piece))
        total += len(lines)
    yield [rest], b"", number_lines([entry.line for entry in reader.finish()], 0)


class Anonymizer:
    """Learns names, then replaces them."""

    def __init__(self, names: texts.Names) -> None:
        self.names = names
        self.learned = Learned()
        self._printed: Counter[tuple[str, int]] = Counter()  # lines of each process, by host and pid
        self._doubtful: set[str] = set()  # what looks like hosts, before which a line may have been torn
        self._grammar = engine.load_grammar()
        self._scanner = Scanner(self._grammar)
        self.lines_read = 0
        self.nccl_lines = 0  # those of NCCL, and of programs that tell something about it
        self.scrubber = texts.Scrubber(names)
        self._remains = texts.Remains(names)
        # Prefixes, messages and texts of evidence come again and again.
        # Short common words count as names in the text before ``NCCL``
        self._head = lru_cache(_MAX_REMEMBERED)(lambda head: encode(self.scrubber.text(decode(head), structural=True)))
        self._rest = lru_cache(_MAX_REMEMBERED)(self._new_rest)
        self.remove_names = lru_cache(_MAX_REMEMBERED)(lambda text: decode(self._remains.replace_names(encode(text))))

    # First reading

    def learn_from(self, source: Source) -> None:
        """Take names out of a source; a NoInputError says that it cannot be read, or not to its end."""
        counts, short = Counts(), Short()
        try:
            for pieces, end, lines in log_parts(source):
                text = lines.text if end else b"".join(pieces)
                self.learned.learn(text)
                damaged = counts.damaged_lines
                self._scanner.scan(lines.lines, counts, self._learn_line, lines.mended)
                if counts.damaged_lines > damaged:
                    self._doubtful.update(map(decode, _PRINTERS.findall(text)))
                short.add(lines)
            for line in short.read(source.name, counts, self._grammar):
                self._learn_line(*line)
        finally:
            self.lines_read += counts.lines
            self.nccl_lines += counts.nccl_lines + counts.related_lines

    def _learn_line(self, _number: int, origin: prefix.Origin, text: Text) -> None:
        if origin.head and not prefix.is_masked(origin.process):
            self._printed[origin.process.host, origin.process.pid] += 1
        if origin.label:
            self.learned.names["label"].update(words(origin.label))
        if not (parsed := text.parsed):
            return
        hosts = self.learned.names["host"]
        if parsed.kind is EnvSetting:
            event = parsed.event
            if isinstance(event, EnvSetting) and event.name in texts.LISTS["settings-of-hosts"]:
                hosts.update(word for word in words(event.value) if not texts.is_plain(word))
        elif parsed.production.dialect in texts.LISTS["dialects-of-hosts"]:
            for name, value in (parsed.production.read(parsed.message) or {}).items():
                if name in texts.LISTS["fields-of-hosts"] and isinstance(value, str):
                    hosts.update(word for host in texts.split_hosts(value) for word in words(host))

    def settle(self) -> None:
        """Give each name its replacement: the first reading is over."""
        learned, table = self.learned.names, self.names.table
        objects, before = learned["object"], {name for entries in table.values() for name in entries}
        hosts = learned["host"]
        for (host, pid), lines in self._printed.items():
            # Not those with other text in front: ``loss 0.5node-1:11:11 [0] NCCL INFO …``
            if lines > _FEW or all(self._printed[host[at:], pid] <= _MANY for at in range(1, len(host))):
                hosts.add(host)
        suffixes = tuple(hosts)
        hosts |= {name for name in self._doubtful if not name.endswith(suffixes)}
        hosts |= set(filter(texts.is_distinct, learned["likely-host"]))
        hosts = {name for name in hosts if not name.isdigit() and not _QUAD.fullmatch(name)}
        # Expressions in brackets that stand for a known host, among others, with all that they stand for.
        known, listed = hosts | {name.partition(".")[0] for name in hosts}, dict[str, list[str]]()
        ordered = sorted(known)
        for expression in learned["expression"]:
            stem = expression.partition("[")[0]
            at = bisect_left(ordered, stem)
            if at < len(ordered) and ordered[at].startswith(stem):  # one of the known hosts begins so
                names = texts.expand(expression)
                listed |= {} if known.isdisjoint(names) else {expression: names}
        hosts.update(*listed.values())
        domains = {}  # of the hosts that are called by their whole names, in words
        for name in hosts:
            parts = name.split(".")
            if len(parts) > 2 and not any(map(str.isdigit, parts)):
                domains[name] = parts[1:]
        hosts |= {name.partition(".")[0] for name in domains}
        users = {name for name in learned["user"] if name.lower() not in texts.ACCOUNTS} - hosts
        labels = {name for name in learned["label"] | objects if not _QUAD.fullmatch(name)}
        labels |= {expression.partition("[")[0] for expression in listed}
        labels |= {word for name in labels | hosts for word in _LABEL.findall(name) if not _HEXADECIMAL.fullmatch(word)}
        labels -= texts.LIBRARIES
        labels -= {
            form for name in labels for form in (name.upper(), name.capitalize()) if form != name == name.lower()
        }
        labels = {name for name in labels if not texts.is_plain(name) and name.lower() not in texts.message_words()}
        self.names.settle("host", hosts - domains.keys())
        self.names.settle("user", users)
        self.names.settle("name", labels - hosts - users)
        ends = (".".join(parts[at:]) for parts in domains.values() for at in range(len(parts) - 1))
        self.names.settle("domain", ends)
        # Pods and hosts are named after their job (``llama-0``, ``llama``), and so are their replacements.
        for name in sorted(((hosts - domains.keys()) | (labels & objects)) - before, key=len):
            parts = name.split("-")
            fronts = ("-".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
            if front := next((front for front in fronts if front in objects), None):
                replacement = table["host"].get(front) or table["name"].get(front) or front
                category = "host" if name in table["host"] else "name"
                self.names.put(category, name, f"{replacement}-{table[category][name]}")
        for name in sorted(domains.keys() - table["host"].keys()):
            short, _, domain = name.partition(".")
            self.names.put("host", name, f"{self.names.get('host', short)}.{self.names.get('domain', domain)}")
        self.names.settle("cloud", learned["account"])
        self.names.settle("secret", learned["secret"] - {"", MASK})
        self.scrubber.refresh()
        self._remains = texts.Remains(self.names)

    # Second reading

    def blocks(self, source: Source) -> Iterator[bytes]:
        """Yield whole lines of a source with everything replaced, as they come, up to where it cannot be read."""
        for pieces, end, _ in log_parts(source):
            text = b"".join([self._line(piece) + end for piece in pieces])
            if _NEXT_LINES.search(text):
                text = encode(self.scrubber.hide_secrets(decode(text)))
            yield self._remains.replace_names(text)

    def _line(self, line: bytes) -> bytes:
        parts = prefix.split(line)
        if parts is None:
            return self._message(line, self._grammar.parse_bare(line))
        head, rest = parts
        return self._head(head) + b" NCCL " + self._rest(rest)

    def _new_rest(self, rest: bytes) -> bytes:
        level, blank, message = rest.partition(b" ")
        return level + blank + self._message(message, self._grammar.parse(message))

    def _message(self, message: bytes, parsed: engine.Parsed | None) -> bytes:
        """Replace in a message; where the grammar knows it only its values change, and never its words."""
        text = decode(message)
        match = parsed.production.match(message) if parsed is not None and not find_spans(text) else None
        if parsed is not None and match is not None:  # what lost its end is read, but no whole message
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
        if isinstance(value, int) and name.rstrip("0123456789") in texts.LISTS["fields-of-numbers"] and value:
            return int(self.names.get("guid", f"0x{value:x}"), 16)
        if not isinstance(value, str):
            return value
        if name in texts.LISTS["fields-of-guids"]:
            return self.names.get("guid", value) if value.strip("0x:") else value
        return self.scrubber.text(value)
