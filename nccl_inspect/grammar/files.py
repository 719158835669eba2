"""Reads grammar files: plain text, one file for each message family of a dialect.

::

    dialect: nccl
    family: transport
    subsys: INIT|P2P

    production: channel-p2p
    line: Channel {channel:02}/{conn} : {src}[{src_dev:id}] -> {dst}[{dst_dev:id}] via P2P/{mechanism:=CUMEM¦IPC}
    event: ChannelConnect transport=P2P
    versions: 2.14.3..
    says: The sender tells which path this channel takes to its neighbour.
    sample: Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM

A value is everything after the colon and one blank, blanks at its ends included (``␣`` is a blank, too). Lines that
begin with ``#`` are comments; a line that begins with two blanks goes on with the ``says`` above it. ``fragment:``
(name, blank, notation) may be repeated and ``sample:`` too. What stands before the first production holds for all.
"""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from nccl_inspect.errors import GrammarError
from nccl_inspect.grammar.production import Production

_KEYS = {"production", "line", "event", "versions", "subsys", "says", "sample", "fragment", "dialect", "family"}


def shipped() -> Iterator[Traversable]:
    """The grammar files of the package, in a fixed order."""
    root = files("nccl_inspect.grammar").joinpath("dialects")
    for dialect in sorted(root.iterdir(), key=lambda entry: entry.name):
        if dialect.is_dir():
            for file in sorted(dialect.iterdir(), key=lambda entry: entry.name):
                if file.name.endswith(".grammar"):
                    yield file


def read(text: str, name: str = "<grammar>") -> list[Production]:
    """The productions of one grammar file.

    Args:
        text: its content.
        name: its name, for error messages.

    Raises:
        GrammarError: an unknown key, a production without a line, or a value missing.
    """
    blocks = _blocks(text, name)
    head = next(blocks)
    common = {key: values[0] for key, values in head.items() if key not in ("fragment", "says")}
    fragments = dict(_fragment(value, name) for value in head.get("fragment", ()))
    productions = []
    for block in blocks:
        own = dict(_fragment(value, name) for value in block.get("fragment", ()))
        productions.append(_production(block, common, {**fragments, **own}, name))
    return productions


def _blocks(text: str, name: str) -> Iterator[dict[str, list[str]]]:
    block: dict[str, list[str]] = {}
    last = ""
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line[0] == "#":
            continue
        if line.startswith("  ") and last == "says":
            block[last][-1] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        if not colon or key not in _KEYS:
            raise GrammarError(f"{name}:{number}: '{key}' is not a key of a grammar file")
        if key == "production":
            yield block
            block = {}
        block.setdefault(key, []).append(value[1:])
        last = key
    yield block


def _fragment(value: str, name: str) -> tuple[str, str]:
    label, _, line = value.partition(" ")
    if not line:
        raise GrammarError(f"{name}: fragment '{label}' has no notation")
    return label, line


def _production(
    block: dict[str, list[str]], common: dict[str, str], fragments: dict[str, str], name: str
) -> Production:
    def one(key: str, default: str = "") -> str:
        return block[key][0] if key in block else common.get(key, default)

    label = one("production")
    if "line" not in block:
        raise GrammarError(f"{name}: production '{label}' has no line")
    event, *constants = one("event", "Message").split()
    return Production(
        name=label,
        dialect=one("dialect"),
        family=one("family"),
        line=one("line"),
        event=event,
        constants=dict(_constant(text, name) for text in constants),
        versions=one("versions"),
        subsys=one("subsys", "INIT"),
        says=one("says"),
        samples=tuple(sample.replace("␣", " ") for sample in block.get("sample", ())),
        fragments=fragments,
    )


def _constant(text: str, name: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise GrammarError(f"{name}: '{text}' is not of the form field=value")
    return key, value
