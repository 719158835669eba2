"""The grammar on real text: real messages are written back, and what NCCL never prints stays unrecognised."""

from __future__ import annotations

import gzip
import string
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sample_data import FOLDER

from nccl_inspect.grammar import engine
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix

GRAMMAR = engine.shipped()
LOGS = sorted(file for file in FOLDER.rglob("*.log*") if file.is_file())
MESSAGES = [
    (production, sample.encode())
    for production in GRAMMAR.productions
    if not production.foreign and not production.follows
    for sample in production.samples
]
WORDS = st.one_of(
    st.sampled_from(
        ["NCCL", "rank", "failed", "error:", "with", "returned", "->", "12", "0x7f01", "[0]", "comm", "GPU"]
    ),
    st.text(string.ascii_lowercase, min_size=2, max_size=9),
)


def _lines(file: Path) -> list[bytes]:
    """The lines of a sample without the colours of a terminal."""
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return list(envelopes.cleaned(data.split(b"\n"), data))


@pytest.mark.parametrize("file", LOGS, ids=lambda file: str(file.relative_to(FOLDER)))
def test_every_message_of_the_samples_is_written_back_byte_for_byte(file: Path) -> None:
    unknown = []
    for line in _lines(file):
        found = prefix.split(line)
        message = found[1].partition(b" ")[2] if found else line
        if found and GRAMMAR.parse(message) is None:
            message = envelopes.without_trailer(message)
        parsed = GRAMMAR.parse(message) if found else GRAMMAR.parse_bare(line)
        if parsed is not None:
            match = parsed.production.match(message)
            assert match
            assert parsed.production.render(match) == message
        elif found:
            unknown.append(message)
    if "torn" not in str(file):
        assert unknown == []


def _letters_of_literals(production: Production, message: bytes) -> list[int]:
    """Where the letters stand that the production itself prescribes."""
    match = production.match(message)
    assert match
    taken = {at for _, _, group in production.shape.fields for at in range(*match.span(group))}
    return [at for at, char in enumerate(message) if at not in taken and chr(char) in string.ascii_letters]


def _is_free(production: Production, message: bytes, at: int) -> bool:
    """Whether the byte belongs to a field that can be any text, such as the error text of another library."""
    match = production.match(message)
    assert match
    return any(start <= at < end for start, end in production.shape.free_spans(match))


@given(st.data())
def test_a_message_with_a_wrong_letter_is_not_recognised(data: st.DataObject) -> None:
    production, message = data.draw(st.sampled_from(MESSAGES))
    letters = _letters_of_literals(production, message)
    assume(letters)
    at = data.draw(st.sampled_from(letters))
    other = data.draw(st.sampled_from([c for c in string.ascii_lowercase if c != chr(message[at]).lower()]))
    wrong = message[:at] + other.encode() + message[at + 1 :]
    parsed = GRAMMAR.parse(wrong)
    assert parsed is None or _is_free(parsed.production, wrong, at)


@given(st.lists(WORDS, min_size=1, max_size=12).map(" ".join))
def test_words_in_any_order_are_not_recognised(text: str) -> None:
    assert GRAMMAR.parse(text.encode()) is None
    assert GRAMMAR.parse_bare(text.encode()) is None


@given(st.sampled_from(MESSAGES), st.randoms(use_true_random=False))
def test_the_words_of_a_message_in_another_order_are_not_its_production(
    case: tuple[Production, bytes], random: Random
) -> None:
    production, message = case
    match = production.match(message)
    assert match
    assume(not production.shape.free_spans(match))  # any words may stand there
    words = message.split(b" ")
    assume(len(words) > 3)
    shuffled = [*words]
    random.shuffle(shuffled)
    assume(shuffled[:2] != words[:2])
    parsed = GRAMMAR.parse(b" ".join(shuffled))
    assert parsed is None or parsed.production is not production
