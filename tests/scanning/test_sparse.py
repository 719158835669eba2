"""Lines of other programs that are passed over."""

import random
import sys
from base64 import b64encode

import pytest
from call_count import calls_by_function

from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes
from nccl_inspect.scanning.bulk import Sieve

_STEP = b"[2026-11-20 10:00:%02d] step=%d loss=0.%d"
_NCCL = b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000"


def _text(*others: bytes) -> bytes:
    lines = [_STEP % (number % 60, number, number * 7) for number in range(1000)]
    lines[500:500] = [_NCCL, *others, _STEP % (1, 2, 3), _NCCL]
    return b"\n".join(lines)


def _sieve() -> Sieve:
    return Sieve(lambda: (*engine.load_grammar().signs(), *envelopes.SIGNS_OF_PARTIALS))


def test_what_means_nothing_is_not_picked() -> None:
    sieve = _sieve()
    for _ in range(3):
        picked = sieve.pick_lines(_text())
        assert [line for _, line in picked.lines] == [_NCCL, _NCCL]
        assert [place for place, _ in picked.lines] == [500, 502]


def test_lines_that_never_look_the_same_are_compared() -> None:
    sieve = _sieve()
    words = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for number in range(len(words)):
        picked = sieve.pick_lines(_text(b"epoch " + words[: number + 1]))
        assert [line for _, line in picked.lines] == [_NCCL, _NCCL]


def _vary_line(*others: bytes) -> bytes:
    """Return a block of lines of many letters, no two of which look the same."""
    chance = random.Random(3)
    lines = [b"".join((b'{"payload": "', b64encode(chance.randbytes(60)), b'"}')) for _ in range(8000)]
    lines[4000:4000] = [_NCCL, *others, lines[0], _NCCL]
    return b"\n".join(lines)


@pytest.mark.slow
def test_texts_are_found_among_lines_that_never_look_the_same() -> None:
    learned, fresh = _sieve(), _sieve()
    learned.pick_lines(_vary_line())
    signs = sorted(engine.load_grammar().signs())
    for shift in range(4):
        text = b"-" * shift + _vary_line(*signs, b"NCCL version 2.28.9+cuda13.0", b"srun: error: task 3", b"", b"saved")
        by_grams = learned.pick_lines(text)
        assert "nccl_inspect.scanning.grams" in sys.modules
        assert by_grams.size == text.count(b"\n") + 1
        assert by_grams.lines == fresh.pick_lines(text).lines


def test_lines_of_all_letters_are_no_reason_to_compare_all_signs_with_them() -> None:
    sieve, text = _sieve(), _vary_line()
    calls = calls_by_function(lambda: sieve.pick_lines(text))
    assert sum(calls.values()) < 4 * text.count(b"\n")
