"""The grammar files: every production reads and writes its samples, and nobody else's."""

import pytest

import nccl_inspect
from nccl_inspect import event_types as events
from nccl_inspect.grammar import engine, notation
from nccl_inspect.grammar.production import Production
from nccl_inspect.grammar.types import FieldType, field_type

GRAMMAR = engine.shipped()
PRODUCTIONS = [pytest.param(p, id=f"{p.dialect}-{p.name}") for p in GRAMMAR.productions]


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_samples_are_read_and_written_back_byte_for_byte(production: Production) -> None:
    assert production.samples, "a production needs a sample"
    for sample in production.samples:
        message = sample.encode()
        match = production.match(message)
        if match is None:
            end = production.matched_up_to(message)
            pytest.fail(f"\n{sample}\n{'-' * end}^ matched up to here")
        assert production.render(match) == message


def _parse(production: Production, sample: str) -> engine.Parsed | None:
    """A line without a prefix is parsed by itself, not as a message."""
    return GRAMMAR.parse_bare(sample.encode()) if production.follows else GRAMMAR.parse(sample.encode())


def _candidates(production: Production, sample: str) -> list[Production]:
    if production.follows:
        return [other for other in GRAMMAR.productions if other.bare]
    return list(GRAMMAR.candidates(sample.encode()))


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_sample_is_claimed_by_one_production_only(production: Production) -> None:
    for sample in production.samples:
        claims = {f"{p.dialect}/{p.name}" for p in _candidates(production, sample) if p.match(sample.encode())}
        assert claims == {f"{production.dialect}/{production.name}"}


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_production_makes_its_event(production: Production) -> None:
    kind = events.KINDS[production.event]
    for sample in production.samples:
        parsed = _parse(production, sample)
        assert parsed is not None
        assert isinstance(parsed.event, kind)


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_pattern_is_linear_and_has_a_fixed_literal(production: Production) -> None:
    nodes = notation.parse(production.line)
    assert len(notation.needle(nodes).strip()) >= 2 or min(map(len, notation.leads(nodes))) >= 4, "no fixed literal"
    assert _free_texts_before_a_literal(nodes) <= 2, "several free texts make matching slow"


def _free_texts_before_a_literal(nodes: notation.Sequence) -> int:
    kinds = [field_type(f.spec) for f in notation.fields(nodes) if not f.spec.startswith("*")]
    return sum(isinstance(kind, FieldType) and kind.free for kind in kinds[:-1])


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_production_says_what_it_means(production: Production) -> None:
    assert production.says.endswith((".", ")")), "a sentence for people"
    assert production.subsys


def test_names_are_unique_within_a_dialect() -> None:
    names = [(p.dialect, p.name) for p in GRAMMAR.productions]
    assert len(names) == len(set(names))


def test_what_a_line_goes_on_with_exists() -> None:
    names = {(p.dialect, p.name) for p in GRAMMAR.productions}
    assert all((p.dialect, p.follows) in names for p in GRAMMAR.productions if p.follows)


def test_a_message_of_several_lines_is_one_event() -> None:
    head = next(p for p in GRAMMAR.productions if p.name == "enabled-matrix")
    rows = [p for p in GRAMMAR.productions if p.follows == head.name]
    lines = [f"vm:1:1 [0] NCCL INFO {head.samples[0]}", *(sample for row in rows for sample in row.samples)]
    found = list(nccl_inspect.events("\n".join(lines).encode()))
    assert [event.production for event in found] == ["enabled-matrix"]
    assert found[0].message.count("\n") == len(lines) - 1
