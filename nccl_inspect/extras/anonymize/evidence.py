"""Files of evidence without names, as files of the same form: pickles, JSON, YAML and what tools print."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nccl_inspect.artifacts import Kind, machine, manifest
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.extras.anonymize.fields import Change, Fields, Found, Place, change_json, change_yaml
from nccl_inspect.extras.collect.collection import TITLE
from nccl_inspect.util.text import decode, encode

# --- texts laid out for people ------------------------------------------------------------------------------------


_NOTHING = re.compile(r"(?!)")
"""Where names are known by their shapes alone."""


class Span(NamedTuple):
    """A place in a text at which a name stands."""

    start: int
    end: int
    meaning: str
    """One of :data:`nccl_inspect.extras.anonymize.fields.MEANINGS`."""


class Layout:
    """A kind of text.

    Args:
        names: what stands for names; the groups are called after the meanings, with a number where there are several.
    """

    def __init__(self, kind: str, begins: re.Pattern[bytes], names: re.Pattern[str] = _NOTHING) -> None:
        self.__name__ = self.KIND = kind
        self._begins = begins
        self._names = names

    def recognises(self, _name: str, head: bytes) -> bool:
        """Return whether it is such a text, by its first bytes."""
        return self._begins.match(head) is not None

    def read(self, _name: str, data: bytes) -> bytes:
        """Return the text."""
        return data

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where names stand, in their order."""
        for match in self._names.finditer(text):
            for group in sorted((name for name, value in match.groupdict().items() if value), key=match.start):
                meaning = group.rstrip("0123456789")
                if meaning == "label":
                    kept = manifest.NAMES.get(match[f"key{group.removeprefix('label')}"])
                    meaning = "kept" if kept == "kept" else "name"
                yield from _spans_of_list(*match.span(group), meaning, text)


def _spans_of_list(start: int, end: int, meaning: str, text: str) -> Iterator[Span]:
    """Yield a span, or those of the names in a list: lists of hosts are known as a whole."""
    if meaning not in ("name", "object"):
        yield Span(start, end, meaning)
        return
    for word in re.finditer(r"[^,]+", text[start:end]):
        yield Span(start + word.start(), start + word.end(), meaning)


_INDEX = Layout("list of a collection", re.compile(re.escape(TITLE.encode()) + rb"\n"))
_EVENTS = Layout(
    "Kubernetes events",
    re.compile(rb"(?:NAMESPACE\s+)?LAST SEEN\s[^\n]{0,200}\bREASON\b"),
    re.compile(
        r"""(?<=\s)[a-z]+(?:\.[a-z0-9.-]+)?/(?P<object>[a-z0-9][a-z0-9.-]*)(?=\s)
        |\skubelet,\s(?P<host>[\w.-]+)
        |\sassigned\s(?P<name>[\w.-]+)/(?P<object2>[\w.-]+)\sto\s(?P<host2>[\w.-]+)
        |(?<=\s)(?P<object3>[a-z0-9][a-z0-9.-]*)\.[0-9a-f]{4,20}[ \t]*$""",
        re.VERBOSE | re.MULTILINE,
    ),
)
_NODE = Layout(
    "Kubernetes node",
    re.compile(rb"Name:[ \t]+\S+\r?\n(?:Roles|Labels|Annotations):"),
    re.compile(
        r"""^[ ]*(?:Name|Hostname|InternalDNS|ExternalDNS|HolderIdentity):[ \t]+(?P<host>[\w.-]+)[ \t\r]*$
        |^[ ]*(?:Machine\ ID|System\ UUID|Boot\ ID|ProviderID):[ \t]+(?P<id>\S+)
        |^(?:Taints|Labels|Annotations):[ \t]+(?P<key1>[\w./-]+)(?:=|:[ ]?)(?P<label1>[^\s:]+)
        |^[ ]{8,}(?P<key2>[\w./-]+)(?:=|:[ ]?)(?P<label2>[^\s:]+)(?=[ \t\r]*$|:)
        |^[ ]{2}(?P<name>[a-z0-9][a-z0-9-]*)[ \t]+(?P<object>[a-z0-9][\w.-]*)[ \t]+\d[^\n]*%\)
        |[ \t]kubelet,[ ](?P<host2>[\w.-]+)""",
        re.VERBOSE | re.MULTILINE,
    ),
)
_INTERFACES = Layout("interfaces of a host", re.compile(rb"1: \w+(?:@\w+)?: <[A-Z_,-]+> mtu \d"))
_SYSTEM = Layout("name of a system", re.compile(rb"Linux \S+ \d+\.\d+"), re.compile(r"^Linux (?P<host>\S+) \d"))
_SLURM = Layout(
    "Slurm nodes or steps",
    re.compile(rb"(?:NodeName|StepId)=\S+[ \n]"),
    re.compile(
        r"""\b(?:NodeName|NodeHostName|NodeAddr|NodeList|BatchHost)=(?P<host>\S+)
        |\b(?:Owner|UserId)=(?P<user>[A-Za-z_][\w.-]*)
        |\b(?:Partitions?|MCS_label|Name|Account|ReservationName)=(?P<name>\S+)
        |\b(?:Comment|AdminComment|Extra|Reason)=(?P<masked>[^\n]*\S)""",
        re.VERBOSE,
    ),
)
_COLUMNS = {
    **dict.fromkeys(("NodeList", "MaxRSSNode"), "host"),
    **dict.fromkeys(("JobName", "Account", "Partition"), "name"),
    "User": "user",
    "Reason": "masked",
}


class _TableLayout(Layout):
    """A table with a line of headings, as ``sacct --parsable2`` prints it."""

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where names stand, in their order."""
        headings: list[str] = []
        for line in re.finditer(r"[^\r\n]+", text):
            cells = line[0].split("|")
            headings = headings or cells
            at = line.start()
            for heading, cell in zip(headings, cells, strict=False):
                if cells is not headings and cell and (meaning := _COLUMNS.get(heading)):
                    yield from _spans_of_list(at, at + len(cell), meaning, text)
                at += len(cell) + 1


_ACCOUNTING = _TableLayout("Slurm accounting", re.compile(rb"JobID\|(?:\w+\|)+\w+\r?\n"))
_LAYOUTS = (_INDEX, _EVENTS, _NODE, _INTERFACES, _SYSTEM, _SLURM, _ACCOUNTING)


def find_layout(name: str, head: bytes) -> Kind | None:
    """Return the kind of a text that ``collect`` wrote, None of any other one."""
    return next((layout for layout in _LAYOUTS if layout.recognises(name, head)), None)


# --- files --------------------------------------------------------------------------------------------------------


_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PROTOCOL = 2
"""The one that PyTorch writes: lengths in four bytes, so that no letter precedes a text."""
_MAX_TEXTS = 20_000
_PER_BLOCK = 2_000
"""Lines that are looked over for names at once."""

Path = tuple[str, ...]


class Evidence:
    """Learns names from files of evidence, and writes these without them."""

    def __init__(self, anonymizer: Anonymizer) -> None:
        self._anonymizer = anonymizer
        self._fields: dict[Kind, Fields] = {}
        self._keyed: dict[Kind, re.Pattern[str] | None] = {}

    def learn(self, kind: Kind, name: str, data: bytes) -> None:
        """Take the names out of a file.

        Raises:
            ValueError: it is damaged, so that it cannot be written either.
            NotOfKindError: it is a log.
        """
        gathered = Found()
        fields = self._fields_of(kind)

        def change(place: Place, text: str) -> str:
            fields.learn(place, text, gathered)
            if len(gathered.texts) > _MAX_TEXTS:
                self._learn_texts(gathered)
            return text

        if hasattr(kind, "START"):
            gathered.by_meaning["host"].update(machine.hosts(data, kind.START))
        for text in self._pieces(kind, data, change, lambda text: self._learn_lines(kind, text, gathered)):
            del text
        if isinstance(kind, Layout):
            text = decode(data)
            for start, end, meaning in kind.spans(text):
                fields.learn_as(meaning, text[start:end], gathered)
        self._learn_texts(gathered)
        for meaning, names in gathered.by_meaning.items():
            self._anonymizer.learn_names(meaning, names)

    def blocks(self, kind: Kind, data: bytes) -> Iterator[bytes]:
        """Yield the file with everything replaced.

        Raises:
            ValueError: it is damaged.
        """
        fields, remains = self._fields_of(kind), self._anonymizer.remove_names

        def change(place: Place, text: str) -> str:
            return remains(fields.change_value(place, text))

        for text in self._pieces(kind, data, change, lambda text: self._change_lines(kind, text)):
            yield text if isinstance(text, bytes) else encode(text)

    def _fields_of(self, kind: Kind) -> Fields:
        if kind not in self._fields:
            self._fields[kind] = Fields(getattr(kind, "NAMES", {}), self._anonymizer.scrubber)
        return self._fields[kind]

    def _pieces(
        self, kind: Kind, data: bytes, change: Change, other: Callable[[str], str]
    ) -> Iterator[bytes] | Iterator[str]:
        """Yield the file with changed texts, by its form."""
        if _PICKLE.match(data):
            return iter([pickle.dumps(_Walk(change).copy(loads(data), ()), _PROTOCOL)])
        text = decode(data.removeprefix(b"\xef\xbb\xbf"))
        if text.lstrip()[:1] in ("{", "[") and not hasattr(kind, "START"):
            return change_json(text, change, other)
        if getattr(kind, "FORM", "") == "yaml":
            return change_yaml(
                data.decode("utf-8-sig", "replace"), change, lambda mark: change(Place(("name",), ""), mark)
            )
        if isinstance(kind, Layout):  # the lines before say what one means
            return iter([other(text)])
        return (other(line[0]) for line in _LINE.finditer(text))

    def _learn_texts(self, gathered: Found) -> None:
        lines = [*gathered.texts]
        gathered.texts.clear()
        for at in range(0, len(lines), _PER_BLOCK):
            self._anonymizer.learn_text(encode("\n".join(lines[at : at + _PER_BLOCK]) + "\n"))

    # --- text ---------------------------------------------------------------------------------------------------

    def _learn_lines(self, kind: Kind, text: str, gathered: Found) -> str:
        fields, pattern = self._fields_of(kind), self._pattern(kind)
        gathered.texts[text.strip("\r\n")] = None
        for match in pattern.finditer(text) if pattern else ():
            fields.learn(Place((match["key"],), ""), match["value"], gathered)
        if len(gathered.texts) > _MAX_TEXTS:
            self._learn_texts(gathered)
        return text

    def _change_lines(self, kind: Kind, text: str) -> str:
        """Replace the names in a text where they stand, and all else by its shape."""
        fields, scrubber, pattern = self._fields_of(kind), self._anonymizer.scrubber, self._pattern(kind)
        if isinstance(kind, Layout):
            pieces, at = [], 0
            for start, end, meaning in kind.spans(text):
                pieces += [scrubber.text(text[at:start]), fields.replace(meaning, text[start:end])]
                at = end
            return self._anonymizer.remove_names("".join([*pieces, scrubber.text(text[at:])]))
        lines = []
        for line in (match[0] for match in _LINE.finditer(text)):
            pieces, at = [], 0
            for match in pattern.finditer(line) if pattern else ():
                start, end = match.span("value")
                new = fields.change_value(Place((match["key"],), ""), line[start:end])
                pieces += [scrubber.text(line[at:start]), new]
                at = end
            end = len(line.rstrip("\r\n"))
            lines.append(self._anonymizer.remove_names("".join([*pieces, scrubber.text(line[at:end]), line[end:]])))
        return "".join(lines)

    def _pattern(self, kind: Kind) -> re.Pattern[str] | None:
        """Find values in text: after ``UserId=`` or ``Board ID : ``, or after a key that ends with a blank."""
        if kind not in self._keyed:
            keys = "|".join(re.escape(key) for key in sorted(getattr(kind, "NAMES", {}), key=len, reverse=True))
            source = rf"""(?<![\w/:])(?P<key>{keys})(?:(?<=[ ])|[ \t]*[:=][ \t]*["']?)(?P<value>[^\s"'<>()]+)"""
            self._keyed[kind] = re.compile(source) if keys else None
        return self._keyed[kind]


class _Walk:
    """Copies plain values with other texts; what shares parts shares them in the copy."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._copies: dict[tuple[int, Path], Any] = {}
        self._texts: dict[tuple[Path, str, bool], str] = {}
        """By the keys above them, and whether they are keys themselves: calls repeat each other."""
        self._originals: list[Any] = []
        """Kept, so that none of them gives its identity to another one."""

    def copy(self, value: Any, path: Path, *, is_key: bool = False, is_element: bool = False) -> Any:
        """Return a copy of what a pickle holds; the path has the last keys above it."""
        if isinstance(value, str):
            text = path, value, is_key
            if text not in self._texts:
                self._texts[text] = self._change(Place(path, "", is_key, is_element), value)
            return self._texts[text]
        if isinstance(value, bytes | bytearray):
            return encode(self._change(Place(path, ""), decode(bytes(value))))
        if not isinstance(value, dict | list | tuple | set | frozenset):
            return value
        one = id(value), path
        if one in self._copies:
            return self._copies[one]
        self._originals.append(value)
        if isinstance(value, dict):
            mapping = self._copies[one] = {}
            for key, entry in value.items():
                inner = (*path, str(key) if isinstance(key, str | int) else "")[-3:]
                mapping[self.copy(key, path, is_key=True)] = self.copy(entry, inner)
        elif isinstance(value, list):
            entries = self._copies[one] = []
            entries.extend(self.copy(entry, path, is_element=True) for entry in value)
        else:
            self._copies[one] = type(value)(self.copy(entry, path, is_element=True) for entry in value)
        return self._copies[one]
