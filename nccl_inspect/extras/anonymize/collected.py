"""What ``collect`` writes beside logs and evidence, which people read: events, nodes, interfaces, its list of files.

Text laid out for people has no keys that give values a meaning; each kind says where its names are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.artifacts import Kind, manifest
from nccl_inspect.extras.collect.collection import TITLE

_NONE = re.compile(r"(?!)")
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
        kind: in words.
        begins: how it begins.
        names: what stands for names; the groups are called after the meanings, with a number where there are several.
    """

    def __init__(self, kind: str, begins: re.Pattern[bytes], names: re.Pattern[str] = _NONE) -> None:
        self.__name__ = self.KIND = kind
        self._begins = begins
        self._names = names

    def recognises(self, _name: str, head: bytes) -> bool:
        """Whether it is such a text, by its first bytes."""
        return self._begins.match(head) is not None

    def read(self, _name: str, data: bytes) -> bytes:
        """The text."""
        return data

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where names stand, in their order."""
        for match in self._names.finditer(text):
            for group in sorted((name for name, value in match.groupdict().items() if value), key=match.start):
                yield from _listed(*match.span(group), self._meaning(match, group), text)

    @staticmethod
    def _meaning(match: re.Match[str], group: str) -> str:
        meaning = group.rstrip("0123456789")
        if meaning != "label":
            return meaning
        kept = manifest.NAMES.get(match[f"key{group.removeprefix('label')}"])
        return "kept" if kept == "kept" else "name"


def _listed(start: int, end: int, meaning: str, text: str) -> Iterator[Span]:
    """A place, or those of the names in a list: lists of hosts are known as a whole."""
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


class _Table(Layout):
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
                    yield from _listed(at, at + len(cell), meaning, text)
                at += len(cell) + 1


_ACCOUNTING = _Table("Slurm accounting", re.compile(rb"JobID\|(?:\w+\|)+\w+\r?\n"))
_LAYOUTS = (_INDEX, _EVENTS, _NODE, _INTERFACES, _SYSTEM, _SLURM, _ACCOUNTING)


def kind_of(name: str, head: bytes) -> Kind | None:
    """The kind of a text that ``collect`` wrote, None of any other one."""
    return next((layout for layout in _LAYOUTS if layout.recognises(name, head)), None)
