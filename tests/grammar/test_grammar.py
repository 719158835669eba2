"""The grammar files: every production reads and writes its samples, and nobody else's; real logs come back, too."""

from __future__ import annotations

import gzip
import random
import re
import string
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import regex
import sample_data
from few_examples import every
from hypothesis import assume, given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.errors import GrammarError, NoInputError
from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine, files, notation
from nccl_inspect.grammar.layers import list_roles
from nccl_inspect.grammar.notation import beginning, field_type, rewrite_for_beginnings
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.judging.engine import list_rules

GRAMMAR = engine.load_grammar()
PRODUCTIONS = GRAMMAR.productions


def block_of(production: Production) -> str:
    return f"nccl_inspect/grammar/dialects/{production.dialect}/{production.family}.grammar: {production.name}"


# --- each production


def test_each_production_is_sound() -> None:
    wrong = [f"{block_of(one)}: {what}" for one in PRODUCTIONS for what in (*faults(one), *faults_of_samples(one))]
    assert not wrong, "\n".join(wrong)


def faults(one: Production) -> Iterator[str]:
    nodes = notation.parse(one.line)
    if not (
        len(notation.quick_needle(one.line).strip()) >= 2 or min(map(len, notation.leads(nodes))) >= 4 or one.foreign
    ):
        yield "no fixed literal"
    counts = [free_texts(node) for node in nodes if not isinstance(node, notation.Literal)]
    if sum(counts[:-1]) > 2:
        yield "several free texts make matching slow"
    if not (one.samples and one.subsys and one.says.endswith((".", ")"))):
        yield "it needs a sample, a subsystem, and a sentence for people"
    if not (one.follows or one.foreign):
        for lead in notation.leads(nodes):
            if len(lead) >= 4 and one not in GRAMMAR.beginnings(lead.encode()):
                yield f"the engine does not find it by {lead!r}"
    # The engine reads only a part of a line; where its plain beginning suffices, each lead begins with it.
    whole = {lead.encode() for lead in notation.leads(nodes)}
    first, *others = leads = engine._leads(one.line)
    if leads != whole and (others or len(first) < 4 or not all(lead.startswith(first) for lead in whole)):
        yield f"the engine looks for {leads}, and lines begin with {whole}"
    least = len("Error: ") if one.general else 8
    if one.foreign and not (one.traced or one.last):
        yield from (f"other text may hold {sign!r}" for sign in one.signs if len(sign) < least and b"\t" not in sign)
    # What lets a connection line be known by that of another channel.
    if one.line.startswith("Channel ") and not one.line.startswith("Channel {channel:02}"):
        yield "its channel has another form"


def free_texts(node: notation.Node) -> int:
    """Return the most free texts that a message can have there."""
    if isinstance(node, notation.Choice):
        return max(sum(map(free_texts, option)) for option in node.options)
    if not isinstance(node, notation.Field) or node.spec.startswith("*"):
        return 0
    return int(field_type(node.spec).free)


def faults_of_samples(one: Production) -> Iterator[str]:
    for sample in one.samples:
        message = sample.encode()
        match = one.match(message)
        if match is None:
            yield f"does not match\n    {sample}\n    {'-' * one.count_matched(message)}^ matched up to here"
            continue
        if one.render(match) != message:
            yield f"{sample!r} is written back as {one.render(match)!r}"
        others = [block_of(other) for other in candidates(one, message) if other.match(message) and other is not one]
        if others:
            yield f"{sample!r} is also claimed by {others}"
        parsed = parse(one, message)
        if parsed is None or not isinstance(parsed.event, events.KINDS[one.event]):
            yield f"{sample!r} becomes {parsed and parsed.event}"
        if one.foreign and not (one.traced or one.last):
            if parsed is None or parsed.production is not one:
                yield f"{sample!r} is read as {parsed and parsed.production.name}"
            if GRAMMAR.parse_bare(message) or prefix.split(message):
                yield f"{sample!r} would be taken for a line of NCCL"


def parse(production: Production, message: bytes) -> engine.Parsed | None:
    """Return a line without a prefix is parsed by itself, not as a message."""
    if production.foreign:
        among = GRAMMAR.traced if production.traced else GRAMMAR.last if production.last else None
        return GRAMMAR.parse_foreign(message, among)
    return GRAMMAR.parse_bare(message) if production.follows else GRAMMAR.parse(message)


def candidates(production: Production, message: bytes) -> list[Production]:
    if production.traced:
        return [next(other for other in GRAMMAR.traced if other.match(message))]
    if production.last:
        return GRAMMAR.last
    if production.foreign:
        others = (other for other in PRODUCTIONS if other.foreign and not (other.traced or other.last))
        return [other for other in others if (other.general, other.rest) <= (production.general, production.rest)]
    return (
        [other for other in PRODUCTIONS if other.bare]
        if production.follows
        else [one for one in (*GRAMMAR.beginnings(message), *GRAMMAR._loose) if one.may_fit(message)]
    )


def test_names_are_unique_and_what_a_line_goes_on_with_exists() -> None:
    names = [(one.dialect, one.name) for one in PRODUCTIONS]
    assert len(names) == len(set(names))
    assert not [block_of(one) for one in PRODUCTIONS if one.follows and (one.dialect, one.follows) not in set(names)]


@pytest.mark.slow
def test_lines_of_nccl_are_not_taken_for_those_of_other_programs() -> None:
    samples = [sample for one in PRODUCTIONS if not one.foreign for sample in one.samples]
    taken = [sample for sample in samples if GRAMMAR.parse_foreign(sample.encode())]
    # Without NCCL's prefix, with which it always comes, it has the form of an exception.
    assert taken == ["ncclCommSetAsyncError: error comm 0x7f01a0 sets state 3"]


# --- single lines

OF_APPLICATIONS = Path(__file__).with_name("applications.txt").read_text("utf-8")


def test_a_line_of_an_application_is_nobodys_and_its_exception_proves_nothing() -> None:
    assert not [line for line in OF_APPLICATIONS.splitlines() if GRAMMAR.parse_foreign(line.encode())]
    with pytest.raises(NoInputError, match="no NCCL line among"):
        nccl_inspect.read(OF_APPLICATIONS.encode())
    parsed = GRAMMAR.parse_foreign(b"RuntimeError: shapes do not match")
    assert parsed is not None
    assert isinstance(parsed.event, events.Notice)
    assert parsed.event.tone == "loose", "it may have been caught"


def test_a_message_of_several_lines_is_one_event() -> None:
    head = next(one for one in PRODUCTIONS if one.name == "enabled-matrix")
    rows = [one for one in PRODUCTIONS if one.follows == head.name]
    lines = [f"vm:1:1 [0] NCCL INFO {head.samples[0]}", *(sample for row in rows for sample in row.samples)]
    (event,) = nccl_inspect.events("\n".join(lines).encode())
    assert (event.production, event.message.count("\n")) == ("enabled-matrix", len(lines) - 1)


# --- text that is nearly a message

MESSAGES = [
    (one, sample.encode()) for one in PRODUCTIONS if not one.foreign | bool(one.follows) for sample in one.samples
]


@every(10)
def test_every_message_of_the_samples_is_written_back_byte_for_byte(step: int) -> None:
    wrong = []
    for file in sorted([*sample_data.FOLDER.rglob("*.log"), *sample_data.FOLDER.rglob("*.log.gz")])[::step]:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for line in envelopes.clean_lines(data.split(b"\n"), data):  # without the colours of a terminal
            found = prefix.split(line)
            message = found[1].partition(b" ")[2] if found else line
            if found and GRAMMAR.parse(message) is None:
                message = envelopes.without_trailer(message)
            parsed = GRAMMAR.parse(message) if found else GRAMMAR.parse_bare(line)
            if parsed:
                match = parsed.production.match(message)
                if not match or parsed.production.render(match) != message:
                    wrong.append(f"{file}: {block_of(parsed.production)}: {message!r}")
            elif found and "torn" not in str(file):
                wrong.append(f"{file}: not recognised: {message!r}")
    assert not wrong, "\n".join(wrong)


def is_free(production: Production, message: bytes, at: int) -> bool:
    """Return whether the byte belongs to a field that can be any text, such as the error text of another library."""
    match = production.match(message)
    assert match
    return any(start <= at < end for start, end in production.shape.open_spans(match, words=False))


@given(st.sampled_from(MESSAGES), st.data())
def test_a_message_with_a_wrong_letter_is_not_recognised(case: tuple[Production, bytes], data: st.DataObject) -> None:
    production, message = case
    match = production.match(message)
    assert match
    fields = {at for _, _, group in production.shape.fields for at in range(*match.span(group))}
    letters = [at for at, byte in enumerate(message) if at not in fields and chr(byte) in string.ascii_letters]
    assume(letters)
    at = data.draw(st.sampled_from(letters))
    other = data.draw(st.sampled_from(string.ascii_lowercase.replace(chr(message[at]).lower(), "")))
    wrong = message[:at] + other.encode() + message[at + 1 :]
    parsed = GRAMMAR.parse(wrong)
    assert parsed is None or is_free(parsed.production, wrong, at)


@given(st.sampled_from(MESSAGES), st.randoms(use_true_random=False))
def test_the_words_of_a_message_in_another_order_are_not_its_production(
    case: tuple[Production, bytes], chance: random.Random
) -> None:
    production, message = case
    match, words = production.match(message), message.split(b" ")
    assert match
    assume(len(words) > 3 and not production.shape.open_spans(match, words=False))  # where any words may stand
    shuffled = chance.sample(words, len(words))
    assume(shuffled[:2] != words[:2])
    parsed = GRAMMAR.parse(b" ".join(shuffled))
    assert parsed is None or parsed.production is not production


# --- messages that NCCL cut: until 2.28 prefix and message share 1,024 bytes

PREFIX = "llama-3-8b-node-0-0:188:585 [0] NCCL INFO "
DEVICES = f"NET/IB : Using{''.join(f' [{at}]mlx5_{at}:1/IB' for at in range(80))} [RO]; OOB eth0:10.0.0.1<0>"
TREES = "Trees" + "".join(f" [{channel}] 1/-1/-1->0->-1" for channel in range(64))


def test_a_message_that_was_cut_keeps_what_is_whole() -> None:
    def events_of(message: str, size: int = 1023) -> list[events.Event]:
        return list(nccl_inspect.events((PREFIX + message)[:size].encode()))

    (whole,), (cut,), (trees,) = events_of(DEVICES, size=10_000), events_of(DEVICES), events_of(TREES)
    assert isinstance(whole, events.NetDevices)
    assert len(whole.devices) == 80
    assert isinstance(cut, events.Message)
    assert (cut.production, cut.cut, cut.values) == ("net-ib", True, ())
    assert isinstance(trees, events.TreeLinks)
    assert (trees.cut, trees.trees[0]) == (True, (0, 1, -1, -1, 0, -1))
    assert events_of("Init timings - ncclCommInitRank: rank 0 nranks 8 total 1.00 (ker") == [], "too short"


@every(25)
def test_rewritten_patterns_match_what_partial_matches_do(step: int) -> None:
    """The package ``regex`` has partial matches; where it is missing, patterns are rewritten."""
    chance, wrong = random.Random(step), []
    samples = [sample.encode() for one in PRODUCTIONS for sample in one.samples]
    for one in PRODUCTIONS[::step]:
        pattern = one.shape.pattern.encode()
        theirs, ours = regex.compile(pattern, regex.DOTALL), re.compile(rewrite_for_beginnings(pattern), re.DOTALL)
        for message in [*(sample.encode() for sample in one.samples), *chance.sample(samples, 5)]:
            cut = message[: chance.randint(0, len(message))]
            for text in (message, cut, cut + b" 1", cut + b"zz"):
                if bool(theirs.fullmatch(text, partial=True)) != bool(ours.fullmatch(text)):
                    wrong.append(f"{block_of(one)}: {text!r}")
    assert not wrong, "\n".join(wrong)


def test_each_kind_of_part_may_be_cut() -> None:
    for pattern, beginnings, others in (
        (rb"ab{2,3}c", [b"", b"a", b"ab", b"abbb", b"abbc"], [b"b", b"ac", b"abc", b"abbbb"]),
        (rb"(?:(\d+) )*end", [b"1", b"1 22", b"1 2 e"], [b"1 2x", b"e1"]),
        (rb"(?>(.*?) via(?= |\Z))(?: on)?", [b"x", b"x vi", b"x via", b"x via o"], [b"x via of"]),
        (rb"(?!No )([^ ]++) [a-f\]]", [b"No", b"Noon", b"x ]"], [b"No such", b"x g", b"x ]]"]),
    ):
        ours = re.compile(rewrite_for_beginnings(pattern))
        assert [text for text in [*beginnings, *others] if ours.fullmatch(text)] == beginnings, pattern


def test_without_the_package_a_cut_line_is_known_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    beginning.cache_clear()
    try:
        parsed = [GRAMMAR.parse_cut(text) for text in (TREES.encode()[:960], TREES.encode()[:955] + b"x" * 5)]
    finally:
        beginning.cache_clear()
    assert [one and one.production.name for one in parsed] == ["trees", None]


# --- roles: what kind of line a production is stands in the grammar, and rules ask for the kind

ROLES = list_roles()
MODULES = sorted(Path(nccl_inspect.__file__).parent.rglob("*.py"))
_QUALIFIED = re.compile(r"[a-z-]+/[a-z0-9-]+[a-z0-9]")
_OTHER_MEANINGS = {"trees", "xid", "p2p-disabled"}
"""A key of the JSON, a field of an event, a reason of an event."""


def test_each_role_is_described_and_used() -> None:
    used = {role for production in PRODUCTIONS for role in production.roles}
    assert used == set(ROLES)
    assert all(sentence.endswith(".") for sentence, _ in ROLES.values())
    assert not ROLES.keys() & {production.name for production in PRODUCTIONS}


def test_files_of_programs_that_print_without_a_prefix_say_so() -> None:
    """Where ``foreign`` is missing, short excerpts show the lines and whole logs do not."""
    with_both = {"nccl", "rccl", "tcpxo"}
    kinds = {(one.dialect, one.foreign) for one in PRODUCTIONS if one.dialect not in with_both}
    wrong = [block_of(one) for one in PRODUCTIONS if not one.foreign and (one.dialect, True) in kinds]
    assert not wrong, "foreign: yes is missing"


def test_an_unknown_role_is_refused() -> None:
    text = "dialect: nccl\nfamily: own\n\nproduction: lost\nline: lost {rank}\nrole: survivable lost-peer\n"
    with pytest.raises(
        GrammarError, match=r"own\.grammar: production 'lost' has the unknown role 'lost-peer'; choose from "
    ):
        files.read(text, "own.grammar")


def test_python_names_productions_with_their_dialect() -> None:
    known = {f"{production.dialect}/{production.name}" for production in PRODUCTIONS}
    dialects = tuple(f"{production.dialect}/" for production in PRODUCTIONS)
    named = {text for text in _texts() if _QUALIFIED.fullmatch(text) and text.startswith(dialects)}
    assert named <= known, "no production of these names"
    rules = {entry.rule.name for entry in list_rules()}
    bare = {production.name for production in PRODUCTIONS} & _texts() - rules - _OTHER_MEANINGS
    assert not bare, "say dialect/name"


def test_no_rule_is_asked_for_as_a_production() -> None:
    calls = (call for module in MODULES for call in _NOTICES.findall(module.read_text(encoding="utf-8")))
    asked = {name for call in calls for name in _TEXT.findall(call)}
    assert len(asked) > 50
    assert all("/" in name for name in asked)


def test_each_role_is_asked_for() -> None:
    pages = (page.read_text(encoding="utf-8") for page in (Path(nccl_inspect.__file__).parent / "rules").glob("*.md"))
    asked = {role for page in pages for roles in _OF_PAGE.findall(page) for role in roles.split()}
    asked |= {role for role, (_, layer) in ROLES.items() if layer is not None}
    assert ROLES.keys() <= _texts() | asked


_TEXT = re.compile(r'"([^"\n]*)"')
_OF_PAGE = re.compile(r"^(?:about|beside|when|unless): (?:found )?role ([^#\n]*)", re.MULTILINE)
_NOTICES = re.compile(r"\.notices\(([^()]*)\)")


@cache
def _texts() -> frozenset[str]:
    """Return the texts in quotes of all modules."""
    modules = (module.read_text(encoding="utf-8") for module in MODULES)
    return frozenset(text for module in modules for text in _TEXT.findall(module))
