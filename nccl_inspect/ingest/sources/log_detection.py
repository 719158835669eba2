"""Tells logs from everything else that lies in a folder or archive: by the name, and by the first bytes."""

from __future__ import annotations

import re

from nccl_inspect.ingest.sources import compression
from nccl_inspect.ingest.sources.streams import HEAD, StreamError
from nccl_inspect.util.levels import ANY
from nccl_inspect.util.patterns import compile_later

_PACKED = compile_later(r"\.(?:gz|bz2|xz|lzma|zst|zstd)$", re.IGNORECASE)
_ARCHIVE = compile_later(r"\.(?:tar|tgz|tbz2?|txz|tzst|zip)$", re.IGNORECASE)
_PLAUSIBLE = compile_later(
    r"(?:^|[._-])(?:logs?|out|output|err|error|txt|stdout|stderr)(?:[._-]|$)|^(?:nccl|slurm)[._-]|\.[oe]\d+$",
    re.IGNORECASE,
)  # ``job.log-20261120``, ``slurm-123_4.out``, ``nccl.HOST.PID``, PBS's ``job.o123``, Open MPI's ``rank.0/stdout``
_OTHER = compile_later(
    r"\.(?:"
    r"bin|pt|pth|ckpt|safetensors|distcp|h5|hdf5|onnx|engine|gguf|np[yz]|pkl|pickle|arrow|parquet|sqlite3?|db|"
    r"so|o|a|whl|pyc|nsys-rep|qdrep|ncu-rep|core|png|jpe?g|svg|pdf|"
    r"json|csv|xml|sarif|html?|md|rst|ya?ml|toml|ini|ipynb|py|sh|c|cc|h|cu|grammar|lock|pid"
    r")$|^core(?:[.-]\d+.*)?$",
    re.IGNORECASE,
)  # checkpoints, libraries and cores are big; documents, reports and programs quote logs without being logs
_DOCUMENT = compile_later(r"\.(?:json|ya?ml|xml|pkl|pickle|sh|sbatch)$", re.IGNORECASE)
_PROGRAM = compile_later(
    r"\.(?:py|sh|c|cc|cpp|h|hpp|cu|cuh|rs|go|grammar|ya?ml|toml|ini|xml|cmake|ipynb)$", re.IGNORECASE
)
_NCCL_LINE = compile_later(rb":\d+:\d+ (?:\[-?\d+\] )?[^\n]{0,300}?NCCL (?:" + ANY + rb") |NCCL version \d")
_REPORT = compile_later(
    rb"""(?:partial:\ interrupted\ [^\n]*\n)?(?:OK|DEGRADED|FAILED|WAITING|UNKNOWN)[:,]\ (?:[^\n]+\n){1,20}\nlog\ {10}
    |\#\#\ (?:OK|DEGRADED|FAILED|WAITING|UNKNOWN)[:,]\ [^\n]*\n\n(?:(?:-\ [^\n]*\n)+\n)?\|\ \ \|
    |::(?:error|warning|notice)\ title=nccl-inspect::
    |[^\n:]{1,100}:\ \d+\ ranks?\ on\ [^\n]*\n\ \ (?:has|life|host|ring)\ {3}
    |\{\s*"schema":\ ?"nccl-inspect/
    |nccl-inspect\ collection\n|no\ path\n|no\ collective\ call\ in\ this\s+log:\s
    |src\ +dst\ +src\ host\ [^\n]*\n---\ |\ *src\\dst\ |communicator\ +operation\ +size\ [^\n]*\n---
    |(?:host\ +(?:worst\ +)?ok\ |host\ +NIC\ +state|variable\ +value\ |rank\ +state\ )[^\n]*\n---""",
    re.VERBOSE,
)  # how summaries, pictures in text and tables begin that this program has written
_BEGINS_WITH_NCCL = compile_later(rb"^(?!\S{1,300}:\d+: )[^\s|].{0,300}? NCCL (?:" + ANY + rb") ", re.MULTILINE)
"""A line of NCCL that is not quoted: a report has none, but a job may have gone on to write where one stands."""
_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in b"\a\b\t\n\v\f\r\x1b")
_MAX_CONTROL = 0.05  # share of control characters that torn or truncated text may have; packed data has a tenth
_TAR_HEAD = 512
_TAR_MARK = slice(257, 262)
_ZIP_BEGINNINGS = (b"PK\3\4", b"PK\5\6")
OTHER = "not a log by its name"
UNKNOWN = "neither a log nor evidence of a known kind"
OWN = "written by nccl-inspect"
HARMLESS = EMPTY, ZEROS, SOCKET, PIPE, DEVICE, FOLDER_LINK, NO_LINK, LOOP = (
    *("empty", "only zeros", "socket", "named pipe", "device"),
    *("link to a folder", "link to nothing", "link that leads to itself"),
)  # reasons why nobody can have meant a file to be read
_DIGITS = compile_later(r"(\d+)")
_MAX_DIGITS = 1000


def natural(path: str) -> list[list[str | int]]:
    """Return a key that sorts as people count: ``rank2`` before ``rank10``."""
    return [
        [int(part[:_MAX_DIGITS]) if index % 2 else part for index, part in enumerate(_DIGITS.split(name))]
        for name in path.split("/")
    ]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def is_left_out(path: str) -> bool:
    """Return whether the name alone says that this is not a log: hidden, core, checkpoint, document."""
    return is_hidden(path) or _OTHER.search(_PACKED.sub("", _name(path))) is not None


def is_hidden(path: str) -> bool:
    """Return whether a file, or a folder that it lies in, is hidden."""
    return any(part.startswith(".") and part not in (".", "..") for part in path.split("/"))


def is_document(path: str) -> bool:
    """Return whether the name is that of a document that may say something about a job beside its log."""
    return not is_hidden(path) and _DOCUMENT.search(_PACKED.sub("", path)) is not None


def is_program(path: str) -> bool:
    """Return whether the name is that of source code, a script or settings: they hold messages that nobody printed."""
    return _PROGRAM.search(path) is not None


def is_named_as_archive(path: str) -> bool:
    """Return whether the name is that of an archive."""
    return _ARCHIVE.search(_PACKED.sub("", _name(path))) is not None


def tells_archives(head: bytes) -> bool:
    """Return whether these first bytes show if the data is an archive; a line end in them shows that it is text."""
    return len(head) >= _TAR_HEAD or b"\n" in head or head.startswith(_ZIP_BEGINNINGS)


def is_tar(head: bytes) -> bool:
    """Return whether data that begins so is a tar archive."""
    if head[_TAR_MARK] != b"ustar":
        return False
    import tarfile  # these modules take some time to load

    try:
        tarfile.TarInfo.frombuf(head[:_TAR_HEAD], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def is_zip(head: bytes) -> bool:
    """Return whether data that begins so is a zip archive."""
    return head.startswith(_ZIP_BEGINNINGS)


def is_plausible(path: str) -> bool:
    """Return whether the name is one that logs have."""
    return _PLAUSIBLE.search(_PACKED.sub("", _name(path))) is not None


def is_log(path: str, head: bytes) -> bool:
    """Return whether this is text with the name of a log, or with an NCCL line in its first bytes whatever its name."""
    text = unpack_head(head)
    if text is None:  # it cannot be unpacked: say so where a log was to be expected
        return is_plausible(path)
    if is_tar(text) or is_zip(text):
        return False
    if text and not text.strip(b"\0"):
        return False
    text = text.lstrip(b"\0")  # a log that was cut while it was open begins with a hole
    if is_report(text):
        return False
    if len(text) - len(text.translate(None, _CONTROL)) > _MAX_CONTROL * len(text):
        return False
    return is_plausible(path) or _NCCL_LINE.search(text) is not None


def is_report(head: bytes) -> bool:
    """Return whether this program has written a file that begins so."""
    return _REPORT.match(head) is not None and not _BEGINS_WITH_NCCL.search(head)


def unpack_head(head: bytes) -> bytes | None:
    """Return the first bytes of what a head stands for; None when it cannot be unpacked."""
    if not compression.is_packed(head):
        return head[:HEAD]
    data = b""
    try:
        for piece in compression.unpack_data(iter([head])):
            data += piece
            if len(data) >= HEAD:
                break
    except StreamError:
        return data[:HEAD] or None
    return data[:HEAD]
