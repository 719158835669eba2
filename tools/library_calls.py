"""Reads the log messages out of a shipped ``libnccl.so.2`` (x86-64), for releases whose source is not at hand.

A call of ``ncclDebugLogInternal`` has its arguments in registers: level, flags, file, function, line, format. What was
put into them since the last call is followed through ``objdump``'s text; a call whose level or format is worked out
while the program runs is left out. Needs binutils.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from source_calls import Call

_LEVELS = {1: "VERSION", 2: "WARN", 3: "INFO", 6: "WARN"}
"""ncclDebugLogLevel; 6 is ATTN (2.32), of which the grammar knows warnings of older releases."""
_SUBSYSTEMS = (
    *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "CALL", "PROXY", "NVLS", "BOOTSTRAP"),
    *("REG", "PROFILE", "RAS", "DESTROY", "RMA", "GIN"),
)
"""By the bit of the flags."""
_ALL = 1 << 60
_LOGS = "ncclDebugLogInternal"
_WIDE = {
    **{f"e{name}": f"r{name}" for name in ("ax", "bx", "cx", "dx", "si", "di", "bp")},
    **{f"r{number}d": f"r{number}" for number in range(8, 16)},
}
_LOST_IN_CALLS = ("rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11")
_INSTRUCTION = re.compile(r"\s*[0-9a-f]+:\s+(\S+)\s*([^#\n]*)(?:#\s*([0-9a-f]+))?")
_MOVE = re.compile(r"%(\w+),%(\w+)\s*$")
_NUMBER = re.compile(r"\$0x([0-9a-f]+),%(\w+)\s*$")
_INTO = re.compile(r"(?:^|,)%(\w+)\s*$")
_READS_ONLY = ("cmp", "test", "push", "call", "jmp")
_SECTION = re.compile(r"\]\s+\.rodata\s+PROGBITS\s+(\w+)\s+(\w+)\s+(\w+)")


def library_calls(library: Path) -> Iterator[Call]:
    """Yield the messages of a library."""
    sections = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
    found = _SECTION.search(sections)
    if found is None:
        raise SystemExit(f"{library}: no section .rodata; is it a library of x86-64?")
    address, offset, size = (int(number, 16) for number in found.groups())
    with library.open("rb") as file:
        file.seek(offset)
        data = file.read(size)

    def read_text(place: int) -> str | None:
        start = place - address
        return data[start : data.find(b"\0", start)].decode("latin-1") if 0 <= start < size else None

    command = ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", str(library)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from find_calls(process.stdout, read_text)


def find_calls(instructions: Iterable[str], text_at: Callable[[int], str | None]) -> Iterator[Call]:
    """Yield the messages that instructions print.

    Args:
        instructions: as ``objdump -d`` shows them.
        text_at: the text at an address, None when there is none.
    """
    known: dict[str, int] = {}
    for line in instructions:
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name, arguments, address = found.groups()
        if name == "call":
            if _LOGS in arguments and (call := _call(known, text_at)):
                yield call
            for register in _LOST_IN_CALLS:
                known.pop(register, None)
        elif name == "lea" and address and (into := _INTO.search(arguments)):
            known[_wide_name(into[1])] = int(address, 16)
        else:
            _follow(name, arguments, known)


def _follow(name: str, arguments: str, known: dict[str, int]) -> None:
    """Follow what one instruction does to the registers of which the content is known."""
    if number := _NUMBER.match(arguments) if name.startswith("mov") else None:
        known[_wide_name(number[2])] = int(number[1], 16)
    elif name == "xor" and (pair := _MOVE.match(arguments)) and pair[1] == pair[2]:
        known[_wide_name(pair[1])] = 0
    elif name == "mov" and (pair := _MOVE.match(arguments)):
        if _wide_name(pair[1]) in known:
            known[_wide_name(pair[2])] = known[_wide_name(pair[1])]
        else:
            known.pop(_wide_name(pair[2]), None)
    elif (into := _INTO.search(arguments)) and not name.startswith(_READS_ONLY):
        known.pop(_wide_name(into[1]), None)


def _call(known: dict[str, int], text_at: Callable[[int], str | None]) -> Call | None:
    level, text = _LEVELS.get(known.get("rdi", 0)), text_at(known.get("r9", -1))
    if level is None or text is None:
        return None
    flags = known.get("rsi", 0)
    named = tuple(name for bit, name in enumerate(_SUBSYSTEMS) if flags >> bit & 1) if flags < _ALL else ("ALL",)
    file = text_at(known.get("rdx", -1)) or "unknown"
    return Call(level, named if level == "INFO" else (), text, file, known.get("r8", 0))


def _wide_name(register: str) -> str:
    return _WIDE.get(register, register)
