"""The same log without names: hosts, pods, users, addresses, paths and identifiers are replaced, always by the same.

A log is read twice. The first reading learns names where their meaning is known: the host of a prefix, the label that a
collector states, fields of messages, keys of JSON, home folders. The second one replaces them wherever they stand, and
addresses, paths, URLs and tokens by their shape. Torn lines are put together first; lines come out whole. Exports stay
exports: their lines are read as every command reads them, and the text around those is kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

from nccl_inspect.event.types import EnvSetting
from nccl_inspect.extras.anonymize.names import (
    ACCOUNTS,
    KEPT_ROOTS,
    LIBRARIES,
    LISTS,
    PUBLIC_DOMAINS,
    PUBLIC_HOSTS,
    PUBLIC_PLACES,
    Names,
    bracket_expressions,
    expand,
    is_plain,
    message_words,
    split_hosts,
    stated_lists,
)
from nccl_inspect.extras.anonymize.text import Remains, Scrubber, is_distinct
from nccl_inspect.grammar import engine
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.blocks import Lines, Source
from nccl_inspect.ingest.sources.streams import BLOCK, HEAD, peek
from nccl_inspect.scanning.counts import Counts, Text
from nccl_inspect.scanning.excerpts import Short
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util.secrets import MASK, find_secrets, find_spans, list_hinted
from nccl_inspect.util.text import decode, encode

# --- names in text ----------------------------------------------------------------------------------------------------

_USERS, _HOSTS, _SUBJECTS, _OF_PROGRAMS = (LISTS[f"keys-of-{what}"] for what in ("users", "hosts", "names", "programs"))
_NO_NAMES = frozenset(("tcp", "sha256", "o2ib", "plt"))
_KEYED = re.compile(
    rb"""(?<![\w./-])([A-Za-z_][\w./-]{1,80}+)(?:
    (\\?["']\s*:\s*\\?["'])(?=([^"'\\]{1,200}+))
    |(?:=["']?|:(?!//)|[ \t]{0,8}:[ \t]{1,8}(?=\S+\s*?$))
    ([A-Za-z0-9_][\w.@/-]{0,200}+(?:[ ][A-Z][a-z]{1,20}+(?=\s*?$))?)
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""A key and its value: in JSON, in Python, in the environment, in tags, in what Slurm and PyTorch print."""
_OPTION = re.compile(rb"(?<!\S)--([A-Za-z][\w-]{1,60}+)(?:=|\s{1,4})[\"']?([A-Za-z0-9][\w.@/-]{0,200}+)")
_COMMAND = re.compile(rb"(?:#SBATCH|\b(?:srun|sbatch|salloc|squeue|scancel|kubectl|oc))\s[^\n]{1,2000}")
_SHORT_OPTION = re.compile(rb"\s-([AJpunw])[ =]?([A-Za-z][\w.-]{0,100}+)")
_OBJECT = re.compile(
    rb"\b(?:pods?|jobs?|jobsets?|pytorchjobs?|svc|services?|deployments?|statefulsets?|namespaces?|nodes?|logs)"
    rb"(?:/|\s\\?\")([a-z0-9][a-z0-9.-]{2,250}+)"
)
"""``pods "llama-0"``, ``job/llama``."""
_SAID = re.compile(
    rb"(?:logged in as:?|queued for|(?:session \w{1,20}|password|publickey) for(?: user)?|[Ss]ession \d{1,12} of user"
    rb"|[Uu]ser(?:name)?:)\s['\"]?(?P<user>[A-Za-z_][\w.-]{0,60}+(?!:))(?:\s\((?P<entity>[\w.-]{1,100}+)\))?"
    rb"|(?:View run|Syncing run|kubectl logs|assigned) (?P<name>[A-Za-z0-9][\w./-]{1,250}+)"
    rb"(?: to (?P<node>[\w.-]{2,250}+))?"
    rb"|No module named '(?P<module>[\w.]{2,100}+)|-m (?P<started>[A-Za-z_][\w.]{2,100}+)"
)
_LOGIN = re.compile(
    rb"(?<![\w.@/+=-])([a-z_][\w.-]{0,31}+)@([A-Za-z][\w-]{0,62}+)"
    rb"(?=[\w.-]{0,200}+(?::[~/ ]|\s?[$#%](?:\s|$)|'s\b|\s|$))"
)
"""``ann@login01:~$``, ``scp ann@login01:/data``."""
_PODS = re.compile(rb"\[pod/([^/\]\s]{1,200})/([^\]\s]{1,200})\]")
_FILES = re.compile(rb"log[/.](?:containers|pods)[/.]([a-z0-9.-]{1,253})_([a-z0-9.-]{1,253})_([a-z0-9.-]{1,253})")
"""Pod, namespace and container in the name of a log of Kubernetes."""
_HOMES = re.compile(rb"(?:/(?:home|Users)/|\\Users\\{1,2})([A-Za-z_][\w.-]{0,60}+)")
_INNER = ("internal", "local", "corp", "lan", "intra")
_TOP = rb"\.(?:com|org|net|edu|gov|io|ai|cloud|dev|internal|local|corp|lan|intra|example)(?![\w-])(?!\.\w)"
_DOMAIN = re.compile(rb"(?<![\w.-])[\w-]{1,63}+(?:\.[\w-]{1,63}+){0,5}" + _TOP, re.IGNORECASE)
_DOMAIN_END = re.compile(_TOP, re.IGNORECASE)
"""To look for it alone takes a twentieth of the time."""
_BUCKET = re.compile(rb"\b(?:s3a?|gs|abfss?|wasbs?|r2|oss)://([\w.-]{2,200}+)|arn:[\w-]{1,12}:s3:::([\w.-]{2,200}+)")
_ARN = re.compile(rb"arn:[\w-]{1,12}:[\w-]{0,40}:[\w-]{0,20}:\d*:([\w/.:-]{2,300}+)")
_IMAGE = re.compile(
    rb"(?<![\w./-])(?:[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,6}(?::\d{1,5})?/)?((?:[a-z0-9][\w-]{1,100}+/){1,5})"
    rb"([a-z0-9][\w-]{1,100}+)(?:@sha256|:(?:v?\d|latest)[\w.-]{0,100})"
)
"""``nvcr.io/acme/nemo:24.05``, ``acme/train:1.2``."""
_ACCOUNT = re.compile(rb"(?<!\d)\d{12}(?=\.dkr\.ecr\b|:)|(?i:account[\w ]{0,20}[=: ]+)(\d{12})(?!\d)")
_PATH = re.compile(rb"/(?<![\w.>\])/]/)[\w.+@%=~#-]{1,100}+(?:/[\w.+@%=~#-]{1,100}+)++")
_ADDRESS = re.compile(rb"(?:://(?:[^\s/@]{1,200}+@)?|git@)([\w.-]{1,250}+)(?::\d{1,5}+)?[/:]([\w.@/+-]{2,300}+)")
_SIGNS: dict[re.Pattern[bytes], tuple[bytes, ...]] = {
    _OPTION: (b"--",),
    _COMMAND: (b"#SBATCH", b"srun ", b"sbatch ", b"salloc ", b"squeue ", b"scancel ", b"kubectl "),
    _SAID: (
        *(b"logged in", b"queued for", b" for ", b"of user", b"ser: ", b"sername: ", b" run ", b"kubectl logs"),
        *(b"assigned ", b"No module", b"-m "),
    ),
    _LOGIN: (b"@",),
    _BUCKET: (b"://", b"arn:"),
    _ADDRESS: (b"://", b"git@"),
    _ARN: (b"arn:",),
    _IMAGE: (b"sha256", b"mage", b"docker", b"registry", b"pull", b":latest", b".io/", b".dev/", b".com/"),
    _ACCOUNT: (b"ccount", b"ACCOUNT", b".dkr.", b"arn:"),
    _PODS: (b"[pod/",),
    _OBJECT: (b"pod", b"job", b"svc", b"service", b"deployment", b"statefulset", b"namespace", b"node", b"logs"),
    _HOMES: (b"/home/", b"/Users/", b"\\Users\\"),
    _FILES: (b"containers", b"pods"),
}
"""One of these is in each text in which the pattern finds something: looking for them takes less time."""
_WORD = re.compile(r"[A-Za-z0-9_][\w.@-]*")
_OPENS = re.compile(r"(?:[|>][-+\d]*|-----)\s*$")
"""The last of a line before a secret of many lines, in YAML or PEM."""
_LINE_END = re.compile(r"\n|\\n")
_NEXT_LINES = re.compile(rb"\bvalue\b|[|>][-+\d]*\r?\n|-----BEGIN")
"""A secret may follow in other lines than that of its name."""
_NEAR, _KEY_LINES = 2, 60
"""Lines from the name of a secret to its end, and from the first to the last line of a private key."""
_SIMPLE = re.compile(r"[A-Za-z]{5,}")


@dataclass(slots=True)
class Learned:
    """Names by what they are of."""

    users: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    """Where a name is one though it be made of common words: ``gpu-17``."""
    labels: set[str] = field(default_factory=set)
    expressions: set[str] = field(default_factory=set)
    """Host lists in brackets, if one of their hosts is known."""
    accounts: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    _last_lines: list[str] = field(default_factory=list)
    _paths: set[bytes] = field(default_factory=set)

    def learn(self, text: bytes) -> None:
        """Take names out of a part of a log."""
        self._learn_secrets(text)
        self._learn_by_key(text)
        self._learn_messages(text)
        for domain in map(decode, set(_DOMAIN.findall(text)) if _DOMAIN_END.search(text) else ()):
            # Whose it is tells the name before its last part: acme of gpu-1.cluster.acme.internal.
            parts = domain.split(".")
            if parts[-1] in _INNER and any(map(str.isdigit, parts[0])):
                self.hosts.add(parts[0])
            is_public = domain.lower() in PUBLIC_HOSTS or ".".join(parts[-2:]).lower() in PUBLIC_DOMAINS
            if not is_public and len(parts[-2]) > 3:
                self.labels.add(parts[-2])
        for pattern in (_BUCKET, _ARN, _IMAGE, _PODS, _FILES, _OBJECT):
            for match in _finds(pattern, text):
                for name in filter(None, match.groups()):
                    self._learn_value("label", name)
        self.accounts.update(decode(match[1] or match[0]) for match in _finds(_ACCOUNT, text))
        for listed in stated_lists(text):
            self.hosts.update(split_hosts(decode(listed)))
        self.expressions.update(map(decode, bracket_expressions(text)))
        for match in _finds(_ADDRESS, text):
            host, path = decode(match[1]), decode(match[2])
            if host not in PUBLIC_HOSTS and not PUBLIC_PLACES.match(f"{host}/{path}"):
                self._learn_path(f"/{path}/")
        for path in set(_PATH.findall(text)) - self._paths:
            self._learn_path(decode(path))
            self._paths.add(path)

    def _learn_secrets(self, text: bytes) -> None:
        """Learn secrets, also those in the line before or behind that of their name, or of many lines."""
        lines = [*self._last_lines, *decode(text).splitlines()]
        self._last_lines = lines[-_NEAR:]
        near = [False] * (len(lines) + _KEY_LINES)
        for at in list_hinted(lines):
            span = _KEY_LINES if _OPENS.search(lines[at]) else _NEAR
            near[max(at - 1, 0) : at + span] = [True] * (at + span - max(at - 1, 0))
        if not any(near):
            return
        for found in find_secrets("\n".join(line if wanted else "" for line, wanted in zip(lines, near, strict=False))):
            self.secrets.update(part.strip() for part in _LINE_END.split(found))

    def _learn_by_key(self, text: bytes) -> None:
        for key, _, quoted, bare in set(_KEYED.findall(text)):
            self._learn_value(find_kind(key), quoted or bare)
        for match in _finds(_OPTION, text):
            self._learn_value(find_kind(match[1]), match[2])
        for command in _finds(_COMMAND, text):
            for letter, value in _SHORT_OPTION.findall(command[0]):
                self._learn_value({b"u": "user", b"w": "host"}.get(letter, "label"), value)

    def _learn_value(self, kind: str, value: bytes) -> None:
        if not kind:
            return
        names = words(decode(value))
        (self.users if kind == "user" else self.labels).update(names)
        if kind == "host":
            self.hosts.update(names)

    def _learn_messages(self, text: bytes) -> None:
        for match in _finds(_SAID, text):
            if match["user"]:
                self.users.add(decode(match["user"]))
            for group in ("entity", "name", "node"):
                self._learn_value("label", match[group] or b"")
            if module := match["module"] or match["started"]:
                self._learn_package(decode(module).partition(".")[0])
        for match in _finds(_LOGIN, text):
            if decode(match[2]).lower() not in _NO_NAMES:
                self.users.add(decode(match[1]))
                self.labels.add(decode(match[2]))
        self.users.update(decode(match[1]) for match in _finds(_HOMES, text))

    def _learn_path(self, path: str) -> None:
        if path.startswith(KEPT_ROOTS):
            return
        parts = path.split("/")
        packages = [at for at, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
        if packages:
            self._learn_package("".join(parts[packages[-1] + 1 : packages[-1] + 2]))
            parts = parts[: packages[-1]]
        self.labels.update(
            part.removesuffix(".git")
            for part in parts[:-1]
            if _SIMPLE.fullmatch(part.removesuffix(".git").replace("-", "").replace("_", ""))
        )

    def _learn_package(self, name: str) -> None:
        if name not in LIBRARIES and len(name) > 3 and "." not in name:
            self.labels.add(name)


def _finds(pattern: re.Pattern[bytes], text: bytes) -> Iterator[re.Match[bytes]]:
    signs = _SIGNS.get(pattern)
    return pattern.finditer(text) if signs is None or any(sign in text for sign in signs) else iter(())


@cache
def find_kind(key: bytes) -> str:
    """Return what a key says that its value is: ``user``, ``host``, another ``label``, or nothing of that."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", decode(key))
    parts = [part.lower() for part in parts]
    if not parts or (parts[0] in _OF_PROGRAMS and len(parts) > 1):
        return ""
    if "-".join(parts[-2:]) in _SUBJECTS:
        return "label"
    if len(parts) > 1 and parts[-1] in ("name", "id"):
        parts.pop()
    last = parts[-1]
    if last in _USERS:
        return "user"
    if last in _HOSTS:
        return "host"
    return "label" if last in _SUBJECTS or "-".join(parts[-2:]) in _SUBJECTS or parts[0] == "kube" else ""


def words(label: str) -> list[str]:
    """Return the names in a label: ``pod/llama-0/trainer``, ``ml › llama-0``."""
    parts = re.split(r"[\s/,=():›]+", label)
    return [word for word in parts if len(word) > 1 and _WORD.fullmatch(word) and not word.isdigit()]


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
    head, data = peek(blocks.raw_blocks(source), blocks.tells)
    reader = blocks.reader_of(head[:HEAD])
    if reader is None:
        for block in blocks.cut(data):
            yield Part([*envelopes.spelled_out(block.lines, block.text)], b"\n", block)
        return
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
    """Learns names, then replaces them."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.learned = Learned()
        self._hosts: set[str] = set()
        self._labels: set[str] = set()
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
        # Prefixes, messages and texts of evidence come again and again.
        # Short common words count as names in the text before ``NCCL``.
        self._head = lru_cache(_MAX_REMEMBERED)(lambda head: encode(self.scrubber.text(decode(head), structural=True)))
        self._rest = lru_cache(_MAX_REMEMBERED)(self._new_rest)
        self.remove_names = lru_cache(_MAX_REMEMBERED)(lambda text: decode(self._remains.replace_names(encode(text))))

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
                self.learned.learn(text)
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
        if not (parsed := text.parsed):
            return
        if parsed.kind is EnvSetting:
            event = parsed.event
            if isinstance(event, EnvSetting) and event.name in _HOST_SETTINGS:
                self._hosts.update(word for word in words(event.value) if not is_plain(word))
        elif parsed.production.dialect in _HOST_DIALECTS:
            for name, value in (parsed.production.read(parsed.message) or {}).items():
                if name in _HOST_FIELDS and isinstance(value, str):
                    self._hosts.update(word for host in split_hosts(value) for word in words(host))

    def learn_names(self, meaning: str, names: Iterable[str]) -> None:
        """Take names whose meaning is known.

        Args:
            meaning: ``host``, ``user``, ``secret``, ``object`` (others are made from its name) or another name.
        """
        by_meaning = {
            "host": self._hosts,
            "user": self.learned.users,
            "object": self._objects,
            "secret": self._secrets,
        }
        by_meaning.get(meaning, self._labels).update(names)

    def settle(self) -> None:
        """Give each name its replacement: the first reading is over."""
        for (host, pid), lines in self._printed.items():
            # Not those with other text in front: ``loss 0.5node-1:11:11 [0] NCCL INFO …``.
            ends = (self._printed.get((host[at:], pid), 0) for at in range(1, len(host)))
            if lines > _FEW or max(ends, default=0) <= _MANY:
                self._hosts.add(host)
        suffixes = tuple(self._hosts)
        self._hosts |= {name for name in self._doubtful if not name.endswith(suffixes)}
        self._hosts |= set(filter(is_distinct, self.learned.hosts))
        hosts = {name for name in self._hosts if not name.isdigit() and not _is_address(name)}
        listed = self._find_brackets(hosts)
        hosts.update(*listed.values())
        domains = {}  # of the hosts that are called by their whole names, in words
        for name in hosts:
            first, *rest = name.split(".")
            if len(rest) > 1 and not any(map(str.isdigit, (first, *rest))):
                domains[name] = ".".join(rest)
        hosts |= {name.partition(".")[0] for name in domains}
        users = {name for name in self.learned.users if name.lower() not in ACCOUNTS} - hosts
        labels = {name for name in self._labels | self.learned.labels | self._objects if not _is_address(name)}
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
            {
                ".".join(parts[at:])
                for name in domains.values()
                for parts in [name.split(".")]
                for at in range(len(parts) - 1)
            },
        )
        self._join(((hosts - domains.keys()) | (labels & self._objects)) - before)
        for name in sorted(domains):
            short, _, domain = name.partition(".")
            self.names.put("host", name, f"{self.names.get('host', short)}.{self.names.get('domain', domain)}")
        self.names.settle("cloud", self.learned.accounts)
        self.names.settle("secret", (self._secrets | self.learned.secrets) - {"", MASK})
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
        for expression in self.learned.expressions:
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
            text = b"".join([self.line(piece) + part.end for piece in part.pieces])
            if _NEXT_LINES.search(text):
                text = encode(self.scrubber.hide_secrets(decode(text)))
            yield self._remains.replace_names(text)

    def line(self, line: bytes) -> bytes:
        """Return a line with everything replaced."""
        parts = prefix.split(line)
        if parts is None:
            return self._message(line, self._grammar.parse_bare(line))
        head, rest = parts
        return self._head(head) + b" NCCL " + self._rest(rest)

    def _new_rest(self, rest: bytes) -> bytes:
        level, blank, message = rest.partition(b" ")
        return level + blank + self._message(message, self._grammar.parse(message))

    def _message(self, message: bytes, parsed: Parsed | None) -> bytes:
        """Replace in a message; where the grammar knows it only its values change, and never its words."""
        text = decode(message)
        if parsed is not None and not find_spans(text):
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


def _is_address(name: str) -> bool:
    return re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", name) is not None
