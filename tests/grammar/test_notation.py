"""The notation of the grammar files: what is read is written back, what is broken is refused in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.errors import GrammarError
from nccl_inspect.grammar import engine, files, notation
from nccl_inspect.grammar.notation import field_type
from nccl_inspect.grammar.production import Production

GRAMMAR = engine.load_grammar()
SPECS = sorted(
    {
        field.spec
        for production in GRAMMAR.productions
        for text in (production.line, *production.details.fragments.values())
        for field in notation.fields(notation.parse(text))
        if not field.spec.startswith("*")
    }
)


def production(line: str, **details: object) -> Production:
    """Return a production with this line."""
    text = f"dialect: test\nfamily: test\n\nproduction: one\nline: {line}\n"
    (found,) = files.read(text + "".join(f"{key}: {value}\n" for key, value in details.items()))
    return found


def there_and_back(line: str, message: str) -> dict[str, object]:
    """Return the values of a message that the line must fit, and write again byte for byte."""
    one = production(line)
    match = one.match(message.encode())
    assert match, f"{message!r} does not fit {line!r}"
    assert one.render(match) == message.encode()
    values = one.read(message.encode())
    assert values is not None
    return dict(values)


# --- reading and writing

READ: dict[tuple[str, str], dict[str, object]] = {
    ("a {x} b", "a -12 b"): {"x": -12},
    ("a {x:02}", "a 07"): {"x": 7},
    ("a {x:02}", "a 107"): {"x": 107},
    ("a {x:3}|", "a   7|"): {"x": 7},
    ("a {x:3}|", "a  -7|"): {"x": -7},
    ("a {x:3}|", "a 1234|"): {"x": 1234},
    ("a {x:h}", "a ff"): {"x": 255},
    ("a {x:p}", "a 0x7f01"): {"x": "0x7f01"},
    ("a {x:p}", "a (nil)"): {"x": "(nil)"},
    ("a {x:id}", "a 0a"): {"x": "0a"},
    ("a {x:.2f}", "a -1.50"): {"x": -1.5},
    ("a {x:5.1f}", "a   1.5"): {"x": 1.5},
    ("a {x:num} b", "a 1.5e+09 b"): {"x": "1.5e+09"},
    ("a {x:w} {y:t}", "a word and a text"): {"x": "word", "y": "and a text"},
    ("a {y:t}", "a "): {"y": ""},
    ("via NET/{x:n}/{y}", "via NET/AWS Libfabric/3"): {"x": "AWS Libfabric", "y": 3},
    ("a {x:=CUMEM¦IPC}", "a IPC"): {"x": "IPC"},
    ("a{x:?/read} b", "a/read b"): {"x": True},
    ("a{x:?/read} b", "a b"): {"x": False},
    ("a«/{x}»? b", "a/7 b"): {"x": 7},
    ("a {{x}} «{x}¦none»␣", "a {x} none "): {},
}
REFUSED: dict[str, list[str]] = {
    "a {x}": ["a 07", "a -0", "a +1", "a 1234567890123456789", "a 1 ", "a 1\n"],
    "a {x:02}": ["a 7", "a 007"],
    "a {x:3}": ["a 7", "a  1234"],
    "a {x:h}": ["a FF", "a 0f"],
    "a {x:p}": ["a 7f01"],
    "a {x:.2f}": ["a 1.5", "a 01.50"],
    "a {x:5.1f}": ["a 1.5", "a  1234.5"],
    "a {x:.8f}": ["a 123456789012.12345678"],
    "a {x:w}": ["a ", "a two words"],
    "a {x:=CUMEM¦IPC}": ["a IPCX"],
    "a{x:?/read}": ["a/reads"],
    "a b": ["a  b"],
}
"""What printf would not print."""


def test_a_field_is_read_and_written_back_and_nothing_else_is() -> None:
    for (line, message), values in READ.items():
        found = there_and_back(line, message)
        assert {name: value for name, value in found.items() if value is not None} == values, (line, message)
    for line, messages in REFUSED.items():
        assert not [message for message in messages if production(line).match(message.encode())], line


@given(data=st.data())
def test_every_text_that_a_field_of_the_grammar_accepts_comes_back(data: st.DataObject) -> None:
    kind = field_type(data.draw(st.sampled_from(SPECS)))
    text = data.draw(st.from_regex(re.compile(kind.pattern, re.ASCII | re.DOTALL), fullmatch=True))
    raw = text.encode("utf-8", "surrogateescape")
    assert kind.write(kind.read(raw)) == text


INTEGERS = st.integers(-(10**17), 10**17)


@given(value=INTEGERS, width=st.integers(2, 12), zero=st.booleans())
def test_every_integer_survives_printf_and_back(value: int, width: int, zero: bool) -> None:
    if zero:
        value = abs(value)
    text = f"{value:0{width}d}" if zero else f"{value:{width}d}"
    spec = f"0{width}" if zero else f"{width}"
    assert there_and_back(f"x {{a:{spec}}}!", f"x {text}!")["a"] == value
    assert there_and_back("x {a}!", f"x {value}!")["a"] == value


@given(value=st.floats(-1e8, 1e8), width=st.sampled_from(["", "3", "5", "8", "12"]), digits=st.integers(1, 6))
def test_every_decimal_survives_printf_and_back(value: float, width: str, digits: int) -> None:
    text = f"{value:{width}.{digits}f}"
    found = there_and_back(f"x {{a:{width}.{digits}f}}!", f"x {text}!")["a"]
    assert found == float(text)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters=" \n/"), min_size=1, max_size=12)


@given(word=WORDS, text=st.text(st.characters(codec="utf-8"), max_size=30), number=INTEGERS, read=st.booleans())
def test_a_message_of_many_fields_comes_back(word: str, text: str, number: int, read: bool) -> None:
    flag = "/read" if read else ""
    found = there_and_back("{n} [{w:w}]{r:?/read}« port {m}»? : {t:t}", f"{number} [{word}]{flag} : {text}")
    assert (found["n"], found["w"], found["r"], found["t"]) == (number, word, read, text)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(-1, 99)), max_size=8))
def test_a_repeated_fragment_is_a_tuple(pairs: list[tuple[int, int]]) -> None:
    one = production("Trees{trees:*tree}", fragment="tree ␣[{channel}] {up}")
    message = ("Trees" + "".join(f" [{channel}] {up}" for channel, up in pairs)).encode()
    match = one.match(message)
    assert match
    assert one.render(match) == message
    values = one.read(message)
    assert values is not None
    assert values["trees"] == tuple(pairs)


@given(st.binary(max_size=60))
def test_bytes_that_are_not_utf8_come_back_from_a_text(data: bytes) -> None:
    one = production("says {x:t}")
    match = one.match(b"says " + data)
    assert match
    assert one.render(match) == b"says " + data


@given(production=st.sampled_from(GRAMMAR.productions), data=st.data())
def test_a_sample_with_other_bytes_in_it_is_refused_or_comes_back(production: Production, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(production.samples)).encode()
    at = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(at, min(len(sample), at + 4)))
    message = sample[:at] + data.draw(st.binary(max_size=4)) + sample[end:]
    match = production.match(message)
    if match:
        assert production.render(match) == message


@given(production=st.sampled_from(GRAMMAR.productions), data=st.data())
def test_a_cut_sample_is_known_as_cut_or_as_another_message(production: Production, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(production.samples)).encode()
    cut = sample[: data.draw(st.integers(1, len(sample)))]
    assert production.count_matched(cut) == len(cut)
    assert production.is_cut(cut) == (production.match(cut) is None)


# --- leads and needles


@given(production=st.sampled_from(GRAMMAR.productions), data=st.data())
def test_literals_that_the_engine_looks_for_are_in_every_message(production: Production, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(production.samples))
    nodes = notation.parse(production.line)
    assert any(sample.startswith(lead) for lead in notation.leads(nodes))
    assert notation.quick_needle(production.line).replace("{{", "{").replace("}}", "}") in sample
    assert re.search(".*".join(map(re.escape, notation.quick_needles(production.line))), sample, re.DOTALL)


CHOICES = [
    "«Alpha {x}¦Beta {y}, {z} more» end",
    "«Alpha¦Beta {y:w}»: {z}",
    "«Alpha¦Beta»? gamma {x}",
    "«Alpha {x}¦Beta {kind:=one¦two} {y}»",
    "«Alpha {{{x}}}¦Beta {{y}}»",
    "«Alpha␣{x}¦Beta» gamma",
    "«Alpha¦Beta» {kind:=gamma¦delta}",
    "«Alpha¦Beta»«gamma¦delta»",
    "«Alpha «beta¦gamma» {x}¦Delta»",
    "«Alpha{n}¦" + "¦".join(f"Beta {n}{{n{n}}}" for n in range(40)) + "»",
]


def test_the_engine_finds_each_beginning_of_a_choice() -> None:
    for line in CHOICES:
        production = Production("p", "nccl", "family", line)
        grammar = engine.Grammar([production])
        for lead in notation.leads(notation.parse(line)):
            assert len(lead) < 4 or list(grammar.beginnings(lead.ljust(16).encode())) == [production], line
        assert not list(grammar.beginnings(b"Alpharetta")), line
        assert not list(grammar.beginnings(b"omega delta")), line


PIECES = st.sampled_from(
    ["a", "bc", " : ", "␣", "{{", "}}", "?", "{x}", "{y:t}", "{z:w}", "{f:.2f}", "{k:=one¦two}", "{r:?/read}"]
)
LINES = st.recursive(
    st.lists(PIECES, max_size=4).map("".join),
    lambda inner: st.tuples(
        st.lists(inner, min_size=1, max_size=35).map("¦".join), st.sampled_from(["»", "»?"]), inner
    ).map(lambda made: f"«{made[0]}{made[1]}{made[2]}"),
    max_leaves=40,
)


@given(LINES)
def test_each_beginning_of_any_line_is_found_by_its_leads(line: str) -> None:
    leads = tuple(engine._leads(line))
    for lead in notation.leads(notation.parse(line)):
        assert lead.encode().startswith(leads), line


# --- errors

HEAD = "dialect: nccl\nfamily: x\n\n"
BROKEN_LINES = {
    "a «b": "'«' is not closed in: a «b",
    "a «b¦c": "'«' is not closed in: a «b¦c",
    "a b»": "'»' has no partner in: a b»",
    "a b»? c": "'»?' has no partner in: a b»? c",
    "a ¦ b": "'¦' has no partner in: a ¦ b",
    "a { b": "a single '{' in: a { b",
    "a } b": "a single '}' in: a } b",
    "a {X}": "a single '{' in: a {X}",
    "a {}": "a single '{' in: a {}",
}
BROKEN_TYPES = {spec: f"no such field type: '{spec}'" for spec in ("q", "0", "00", "1", "x2", ".f", "2f", "-1")}
NO_HEAD = "x.grammar: write 'dialect:' and 'family:' above the first production"
BROKEN_FILES = {
    HEAD + "production: one\nsays: A line.\n": "x.grammar: production 'one' has no line",
    "colour: red\n": "x.grammar: 'colour' is not a key of a grammar file",
    "production: one\nline: a\n": NO_HEAD,
    "dialect: nccl\n\nproduction: one\nline: a\n": NO_HEAD,
    HEAD + "production: one\nline: a\ncolour: red\n": "x.grammar: 'colour' is not a key of a grammar file",
    HEAD + "production: one\nline: a\nno colon\n": "x.grammar: 'no colon' is not a key of a grammar file",
    HEAD + "production: one\nline: a\nevent: Message tone\n": "x.grammar: 'tone' is not of the form field=value",
    HEAD + "production: one\nline: a\nfragment: tree\n": "x.grammar: fragment 'tree' has no notation",
}


def test_what_is_not_well_formed_is_refused_with_its_text_and_place() -> None:
    def read_file(text: str) -> object:
        return files.read(text, "x.grammar")

    readers: tuple[tuple[Callable[[str], object], dict[str, str]], ...] = (
        (notation.parse, BROKEN_LINES),
        (field_type, BROKEN_TYPES),
        (read_file, BROKEN_FILES),
    )
    for read, broken in readers:
        for text, message in broken.items():
            with pytest.raises(GrammarError) as caught:
                read(text)
            assert str(caught.value) == message


def test_a_says_may_go_on_and_comments_are_left_out() -> None:
    text = HEAD + "# a comment\nproduction: one\nline: a␣\nsays: It goes\n  on here.\n# another\nsample: a␣\n"
    (one,) = files.read(text)
    assert (one.says, one.samples, one.dialect, one.family) == ("It goes on here.", ("a ",), "nccl", "x")
    assert one.match(b"a ")
