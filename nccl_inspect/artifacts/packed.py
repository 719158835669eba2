"""Evidence in tar and zip archives: read before the logs are, which are then read without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from nccl_inspect import artifacts
from nccl_inspect.ingest.sources import archives, compression, log_detection
from nccl_inspect.ingest.sources.archives import Member, Wanted
from nccl_inspect.ingest.sources.compression import Allowance
from nccl_inspect.ingest.sources.files import File, Pass, explain_passing
from nccl_inspect.ingest.sources.streams import StreamError, peek
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.util.text import escape_controls


def read(file: File, passed: Pass) -> tuple[list[Artifact], frozenset[str]]:
    """Return the evidence in an archive, and the names of its members that hold it.

    What is wrong with the archive itself is said where its logs are read.

    Args:
        passed: takes the name of each member that is neither a log nor evidence, with the reason.
    """
    choice = _Choice(file.name, passed)
    wanted = Wanted(choice.may_be, choice.is_evidence)
    evidence: list[Artifact] = []
    without: set[str] = set()
    with suppress(StreamError, OSError):
        for member in members(file, wanted):
            kind = choice.kinds.get(member.name)
            if kind is None:  # it cannot be read
                continue
            with suppress(artifacts.NotOfKindError):
                name = f"{file.name}:{escape_controls(member.name)}"
                evidence.extend(artifacts.contents(name, kind, member.open()))
                without.add(member.name)
    return evidence, frozenset(without)


def members(file: File, wanted: Wanted) -> Iterator[Member]:
    """Return the members of an archive, tar or zip.

    Raises:
        StreamError: it cannot be read.
        OSError: likewise.
    """
    head, data = peek(compression.unpack_data(file.open(), Allowance()), log_detection.tells_archives)
    if log_detection.is_zip(head):
        return archives.read_zip(file.place, lambda _: None, wanted)
    return archives.read_tar(data, wanted)


class _Choice:
    """Picks the evidence among the members of an archive."""

    def __init__(self, archive: str, passed: Pass) -> None:
        self._archive = archive
        self._passed = passed
        self.kinds: dict[str, artifacts.Kind] = {}
        """What the members are that were picked."""

    def may_be(self, name: str) -> bool:
        """Return whether a member may be evidence, by its name."""
        if log_detection.is_hidden(name):
            return False
        if not log_detection.is_left_out(name) or log_detection.is_document(name):
            return True
        self._pass(name, log_detection.OTHER)
        return False

    def is_evidence(self, name: str, head: bytes | None) -> bool:
        """Return whether a member is evidence, by its first bytes; what cannot be read, its reading as a log says."""
        member = name.removeprefix("./")
        if head is None:
            return False
        if kind := artifacts.kind_of(member, log_detection.unpack_head(head) or b""):
            self.kinds[member] = kind
            return True
        if log_detection.is_left_out(name) or not log_detection.is_log(name, head):
            self._pass(name, explain_passing(head))
        return False

    def _pass(self, name: str, reason: str) -> None:
        self._passed(f"{self._archive}:{escape_controls(name.removeprefix('./'))}", reason)
