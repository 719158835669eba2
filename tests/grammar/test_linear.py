"""Matching takes time in proportion to the input, whatever it holds: no pattern can be made to hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from envelope_samples import samples_of

from nccl_inspect.grammar import engine, notation
from nccl_inspect.grammar.notation import Choice, Literal
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import readers
from nccl_inspect.ingest.lines import prefix, torn
from nccl_inspect.ingest.sources import exports, log_detection
from nccl_inspect.judging import exceptions
from nccl_inspect.model.statements import job_failure, unrecognised
from nccl_inspect.scanning import scanner

pytestmark = pytest.mark.slow
SIZES = (500, 2000, 8000)
FAST = 0.002
"""Seconds below which nobody needs to look: a step for each pair of bytes takes longer."""
GROWTH = 9.0
"""Linear is 4, quadratic 16."""

Match = Callable[[bytes], object]


def seconds(match: Match, data: bytes) -> float:
    """Return the shortest of some tries, in time of the processor: what else runs on the machine can only add."""
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        match(data)
        best = min(best, time.thread_time() - began)
        if best < FAST:
            break
    return best


def grows_too_fast(match: Match, before: bytes, unit: bytes, after: bytes, sizes: tuple[int, int, int] = SIZES) -> bool:
    def make_text(size: int) -> bytes:
        return before + unit * (size // len(unit) + 1) + after

    small, big, huge = map(make_text, sizes)
    middle = seconds(match, big)
    if middle < FAST or middle < GROWTH * seconds(match, small):
        return False
    return seconds(match, huge) > GROWTH * seconds(match, big)  # twice: one measurement may be disturbed


def attacks(sample: bytes, places: list[int], units: set[bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the sample up to a place, something again and again, then what cannot be the end, or what follows."""
    for at in places:
        for unit in {*units, sample[at:], sample[at : at + 3]} - {b""}:
            yield sample[:at], unit, b"\x01"
            yield sample[:at], unit, sample[at:] + b"\x01"


def literals(nodes: notation.Sequence) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Literal):
            yield node.text
        elif isinstance(node, Choice):
            for option in node.options:
                yield from literals(option)


def attacks_on(production: Production) -> Iterator[tuple[bytes, bytes, bytes]]:
    shape = production.shape
    texts = [*literals(shape.nodes), *(text for one in shape.fragments.values() for text in literals(one.nodes))]
    units = {text.encode() for text in texts} | {text.encode() + b"a" for text in texts} | {b"a", b"0", b" ", b"/"}
    units |= {b"0" + text.encode() for text in texts} | {"".join(texts).encode()}
    sample = production.samples[0].encode()
    match = production.match(sample)
    assert match
    places = {match.start(group) for group in range(1, (match.re.groups or 0) + 1)} - {-1}
    return attacks(sample, sorted(places), units)


@pytest.mark.parametrize("dialect", sorted({one.dialect for one in engine.load_grammar().productions}))
def test_the_time_of_a_production_grows_with_the_message(dialect: str) -> None:
    productions = [one for one in engine.load_grammar().productions if one.dialect == dialect]
    slow = {
        (production.name, before[:40], unit[:40], after[:40])
        for production in productions
        for before, unit, after in attacks_on(production)
        if grows_too_fast(production.match, before, unit, after)
    }
    assert not slow


HEAD = b"[2026-01-01 00:00:00] host-1:123:456 [0] transport/net.cc:12 (func)"
LINE = HEAD + b" NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
READERS: dict[str, tuple[Match, bytes]] = {
    "core": (prefix._CORE.fullmatch, HEAD),
    "led": (prefix._LED.fullmatch, b"x> " + HEAD),
    "masked": (prefix._MASKED.fullmatch, b"xxx:xxx:xxx [0]"),
    "parse": (prefix.parse, HEAD),
    "split": (prefix.split, LINE),
    "glued": (scanner._GLUED.search, LINE),
    "colours": (envelopes._ANSI.search, b"\x1b[31mx\x1b]0;t\x07"),
    "torn": (torn._PREFIX.findall, LINE + b"\n" + LINE),
    "is torn": (torn.is_torn, LINE + HEAD + LINE + b"\n" + LINE),
    "is a log": (log_detection._NCCL_LINE.search, LINE),
    "member": (readers._MEMBER.fullmatch, b'  "message" : "x" ,'),
    "template": (lambda data: unrecognised.template(data.decode("latin-1")), b"a 0x12 12.5.3 :abcdef"),
    "last words": (scanner._LAST_WORDS.search, b"node-1: [rank3]: a.b.c_Error: Exception Error"),
    "peers": (lambda data: exceptions._OF_PEERS.match(data.decode("latin-1")), b"RuntimeError: [c10d/gloo/x Rank 1 f"),
    "absent": (lambda data: exceptions._ABSENT.findall(data.decode("latin-1")), b"Ranks 1, 2, 3 failed to pass"),
    "endings": (
        lambda data: job_failure.end_text(data, wrapped=False),
        b"slurmstepd: error: *** JOB 1 ON x CANCELLED AT DUE TO TIME LIMIT ***",
    ),
}
UNITS = {b"a", b"0", b" ", b"[", b"(", b'"', b"{", b"\\", b",", b":", b"a:", b":1", b" NCCL ", b"a b", b"\x1b", b"-1 "}


def test_the_time_of_a_reader_grows_with_the_line() -> None:
    readers = [(name, match, sample) for name, (match, sample) in READERS.items()]
    for name, one in envelopes.list_envelopes().items():
        matches: list[Callable[[bytes], object]]
        matches = [one.pattern.match, *([one.read] if one.reader else [])]
        matches += [one.trailer[1].search] if one.trailer else []
        readers += [(name, match, sample) for sample in samples_of(one) for match in matches]
    slow = []
    for name, match, sample in readers:
        places = list(range(0, len(sample) + 1, 1 + len(sample) // 25))
        slow += [(name, one) for one in attacks(sample, places, UNITS) if grows_too_fast(match, *one)]
    assert not slow


RECORD = b'{"message":"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000"},\n'
EXPORTS = {
    "open objects": (b"[" + RECORD, b'{"a":1,'),
    "open arrays": (b"[" + RECORD, b"[1,"),
    "strings": (b"[" + RECORD, b'"a",'),
    "broken objects": (b"[" + RECORD * 8, b'{"a:\n'),
    "quotes": (b"[" + RECORD * 8, b'"\n'),
}


def through_document(data: bytes) -> None:
    document = exports.Document()
    list(document.feed(data))
    list(document.finish())


def through_sheet(data: bytes) -> None:
    sheet = exports.Sheet(["@message"], ",")
    list(sheet.feed(data))
    list(sheet.finish())


def test_a_broken_export_is_read_in_linear_time() -> None:
    slow = [
        name
        for name, (before, unit) in EXPORTS.items()
        if grows_too_fast(through_document, before, unit, b"", sizes=(50_000, 200_000, 800_000))
    ]
    assert not slow
    assert not grows_too_fast(through_sheet, b'@message\n"', b"\n", b""), "a quote that never ends"
