"""Finds the logging calls of a C or C++ source tree: level, subsystems, format string, place.

No compiler is needed: comments are blanked, calls of known names are cut at their commas and the string literals of the
format argument are joined. What stands between literals becomes a conversion: ``"Call to " name " failed"`` is
``Call to %s failed``, ``PRIx64`` is ``lx``. ``cond ? "a" : "b"`` gives two formats.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".cc", ".h", ".cu", ".cpp", ".c", ".hpp", ".cuh", ".in")
DEFAULT_SUBSYSTEMS = {"INIT", "ENV", "BOOTSTRAP", "ALL"}


@dataclass(frozen=True)
class Macro:
    """A name that logs: its level, where flags and format stand, and what it puts in front of the format."""

    level: str
    flags: int | None
    format: int
    prefix: str = ""


@dataclass(frozen=True)
class Dialect:
    """Holds where the messages of a program stand in its source tree."""

    macros: dict[str, Macro]
    roots: tuple[str, ...]
    skip: tuple[str, ...] = ()
    prefix: str = ""
    """Of a program with Abseil's log, which has no macros of its own: what it puts in front of a message."""
    answers: tuple[str, ...] = ()
    """Files of another program whose errors come back to this one; what they log themselves does not."""


@dataclass(frozen=True)
class Call:
    """One format that a logging call prints."""

    level: str
    subsystems: tuple[str, ...]
    format: str
    file: str
    line: int

    @property
    def is_default(self) -> bool:
        """Return whether the message shows without NCCL_DEBUG_SUBSYS."""
        return not self.subsystems or not DEFAULT_SUBSYSTEMS.isdisjoint(self.subsystems)

    @property
    def is_dynamic(self) -> bool:
        """Return whether the format itself says nothing: ``%s``, a variable."""
        return not re.search(r"[A-Za-z]|->", CONVERSION.sub("", self.format))


_LOCATION = "%s:%d (%s) "
_COMMON = {
    "INFO": Macro("INFO", 0, 1),
    "WARN": Macro("WARN", None, 0),
    "VERSION": Macro("VERSION", None, 0),
    "INFO_LOC": Macro("INFO", 0, 1, _LOCATION),
    "ncclDebugLog": Macro("", 1, 4),
    "ncclDebugLogInternal": Macro("", 1, 5),
    "logFunction": Macro("", 1, 4),
}
_RCCL = _COMMON | {"ERROR": Macro("ERROR", None, 0)}
_OFI = {
    "NCCL_OFI_INFO": Macro("INFO", 0, 1, "NET/OFI "),
    "NCCL_OFI_WARN": Macro("WARN", None, 0, "NET/OFI "),
    "NCCL_OFI_TRACE": Macro("INFO", 0, 1, "NET/OFI "),
    "NCCL_OFI_TRACE_WHEN": Macro("INFO", 1, 2, "NET/OFI "),
    "ofi_log_function": Macro("", 1, 4),
}
"""With those of TRACE, which release builds of the plugin print."""
_TCPXO = (
    *("tcpdirect_plugin/", "nccl_cuda/", "dxs/"),
    *("buffer_mgmt_daemon/client/", "buffer_mgmt_daemon/common/", "buffer_mgmt_daemon/pci_utils"),
)
"""What is linked into the plugin; the rest is the daemon's."""
_RXDM = tuple(
    f"buffer_mgmt_daemon/fastrak_{name}" for name in ("gpu_mem_importer", "addr_translator", "buffer_resource_tracker")
)
_FOREIGN = ("nvtx", "doca", "/nccl_device/", "third_party")
DIALECTS = {
    "nccl": Dialect(_COMMON, ("src/",), _FOREIGN),
    "rccl": Dialect(_RCCL, ("src/",), (*_FOREIGN, "/clique/")),  # clique is not compiled
    "aws-ofi-nccl": Dialect(_OFI, ("src/", "include/", "m4/"), ("3rd-party",)),
    "fastsocket": Dialect(_COMMON | {"nccl_log_func": Macro("", 1, 4)}, ("",)),
    "hpcx": Dialect(_COMMON | {"pluginLogFunction": Macro("", 1, 4)}, ("src/", "include/")),
    "tcpxo": Dialect({}, _TCPXO + _RXDM, ("_tool.cc",), prefix="NET/FasTrak %s: ", answers=_RXDM),
}

CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<digits>\d+|\*))?(?:hh?|ll?|z|j|t)?(?P<kind>[a-zA-Z%])"
)
_BLANKED = re.compile(r"(\"(?:\\.|\f\n|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+')|//[^\n]*|/\*.*?\*/", re.DOTALL)
TOKEN = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])+'|[()\[\]{},]|[^\"'()\[\]{},]+")
_PIECE = re.compile(r"\"(?P<text>(?:\\.|[^\"\\])*)\"|(?P<cut>[?:])|(?P<name>\w+)(?P<call>\s*\([^()]*\))?")
_CONTINUED = "\f\n"  # a backslash at the end of a line: blank between tokens, nothing in a literal
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_PRINTF = re.compile(r"PRI([diouxX])(?:\d+|MAX|PTR)$")
_LOG_LEVEL = re.compile(r"NCCL_LOG_(INFO|WARN|VERSION)$")
_SUBSYSTEM = re.compile(r"NCCL_([A-Z0-9_]+)")


def sources(tree: Path, rev: str | None, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Name and content of the source files of a tree, or of a revision of a git repository."""
    names = _git(tree, "ls-tree", "-r", "--name-only", rev).split("\n") if rev else _files(tree)
    chosen = [name for name in names if _is_wanted(name, dialect)]
    if not rev:
        yield from ((name, (tree / name).read_text(encoding="utf-8", errors="replace")) for name in chosen)
        return
    mark = "/" if ":" in rev else ":"  # of a folder: REV:FOLDER
    yield from zip(chosen, _blobs(tree, [f"{rev}{mark}{name}" for name in chosen]), strict=True)


def _is_wanted(name: str, dialect: Dialect) -> bool:
    return name.endswith(SUFFIXES) and name.startswith(dialect.roots) and not any(part in name for part in dialect.skip)


def _files(tree: Path) -> list[str]:
    return sorted(file.relative_to(tree).as_posix() for file in tree.rglob("*") if file.is_file())


def _git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True, text=True).stdout


def _blobs(tree: Path, names: list[str]) -> Iterator[str]:
    """Yield the content of many files of a repository, by one git process."""
    command = ["git", "-C", str(tree), "cat-file", "--batch"]
    data = subprocess.run(command, check=True, capture_output=True, input="\n".join(names).encode()).stdout
    at = 0
    for _ in names:
        end = data.index(b"\n", at)
        size = int(data[at:end].rsplit(b" ", 1)[1])
        yield data[end + 1 : end + 1 + size].decode("utf-8", "replace")
        at = end + size + 2


def calls(files: Iterable[tuple[str, str]], dialect: Dialect) -> Iterator[Call]:
    """Yield every logging call of some source files; one call can print several formats."""
    names = "|".join(map(re.escape, dialect.macros))
    pattern = re.compile(rf"\b({names})\)?\s*\(")
    for file, content in files:
        text = blank_comments(content)
        for found in pattern.finditer(text):
            if text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip() == "#define":
                continue
            given = arguments(text, found.end())
            line = text.count("\n", 0, found.start()) + 1
            yield from _read_call(dialect.macros[found[1]], given, file, line)


def _read_call(macro: Macro, arguments: list[str], file: str, line: int) -> Iterator[Call]:
    level = macro.level
    if not level:
        found = _LOG_LEVEL.match(arguments[0].strip())
        if not found:
            return
        level = found[1]
    if len(arguments) <= macro.format or re.search(r"\b(__VA_ARGS__|fmt|format)\b", arguments[macro.format]):
        return  # the definition of a wrapper
    flags = arguments[macro.flags] if macro.flags is not None else ""
    subsystems = tuple(_SUBSYSTEM.findall(flags)) if level == "INFO" else ()
    for text in formats(arguments[macro.format]):
        yield Call(level, subsystems, macro.prefix + text, file, line)


def blank_comments(content: str) -> str:
    """Return the content with comments blanked, line by line."""
    content = content.replace("\\\n", _CONTINUED)
    return _BLANKED.sub(lambda found: found[1] or "\n" * found[0].count("\n") or " ", content)


def arguments(text: str, at: int) -> list[str]:
    """Return what stands between the commas of a call whose parenthesis was opened before ``at``."""
    found, depth = [""], 0
    while piece := TOKEN.match(text, at):
        token, at = piece[0], piece.end()
        depth += (token in "([{") - (token in ")]}")
        if depth < 0 or len(found) > 40:
            break
        if token == "," and depth == 0:
            found.append("")
        else:
            found[-1] += token
    return found


def formats(argument: str) -> list[str]:
    """Return the formats that an argument can be; ``%s`` when it holds no literal."""
    if '"' not in argument:
        return ["%s"]
    found = [""]
    for piece in _PIECE.finditer(argument):
        if piece["cut"]:
            if piece["cut"] == "?":
                found = []  # the condition
            found.append("")
        elif piece["name"]:
            if found:
                found[-1] += _read_name(piece["name"])
        elif found:
            found[-1] += _ESCAPE.sub(lambda char: _ESCAPES.get(char[1], char[1]), piece["text"].replace(_CONTINUED, ""))
    return [text for text in found if text] or ["%s"]


def _read_name(name: str) -> str:
    printf = _PRINTF.match(name)
    return "l" + printf[1] if printf else "%s"
