"""Reads grammar files: plain text, one file for each message family of a dialect.

::

    dialect: nccl
    family: transport
    subsys: INIT|P2P

    production: channel-p2p
    line: Channel {channel:02}/{conn} : {src}[{src_dev:id}] -> {dst}[{dst_dev:id}] via P2P/{mechanism:=CUMEM¦IPC}
    event: ChannelConnect transport=P2P
    versions: 2.14.3..
    says: The sender says which path this channel takes to its neighbour.
    sample: Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM

A value is everything after the colon and one blank, including blanks at its ends (``␣`` is also a blank). Lines that
begin with ``#`` are comments; a line that begins with two blanks continues the ``says`` above it. ``fragment:``
(name, blank, notation) may be repeated and ``sample:`` too. What precedes the first production holds for all.
``rule: NAME`` names the rule that an error leads to,
``role: WORD …`` says what kind of statement a line is, in words of ``roles.txt``,
``layer: NAME`` how near to a cause it is, where its roles do not say it (:mod:`nccl_inspect.grammar.layers`).
A field whose name begins with ``__`` is for rules only: no event lists it.
``follows: NAME`` is said of lines that have no prefix because they continue the message NAME of several lines,
``bare: yes`` of lines that come with and without a prefix,
``foreign: yes`` of whole lines that other programs print (PyTorch, libfabric, nccl-tests),
``rest: yes`` of foreign ones that take what the others leave of a form that only this program has,
``general: yes`` of shapes that are so wide that all others come before them, and that prove nothing,
``traced: yes`` of foreign ones that are wider still: only the line below the frames of a traceback is asked for them,
``last: yes`` of foreign ones that mean something only in the last lines of a log: no other line is asked for them.
"""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nccl_inspect.errors import GrammarError
from nccl_inspect.grammar.layers import BY_NAME, list_roles
from nccl_inspect.grammar.production import Details, Production

_KEYS = {
    *("dialect", "family", "production", "line", "event", "versions", "subsys", "says", "role", "layer", "rule"),
    *("sample", "fragment", "follows", "bare", "foreign", "rest", "general", "traced", "last"),
}


def list_files() -> Iterator[Path]:
    """Yield the grammar files of the package, in a fixed order."""
    folder = Path(__file__).parent / "dialects"
    for dialect in sorted(entry.name for entry in os.scandir(folder)):
        inside = folder / dialect
        yield from (
            inside / name for name in sorted(entry.name for entry in os.scandir(inside)) if name.endswith(".grammar")
        )


def read(text: str, name: str = "<grammar>") -> list[Production]:
    """Return the productions of one grammar file, checked; a GrammarError names what is wrong."""
    productions = index(text, name)
    for production in productions:
        _ = production.details
    return productions


def index(text: str, name: str = "<grammar>") -> list[Production]:
    """Return the productions of one grammar file by name and line; the rest is read on first use.

    A GrammarError says that its head is not well formed, or a production has no line.
    """
    head, *blocks = text.split("\nproduction: ")
    common = _entries(head, name)
    dialect, family = (common.get(key, [""])[0] for key in ("dialect", "family"))
    if not (dialect and family) or "production" in common:  # which would be left out without a word
        raise GrammarError(f"{name}: write 'dialect:' and 'family:' above the first production")
    is_renamed = dialect in _RENAMED
    has_bare = "\nfollows: " in text or "\nbare: yes" in text  # few files
    kinds = [kind for kind in ("foreign", "rest", "general", "traced", "last") if kind in common]
    productions = []
    for block in blocks:
        label = block[: block.find("\n")]
        line = _value(block, "\nline: ")
        if is_renamed and "cu" in line and _CUDA.search(line):
            line = _FIELD_OR_CUDA.sub(_add_hip_name, line)
        if not line:
            raise GrammarError(f"{name}: production '{label}' has no line")
        production = Production(label, dialect, family, line, partial(_details, block, common, name))
        if has_bare:
            production.follows = _value(block, "\nfollows: ")
            production.bare = bool(production.follows) or "\nbare: yes" in block
        for kind in kinds:
            setattr(production, kind, True)
        productions.append(production)
    return productions


def _add_hip_name(match: re.Match[str]) -> str:
    """Return the name of a function of CUDA with HIP's: RCCL's sources are NCCL's, renamed by hipify."""
    prefix, field = match["prefix"], match[0]
    if prefix:
        return f"«{prefix}¦hip»"
    return re.sub(r"(?<=[=¦])cu(?:da)?([A-Z][^¦}]*)", r"\g<0>¦hip\1", field)


_RENAMED = ("nccl", "rccl")
_NAME = r"(?P<prefix>cu(?<!\wcu)(?:da)?)(?=(?!Dev\b|Arch\b|DriverVersion\b|Mem(?:Enable|GdrSupport)?\b)[A-Z])"
_CUDA = re.compile(_NAME)
_FIELD_OR_CUDA = re.compile(r"\{[^{}]*\}|" + _NAME)


def _value(block: str, mark: str) -> str:
    """Return the first value of a key with the marks around it, without parsing the whole block."""
    return block.partition(mark)[2].partition("\n")[0]


def _details(block: str, common: dict[str, list[str]], name: str) -> Details:
    own = _entries("production: " + block, name)
    event, *constants = own.get("event", ["Message"])[0].split()
    given, (layer,) = frozenset(" ".join(own.get("role", ())).split()), own.get("layer", [""])
    wrong = [
        f"has the unknown role '{role}'; choose from {', '.join(sorted(list_roles()))}"
        for role in (given - list_roles().keys() if given else ())
    ]
    if layer and layer not in BY_NAME:
        wrong.append(f"has no such layer '{layer}'; choose from {', '.join(BY_NAME)}")
    if wrong:
        raise GrammarError(f"{name}: production '{own['production'][0]}' {min(wrong)}")
    versions, subsys, says, rule = (
        (own.get(key) or common.get(key) or [""])[0] for key in ("versions", "subsys", "says", "rule")
    )
    return Details(
        event=event,
        constants=dict(_split(text, "=", f"{name}: '{text}' is not of the form field=value") for text in constants),
        versions=versions,
        subsys=subsys or "INIT",
        says=says,
        rule=rule,
        roles=given,
        layer=layer,
        samples=tuple(sample.replace("␣", " ") for sample in own.get("sample", ())),
        fragments=dict(
            _split(text, " ", f"{name}: fragment '{text}' has no notation")
            for text in (*common.get("fragment", ()), *own.get("fragment", ()))
        ),
    )


def _split(text: str, mark: str, fault: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise GrammarError(fault)
    return before, after


def _entries(text: str, name: str) -> dict[str, list[str]]:
    """Return the keys of one block with their values."""
    entries: dict[str, list[str]] = {}
    last = ""
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        if line.startswith("  ") and last == "says":
            entries[last][-1] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        if not colon or key not in _KEYS:
            raise GrammarError(f"{name}: '{key}' is not a key of a grammar file")
        entries.setdefault(key, []).append(value[1:])
        last = key
    return entries
