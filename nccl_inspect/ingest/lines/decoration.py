"""What people put around lines that they pass on in an issue, a chat or a mail, and how it is taken off again.

Nothing here knows a message of NCCL: a line is given with less and less around it, and who knows messages says which of
these it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines.prefix import MARK
from nccl_inspect.util.levels import ANY
from nccl_inspect.util.patterns import compile_later

PASTE = 1 << 17  # bytes of the longest text that may be an excerpt; what is longer is a log
ELISION = (
    rb"(?:\.{3,6}|\xe2\x80\xa6|\[(?:\.{2,}|\xe2\x80\xa6|[Tt]runcated|snip|cut|omitted)\]|\((?:\.{3}|\xe2\x80\xa6)\)"
    rb"|<snip>|-+ ?(?:snip|8<) ?-+"
    rb"|(?:[<(\[.-]|\xe2\x80\xa6){0,8} ?(?:\d[\d,]* |many |some )?(?:more )?(?:log )?lines? "
    rb"(?:are |were )?(?:omitted|skipped|snipped|truncated|removed|elided|hidden|cut|left out)"
    rb" ?(?:[>)\].-]|\xe2\x80\xa6){0,8}"
    rb"|(?:\.{3}|\xe2\x80\xa6) ?\d[\d,]* (?:more )?lines? ?(?:\.{3}|\xe2\x80\xa6)?)"
)
_LINE = (
    rb"\n[ \t>|*_`#+-]*"
    rb"(?=[.\xe2\[(<\- \dmsl])"  # with which they begin: most lines are not looked at further
    + ELISION
    + rb"[ \t|*_`\r]*$"
)  # one after another line, which is found faster than one at the beginning of any
_SIGNS = b"..", b"\xe2\x80\xa6", b"line", b"snip", b"8<-", b"8< -", b"runcated]", b"cut]", b"omitted]"
"""One of these is in each such line; searching for them takes a hundredth of the time."""
_SPARED = b"x across cluster]"
"""What Ray puts behind a line that it shows for several workers: ``[repeated 7x across cluster]``."""


def is_elided(text: bytes) -> bool:
    """Return whether a line of a text says that others were left out."""
    return any(sign in text for sign in _SIGNS) and re.search(_LINE, b"\n" + text, re.MULTILINE) is not None


DECORATION = (
    rb"(?<=[\w.)\]}>'\"])(?:\*{2,3}|`{1,3}|~~|</?[A-Za-z]{1,10} ?/?>|[ \t]+\\|[ \t]*(?:\.{3}|\xe2\x80\xa6)"
    rb"|\xe2\x80[\x99\x9d]|(?:\x1b|\^\[)?\[0?m)+"
)  # what is put behind a line that is quoted; a row of asterisks is no such thing
_ENDS = b"*", b"`", b"~", b">", b"\\", b"...", b"\xe2\x80\xa6", b"\xe2\x80\x99", b"\xe2\x80\x9d", b'"', b"[m", b"[0m"
"""How it ends: few lines do, so most are not searched for it."""


def is_decorated(text: bytes) -> bool:
    """Return whether a line of a text ends with what is put behind a quoted one."""
    lines = (line.rstrip(b" \t\r") for line in text.split(b"\n"))
    return any(strip_decoration(line) != line for line in lines if line.endswith(_ENDS))


def strip_decoration(text: bytes) -> bytes:
    """Return a text without it, and without what follows the end of a quotation that began before it."""
    less = re.sub(DECORATION + rb"[ \t\r]*$", b"", text)
    less = less.rpartition(b'"')[0] if less.count(b'"') % 2 else less
    return less[:-1] if less.endswith(b"'") and less.count(b"'") % 2 else less


def find_sampled_lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of NCCL of which a collector says that it left out others like them, with their places from 0."""
    at = -1
    while (at := text.find(_SPARED, at + 1)) >= 0:
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        line = text[begin : end if end >= 0 else len(text)]
        if MARK in line:
            yield text.count(b"\n", 0, at), line


_MOST = 32  # ways to see a line that are tried: a sentence has more of them, and is none
_MARKUP = compile_later(
    rb"<(?:/?(?:b|i|em|strong|code|pre|p|li|ul|ol|td|tr|span|div|samp|tt|kbd)|font[^<>]{0,80})>", re.I
)
_CELL_EDGE = compile_later(rb"(?:</?t[dh]>)+")
_TYPOGRAPHY = {
    b"\xc2\xa0": b" ",
    b"\xe2\x80\xaf": b" ",
    **dict.fromkeys((b"\xe2\x80\x8b", b"\xe2\x80\x8c", b"\xe2\x80\x8d", b"\xe2\x81\xa0"), b""),
    **dict.fromkeys((b"\xef\xbb\xbf", b"\xef\xb8\x8f", b"\xc2\xad"), b""),
    b"\xe2\x80\x98": b"'",
    b"\xe2\x80\x99": b"'",
    b"\xe2\x80\x9c": b'"',
    b"\xe2\x80\x9d": b'"',
    b"\t": b" ",
}  # what word processors and chats make of blanks and quotation marks
_COLOR = compile_later(rb"(?:\^\[|\\(?:e|033|x1[bB]|u001[bB])|\xe2\x90\x9b)?\[\d{0,3}(?:;\d{1,3}){0,4}m")
"""A colour whose escape was lost, or was written in letters."""
_ESCAPED = compile_later(rb"\\([_*\[\]<>#()~`|.!{}+-])")  # a sign that Markdown would take for its own
_BLANKS = compile_later(rb"(?<=\S) {2,}")
_COLON = compile_later(rb"(?<=[\w)\]]) ?: (?=\S)")
_BREAKS = compile_later(rb"<br\s?/?>|\xe2\x8f\x8e|\xe2\x86\xb5|\\n", re.IGNORECASE)  # what stands for a line end
_BLANK = compile_later(rb"(?<=\S) +(?=\S)")
_MOST_WORDS = 64
_CELL = compile_later(rb"\s\|\s")
_CELLS = 3  # a row of a log has a time, maybe who printed, and the line; others are of a table about something
_ARROWS = compile_later(rb"\s*(?:\xe2\x86\x92|\xe2\x87\x92|\xe2\x9e\x9c|\xe2\x86\x93|\s=>\s)\s*")
_ARROW = compile_later(rb"\xe2\x86\x92|\xe2\x87\x92")
_KEYS = rb"sample|example|line|says|event|fix|cause|means|note|evidence|needs|format|message|text|name|e\.g"
"""Words before a colon that introduce a quotation; others may be the name of who speaks or prints."""
_SPEAKER = rb"@?[\w.@-]{1,40}(?: [A-Z][\w.-]{0,30})?(?: ?\[[^\[\]]{1,30}\]| ?\([^()]{1,30}\))?"
_LEADS = tuple(
    compile_later(lead)
    for lead in (
        rb"(?:> ?)+|\|+ ?",
        rb"(?:[-*+\xb7]|\xe2\x80\xa2|\xe2\x80\xa3|\xe2\x97\xa6|\xe2\x80\x93|\xe2\x80\x94|[-*] \[[ x]\]) ",
        rb"(?:\(?\d{1,4}[.):]|L\d{1,5}:?|\d{1,6}(?: ?[|:]| {1,3})) ?(?=\S)",
        rb"[$#%] ?(?=\S)",
        rb"[+-](?=[^\s+-])",
        rb"(?:\xe2\x86\x92|\xe2\x87\x92|\xe2\x9e\x9c|\xe2\x86\xb3|[-=]{1,2}>|<-)\s*",
        rb"[\[(]?(?:\d{4}-\d\d-\d\d[ T])?\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?Z?(?: ?[AaPp][Mm])?[\])]?:? ?",
        rb"(?!(?:" + _KEYS + rb"):)(?:<[@\w][\w .@-]{0,40}>:? |" + _SPEAKER + rb": (?=\S))",
        rb"Last error: ?",
        ELISION + rb"\s*",
        rb"(?:[\xe2\xf0][\x80-\xbf]{2,3}){1,4} ?(?=\S)",
        rb"(?P<mark>[_*~`'\"])(?P=mark){0,2}(?=\S)",
    )
)  # decorations before a line, one by one
_TRAILS = tuple(
    compile_later(rb"(?:" + trail + rb")$")
    for trail in (
        rb"(?P<mark>[_*~`'\"])(?P=mark){0,2}",
        rb"[,;]",
        rb"\s*\|",
        rb"\s*" + ELISION,
        rb"(?<=\.)\.{3}",
        rb"\s*\\|\s*<br\s?/?>",
        rb"\s+<-.{0,60}|\s+#.{0,60}",
    )
)  # decorations after it
_TRAIL = 120  # bytes of the end of a line that hold them: from each blank of a whole line on, they would be looked for
MARGIN = compile_later(rb"^[\s>|]+")
_CODE = compile_later(
    rb"^[\s>]*(?:`{3,}|~{3,}) *(?P<language>[\w+-]*)[^`\n]*$|^\s*\{(?:code|noformat)(?::(?P<jira>[\w+-]*))?[^{}\n]*\}"
)
_REPORT = compile_later(rb"log {10}.{1,400}: [\d,]+ lines?, [\d,]+ of NCCL")
"""How a report of this program begins: it cites lines, and folds them."""
_PROGRAMS = frozenset(b"python py c cpp c++ cuda sh bash shell zsh toml yaml yml ini json xml make cmake diff".split())


def normal(line: bytes) -> bytes:
    """Return a line without what typography and markup did to it."""
    if b"&" in line:
        line = envelopes.without_entities(line)
    for sign, plain in _TYPOGRAPHY.items() if not line.isascii() or b"\t" in line else ():
        line = line.replace(sign, plain)
    if b"<" in line:
        line = _MARKUP.sub(b"", _CELL_EDGE.sub(b" ", line))
    if b"m" in line and b"[" in line:
        line = _COLOR.sub(b"", line)
    return line.strip()


def narrow(text: bytes) -> bytes:
    """Return lines with one blank before ``NCCL`` where each that has it has more."""
    at = text.find(MARK)
    if text[max(0, at - 1) : max(0, at)] != b" " or _ONE_BLANK.search(text):
        return text  # a line among others was torn there
    return _WIDE.sub(MARK, text)


_ONE_BLANK, _WIDE = (compile_later(blanks + rb"NCCL (?=" + ANY + rb" )") for blanks in (rb"[^ \n] ", rb" {2,}"))


def plainer(line: bytes) -> Iterator[bytes]:
    """Yield a line, and what it may have been before Markdown, a table or a typist changed it."""
    yield line
    if b"\\" in line and (less := _ESCAPED.sub(rb"\1", line)) != line:
        yield less
    if b"  " in line and 2 * len(_BLANKS.findall(line)) >= len(line.split()) - 1:  # one double blank is of a torn line
        line = _BLANKS.sub(b" ", line)
        yield line
    respaced = _COLON.sub(b": ", line), _COLON.sub(b" : ", line), line.replace(b"`", b"'")
    yield from (text for text in respaced if text != line)
    if (arrows := _ARROW.sub(b"->", line)) != line:
        yield arrows


def layers(line: bytes) -> Iterator[bytes]:
    """Yield each way to see a line, from that with the most around it to that with the least."""
    ways = [line]
    seen = {line}
    for way in ways:
        yield way
        shorter = [way[match.end() :] for lead in _LEADS if (match := lead.match(way))]
        tail = max(0, len(way) - _TRAIL)
        shorter += [way[: match.start()] for trail in _TRAILS if (match := trail.search(way, tail))]
        layer = envelopes.peel(way)
        if layer and (way.startswith(b"[") or layer.stated.time or layer.stated.rank is not None):
            shorter.append(layer.text)
        for less in map(bytes.strip, shorter):
            if less and less not in seen and len(ways) < _MOST:
                seen.add(less)
                ways.append(less)


def endings(text: bytes) -> list[bytes]:
    """Return a text, then with less and less of what may have been put after it."""
    ways = [text.rstrip()]
    for way in ways:
        shorter = (way[: match.start()].rstrip() for trail in _TRAILS if (match := trail.search(way)))
        ways += [less for less in shorter if less and less not in ways and len(ways) < _MOST]
    return ways


def beginnings(text: bytes) -> list[bytes]:
    """Return a text, then without its last words: a sentence may continue behind what it quotes."""
    ends = [len(text), *(match.start() for match in _BLANK.finditer(text))][:_MOST_WORDS]
    return [strip_decoration(text[:end].rstrip(b",;")) for end in sorted(ends, reverse=True)]


def parts(line: bytes) -> list[bytes]:
    """Return what a line was put together from: by line ends written in letters, arrows, and few cells of a table."""
    cells = [cell for cell in _CELL.split(line.strip(b"| ")) if cell.strip()]
    if len(cells) > _CELLS:
        return [line]
    pieces = [piece for cell in cells for piece in _BREAKS.split(cell)]
    return [part for piece in pieces for part in _ARROWS.split(piece) if part.strip()]


def join_ways(lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield what lines are together that were one before, and how many they are: first the fewest.

    A terminal breaks inside of words, a mail at a blank.
    """
    tried = [lines[0]]
    for size, line in enumerate(lines[1:], 2):
        rest = MARGIN.sub(b"", line)
        tried = [text.rstrip() + glue + rest for text in tried for glue in (b" ", b"")]
        yield from ((size, text) for text in tried)


def mark_code(lines: Sequence[bytes]) -> list[bool]:
    """Return for each line whether it may be one of a log: where a text marks what is, all else is prose."""
    marks = [_CODE.match(line) for line in lines]
    is_marked = sum(mark is not None for mark in marks) > 1
    answers, opened, wanted = list[bool](), not is_marked, True
    for line, mark in zip(lines, marks, strict=True):
        wanted = wanted and not _REPORT.match(line)
        answers.append(opened and wanted and mark is None)
        if mark is not None and is_marked:
            opened = not opened
            wanted = (mark["language"] or mark["jira"] or b"").lower() not in _PROGRAMS
    return answers
