"""What ``collect`` writes beside logs and evidence, which people read: events, nodes, its own list of files.

Text that is laid out for people has no keys that say what a value names; each kind says where names stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nccl_inspect.artifacts import Kind, manifest
from nccl_inspect.collecting.collection import TITLE


class Span(NamedTuple):
    """A place in a text at which a name stands."""

    start: int
    end: int
    meaning: str
    """One of :data:`nccl_inspect.anonymous.fields.MEANINGS`."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A kind of text.

    Args:
        KIND: in words.
        begins: how it begins.
        names: what stands for names; the groups are called after the meanings, with a number where there are several.
    """

    KIND: str
    begins: re.Pattern[bytes]
    names: re.Pattern[str]

    @property
    def __name__(self) -> str:
        return self.KIND

    def recognises(self, _name: str, head: bytes) -> bool:
        """Whether it is such a text, by its first bytes."""
        return self.begins.match(head) is not None

    def read(self, _name: str, data: bytes) -> bytes:
        """The text."""
        return data

    def spans(self, text: str) -> Iterator[Span]:
        """Where names stand, in their order."""
        for found in self.names.finditer(text):
            for group in sorted((name for name, value in found.groupdict().items() if value), key=found.start):
                yield Span(*found.span(group), self._meaning(found, group))

    @staticmethod
    def _meaning(found: re.Match[str], group: str) -> str:
        meaning = group.rstrip("0123456789")
        if meaning != "label":
            return meaning
        kept = manifest.NAMES.get(found[f"key{group.removeprefix('label')}"])
        return "kept" if kept == "kept" else "name"


_INDEX = Layout("list of a collection", re.compile(re.escape(TITLE.encode()) + rb"\n"), re.compile(r"(?!)"))
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
_LAYOUTS = (_INDEX, _EVENTS, _NODE)


def kind_of(name: str, head: bytes) -> Kind | None:
    """The kind of a text that ``collect`` wrote, None of any other one.

    Args:
        name: of the file.
        head: its first bytes.
    """
    return next((layout for layout in _LAYOUTS if layout.recognises(name, head)), None)
