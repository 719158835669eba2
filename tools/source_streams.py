"""Finds what a C++ program with Abseil's log prints: streams (``LOG(INFO) << …``) and the texts of its errors.

What stands between ``<<`` becomes a format: literals are joined, ``absl::StrFormat`` gives its format, ``absl::StrCat``
its parts, and everything else is ``%s``. An error (``absl::InternalError("…")``) is printed where it ends up, behind
the name of its code; what is added on the way (``RETURN_IF_ERROR(…) << "…"``) follows a semicolon. The program's log
prints each line of a text as a message of its own, and its prefix before the first one only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

from source_calls import TOKEN, Call, Dialect, arguments, blank_comments, formats

_STREAM = re.compile(r"\b(?P<kind>P?LOG(?:_IF|_FIRST_N|_EVERY_N_SEC)?)\s*\(")
_ADDED = re.compile(r"\b(?:RETURN_IF_ERROR\s*\(|_\s*(?=<<))")
_ERROR = re.compile(r"\b(?:absl::(?P<code>[A-Z]\w+)Error|(?P<system>absl::ErrnoToStatus|SysCallResultToStatus))\s*\(")
_SEVERITY = {"INFO": "INFO", "WARNING": "WARN", "ERROR": "WARN", "FATAL": "WARN", "DFATAL": "WARN"}
_CALL = re.compile(r"\s*(?:absl::)?(?P<name>\w+)\s*\(")
_HEADER = re.compile(r"^[ \t]*#define[ \t]+(?P<name>\w+)[ \t]+(?P<text>[^\n]*<<[^\n]*)$", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z]")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_MOST = 16
"""Formats of one stream: each choice of words doubles them."""


def stream_calls(files: Iterable[tuple[str, str]], dialect: Dialect) -> Iterator[Call]:
    """Yield every message of some source files, line by line."""
    for file, content in files:
        text = _write_headers_out(blank_comments(content))
        logged = () if file.startswith(dialect.answers) else (*_streams(text), *_additions(text))
        for start, level, shown in (*logged, *_errors(text)):
            line, subsystems = text.count("\n", 0, start) + 1, ("NET",) if level == "INFO" else ()
            yield from (Call(level, subsystems, one, file, line) for one in _lines(shown, dialect))


def _write_headers_out(text: str) -> str:
    """Return the text, with macros that stand for the beginning of a stream written out."""
    for header in _HEADER.finditer(text):
        text = re.sub(rf"(?<!#define ){header['name']}\b", lambda _, by=header["text"]: by, text)  # type: ignore[misc]
    return text


def _streams(text: str) -> Iterator[tuple[int, str, str]]:
    for found in _STREAM.finditer(text):
        inside = arguments(text, found.end())
        level = _SEVERITY.get(inside[0].strip(), "INFO")  # LOG(LEVEL(…)): one that the user chooses
        for shown in _operands(text, _find_close(text, found.end())):
            yield found.start(), level, shown + (": %s [%d]" if found["kind"].startswith("P") else "")


def _errors(text: str) -> Iterator[tuple[int, str, str]]:
    for found in _ERROR.finditer(text):
        inside = arguments(text, found.end())
        code = _CAPITAL.sub("_", found["code"]).upper() if found["code"] else "%s"
        for shown in _operand(inside[-1]):
            yield found.start(), "WARN", f"{code}: {shown}" + ("" if found["code"] else ": %s")


def _additions(text: str) -> Iterator[tuple[int, str, str]]:
    for found in _ADDED.finditer(text):
        at = _find_close(text, found.end()) if found[0].endswith("(") else found.end()
        yield from ((found.start(), "WARN", f"%s; {shown}") for shown in _operands(text, at) if shown)


def _lines(shown: str, dialect: Dialect) -> Iterator[str]:
    """Yield the messages of one text; one that is put together elsewhere as a whole has no words."""
    first, *more = shown.split("\n")
    yield dialect.prefix + first if _WORD.search(first.replace("%s", "").replace("%d", "")) else "%s"
    yield from (line for line in more if _WORD.search(line.replace("%s", "").replace("%d", "")))


def _find_close(text: str, at: int) -> int:
    """Return the position behind the parenthesis that was opened before ``at``."""
    depth = 1
    while depth and (token := TOKEN.match(text, at)):
        depth += (token[0] in "([{") - (token[0] in ")]}")
        at = token.end()
    return at


def _operands(text: str, at: int) -> list[str]:
    """Return what a stream that begins at ``at`` can print; it ends with its statement, or with its call."""
    parts, depth = [""], 0
    while token := TOKEN.match(text, at):
        at = token.end()
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if depth < 0:
            break
        if depth or token[0][0] in "\"'":
            parts[-1] += token[0]
            continue
        code, end, _ = token[0].partition(";")
        first, *more = code.split("<<")
        parts[-1] += first
        parts += more
        if end:
            break
    return _join_parts(_operand(part) for part in parts[1:])


def _operand(part: str) -> list[str]:
    """Return what one operand of a stream can print."""
    called = _CALL.match(part)
    if called and called["name"] == "StrFormat":
        return formats(arguments(part, called.end())[0])
    if called and called["name"] == "StrCat":
        return _join_parts(_operand(one) for one in arguments(part, called.end()))
    if called:
        return ["%s"]
    return formats(part)


def _join_parts(parts: Iterable[list[str]]) -> list[str]:
    return ["".join(choice) for choice, _ in zip(product(*parts), range(_MOST), strict=False)]
