"""Evidence beside the log: files that say why a job stands where its log ends.

A module reads one :class:`Kind` of files, or several that belong together. Files are recognised by what is in them,
never by an option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.sources import compression, files, log_detection
from nccl_inspect.ingest.sources.blocks import Progress
from nccl_inspect.ingest.sources.files import File, Input, Pass
from nccl_inspect.ingest.sources.streams import Pieces, StreamError, peek
from nccl_inspect.model.inventory import Artifact, PassedOver
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import escape_controls

if TYPE_CHECKING:
    from nccl_inspect.ingest.sources.archives import Member, Wanted

HEAD = 64 << 10  # bytes by which a file is recognised
_OF_NCCL = re.compile(rb":[0-9]+:[0-9]+ \[[0-9]+\] NCCL (?:INFO|WARN) ")  # a line of NCCL: what has one is a log
_VERSION = b"NCCL version "
MAX_BYTES = 256 << 20  # the largest file that is read
TOO_LARGE = f"larger than {MAX_BYTES >> 20} MB"
SHARED = 32 << 20  # bytes from which on starting processes pays
_MOST = 8  # processes: what they find is put together in one
_LABEL = 63

# Why groups of ranks stand still, by what PyTorch's flight recorder shows
DIFFERENT = "different calls"  # ranks made different calls, or with different sizes or types, under one number
MISSING = "missing call"  # ranks did not make a call in which others wait, and wait in none themselves
CYCLE = "cycle"  # ranks wait for each other in different groups, each in a call that the other one has still to make
NO_PARTNER = "no partner"  # a rank sends or receives, and its peer does not take part and waits in nothing
PARTLY = "partly finished"  # all ranks made a call; it is over on some of them only
UNFINISHED = "unfinished"  # all ranks made a call, and it is over on none of them


class NotOfKindError(Exception):
    """A file begins as one of a kind and is none: a log, mostly."""


class Kind(Frozen):
    """A kind of files, and how they are read."""

    name: str  # by which rules ask for what they hold; in `names.toml` it tells what their keys name
    title: str  # in words
    recognises: Callable[[bytes], bool]  # whether a file is one of them, by its first bytes
    read: Callable[[str, bytes], Any]
    """Returns what a file holds, by its name and bytes: a ValueError says what is wrong with it."""
    start: re.Pattern[bytes] | None = None  # how the output of a tool begins: a file may hold that of several
    is_yaml: bool = False
    most: int = MAX_BYTES  # bytes that are read


class Identity(Frozen):
    """Holds what a file names of its job; what it does not name is empty."""

    comms: Mapping[int, str] = field(default_factory=dict)  # hashes of communicators, each as the file writes it
    pids: frozenset[int] = frozenset()
    sizes: frozenset[int] = frozenset()  # ranks of its process groups
    world: int | None = None
    rank: int | None = None  # of the job, where the file is about one
    hosts: frozenset[str] = frozenset()  # short names of the hosts that it is about
    are_all_hosts: bool = False  # whether a job on none of these hosts is another one
    prefixes: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()  # numbers that a scheduler gave to the job
    active: float | None = None  # when the job ran, in seconds since 1970
    is_of_many: bool = False  # whether it may be about several jobs: files about machines, lists of pods


def comm_number(text: str) -> int | None:
    """Return the hash of a communicator, as RAS and the log write it."""
    try:
        return int(text, 16)
    except ValueError:
        return None


def short(host: str) -> str:
    """Return a host without its domain, as long as names of hosts can be; an address is not a name with a domain."""
    return host if re.fullmatch(r"[\d.:]+", host) else host.partition(".")[0][:_LABEL].lower()


@cache
def kinds() -> tuple[Kind, ...]:
    """Return all kinds."""
    from nccl_inspect.artifacts import containers, flight_recorder, ras, slurm, tools

    return (*containers.KINDS, flight_recorder.KIND, ras.KIND, *slurm.KINDS, *tools.list_kinds())


def kind_of(head: bytes) -> Kind | None:
    """Return the kind of a file, by its first bytes; None for a log and for all else."""
    if _OF_NCCL.search(head):
        return None  # most runs read logs only, and need none of the kinds
    return next((kind for kind in kinds() if kind.recognises(head)), None)


_LINE = rb"(?:<\d+>)?\[ *(?:\d+\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4})\] |kern  :\w+ *: \["
_SYSLOG = r"(?:[A-Z][a-z]{2} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,+-]+Z?) (\S+) kernel: "
KERNEL_HOST = compile_later(_SYSLOG)  # the host that a line of the kernel in syslog names
_KERNEL = compile_later(rb"(?:(?:-- [^\n]*\n)?(?:" + _LINE + rb"|" + _SYSLOG.encode() + rb")[^\n]*\n){2}")
"""How a log of the kernel begins (``dmesg``, ``journalctl -k``): it is read as a log; the grammar knows the driver."""


class Inventory(NamedTuple):
    """Holds what the inputs of a run hold."""

    logs: list[File]
    evidence: list[Artifact]
    passed_over: list[PassedOver]  # files in folders and archives that are neither


NOTHING = Inventory([], [], [])


def inventory(inputs: Input | Sequence[Input], progress: Progress | None = None) -> Inventory:
    """Tell the logs from the evidence beside them, and read the latter, with its progress in bytes.

    A NoInputError says that nothing is given, no log is, or something that cannot be one.
    """
    everything = beside(inputs, progress)
    if everything.evidence and not everything.logs:
        first = everything.evidence[0]
        raise NoInputError(f"{first.name}: {first.kind}, and no log of a job", "give the log of the job, too")
    return everything


def beside(inputs: Input | Sequence[Input], progress: Progress | None = None) -> Inventory:
    """Return the same of inputs that need hold no log."""
    found = Inventory([], [], [])

    def pass_over(name: str, why: str) -> None:
        if why != log_detection.OWN:  # a report says the same whether an earlier one lies in the folder or not
            found.passed_over.append(PassedOver(name, why))

    heads = ((file, head_of(file)) for file in files.find(inputs, is_artifact, pass_over))
    candidates = [
        (file, kind_of(head), log_detection.is_tar(head) or log_detection.is_zip(head), _VERSION in head)
        for file, head in heads
    ]
    read = iter(_read_files([(file, kind) for file, kind, _, _ in candidates if kind], progress))
    answers: list[File] = []  # those of RAS have a line of a log
    for file, kind, is_archive, has_version in candidates:
        held = next(read) if kind else None
        if held is not None:
            found.evidence.extend(held)
            answers += [file] if has_version and any(one.reader == "ras" for one in held) else []
        else:
            found.logs.append(_read_archive(file, found.evidence, pass_over) if is_archive else file)
    found.logs.extend(answers if not found.logs else ())
    found.passed_over.sort(key=lambda entry: log_detection.natural(entry.name))
    return found


def _read_files(files_of_kind: Sequence[tuple[File, Kind]], progress: Progress | None) -> list[list[Artifact] | None]:
    """Return what files hold, in their order; None for one that is a log. Very many are read by several processes."""
    total = sum(file.size or 0 for file, _ in files_of_kind)
    number = 1
    if total >= SHARED:
        # The evidence of thousands of ranks: a dump of 2,000 calls takes some 20 ms.
        from nccl_inspect.util import processes  # most logs have few files beside them

        if processes.can_fork():  # an opened file and a kind cannot be pickled
            number = min(processes.processors(), _MOST)

    def count(size: int) -> None:
        if progress:
            progress(size * number, total)  # all processes are taken to be as quick

    if number == 1:
        return read_share(files_of_kind, count)
    ends = [len(files_of_kind) * place // number for place in range(number + 1)]
    shares = [files_of_kind[start:end] for start, end in pairwise(ends)]
    with processes.Helpers() as helpers:
        started = [helpers.start(read_share, share) for share in shares[1:]]
        found = read_share(shares[0], count)
        for share, helper in zip(shares[1:], started, strict=True):
            found += helper.result() or read_share(share)
    return found


def read_share(
    files_of_kind: Iterable[tuple[File, Kind]], count: Callable[[int], None] = lambda _: None
) -> list[list[Artifact] | None]:
    """Return what files hold, in their order, None for one that is a log; count the bytes of each that was read."""
    found: list[list[Artifact] | None] = []
    for file, kind in files_of_kind:
        is_too_large = (file.size or 0) > MAX_BYTES
        try:
            pieces = iter(()) if is_too_large else file.open()
            found.append(contents(file.name, kind, pieces, TOO_LARGE if is_too_large else ""))
        except NotOfKindError:
            found.append(None)
        count(file.size or 0)
    return found


def is_artifact(_name: str, head: bytes) -> bool:
    """Return whether a file is of use whatever its name: a log of the kernel is one that is read as such."""
    text = log_detection.unpack_head(head) or b""
    return kind_of(text) is not None or _KERNEL.match(text) is not None


def head_of(file: File) -> bytes:
    """Return the first bytes of a file on disk, unpacked: streams are logs."""
    if not isinstance(file.place, Path):
        return b""
    try:
        with file.place.open("rb", buffering=0) as stream:
            return log_detection.unpack_head(stream.read(HEAD)) or b""
    except OSError:  # reading it as a log says why
        return b""


def contents(name: str, kind: Kind, pieces: Pieces, problem: str = "") -> list[Artifact]:
    """Return what a file holds, one artifact for each tool whose output is in it; or only why it is not read.

    A NotOfKindError says that it is a log.
    """
    data = bytearray()
    try:
        for piece in () if problem else compression.unpack_data(pieces):
            data += piece
            if len(data) > kind.most:
                problem = f"larger than {kind.most >> 20} MB"
                break
    except StreamError as error:
        problem = error.what
    except OSError as error:
        problem = error.strerror or str(error)
    whole = bytes(data)
    parts = [(kind, whole)]
    if kind.start and not problem:
        from nccl_inspect.artifacts import tools

        if tools.is_of_job(whole):
            raise NotOfKindError
        sections = tools.sections(whole, kinds())
        parts = sections if len(sections) > 1 else parts
    artifacts = []
    for one, part in parts:
        value, why = None, problem
        try:
            value = None if problem else one.read(name, part)
        except RecursionError:
            why = "damaged: nested too deeply"
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:  # it may hold anything
            why = f"damaged: {error}"
        artifacts.append(Artifact(name, one.title, value, problem=why or None, reader=one.name))
    return artifacts


def open_members(file: File, wanted: Wanted) -> Iterator[Member]:
    """Return the members of an archive, tar or zip; a StreamError or OSError says that it cannot be read."""
    from nccl_inspect.ingest.sources import archives  # most logs are not archives

    unpacked = compression.unpack_data(file.open(), compression.Allowance())
    head, data = peek(unpacked, log_detection.tells_archives)
    if log_detection.is_zip(head):
        return archives.read_zip(file.place, lambda _: None, wanted)
    return archives.read_tar(data, wanted)


def _read_archive(file: File, evidence: list[Artifact], passed: Pass) -> File:
    """Read the evidence in an archive before its logs are, and pass over what is neither; return it without that.

    What is wrong with the archive itself is said where its logs are read.
    """
    from nccl_inspect.ingest.sources.archives import Wanted  # most logs are not archives

    members: dict[str, Kind] = {}
    without: set[str] = set()

    def pass_over(name: str, reason: str) -> None:
        passed(f"{file.name}:{escape_controls(name.removeprefix('./'))}", reason)

    def may_be_evidence(name: str) -> bool:
        is_hidden = log_detection.is_hidden(name)
        is_left_out = log_detection.is_left_out(name) and not log_detection.is_document(name)
        if is_left_out and not is_hidden:
            pass_over(name, log_detection.OTHER)
        return not is_left_out and not is_hidden

    def is_evidence(name: str, head: bytes | None) -> bool:
        if head is None:  # what cannot be read, its reading as a log says
            return False
        if kind := kind_of(log_detection.unpack_head(head) or b""):
            members[name.removeprefix("./")] = kind
        elif log_detection.is_left_out(name) or not log_detection.is_log(name, head):
            pass_over(name, files.explain_passing(head))
        return kind is not None

    with suppress(StreamError, OSError):
        for member in open_members(file, Wanted(may_be_evidence, is_evidence)):
            if kind := members.get(member.name):  # else it cannot be read
                with suppress(NotOfKindError):
                    name = f"{file.name}:{escape_controls(member.name)}"
                    evidence.extend(contents(name, kind, member.open()))
                    without.add(member.name)
    return replace(file, without=frozenset(without))
