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
    kinds: dict[str, artifacts.Kind] = {}

    def pass_over(name: str, reason: str) -> None:
        passed(f"{file.name}:{escape_controls(name.removeprefix('./'))}", reason)

    def may_be_evidence(name: str) -> bool:
        if log_detection.is_left_out(name) and not log_detection.is_document(name):
            if not log_detection.is_hidden(name):
                pass_over(name, log_detection.OTHER)
            return False
        return not log_detection.is_hidden(name)

    def is_evidence(name: str, head: bytes | None) -> bool:
        if head is None:  # what cannot be read, its reading as a log says
            return False
        member = name.removeprefix("./")
        if kind := artifacts.kind_of(member, log_detection.unpack_head(head) or b""):
            kinds[member] = kind
        elif log_detection.is_left_out(name) or not log_detection.is_log(name, head):
            pass_over(name, explain_passing(head))
        return kind is not None

    evidence: list[Artifact] = []
    without: set[str] = set()
    with suppress(StreamError, OSError):
        for member in members(file, Wanted(may_be_evidence, is_evidence)):
            if kind := kinds.get(member.name):  # else it cannot be read
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
