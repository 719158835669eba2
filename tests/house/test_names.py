"""Rules for names and docstrings: a function is a verb with its noun, or the noun of its value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from repository import ROOT

NO_NAME = re.compile(
    r"_*(?:of(?:_\w+)?|in_\w+|about|all|any|places?|said|told|shown|kept|held|stated|known|made|found|written|taken|begun"
    r"|drawn|without|within|between|after|again|later|only|others?|more|most|least|worst|first|same|alone|plain|whole"
    r"|sound|bare|raw|long|wide|odd|(?!(?:n|f|sp|s|exc|proc|succ)eed|embed|shed)[a-z]+ed)"
)
"""Functions without a verb and without the noun of a value."""
FIXED = {"frozen", "between"}
"""An adjective, as ``dataclass(frozen=True)`` has it, and ``job.paths.between(0, 1)``, which is documented."""
NO_SENTENCE = re.compile(
    r"(?:What|Which|Who|Whom|Whose|Whether|Where|When|While|Those|These|That|This|How|The|An?|As|For|From|With|Without"
    r"|If|Its?|Each|Every|Some|Many|Nothing|None|After|Before|Behind|Other|Of)\b"
)
"""Beginnings without a verb."""
NO_DEFINITION = re.compile(r"(?:What|Which|Who|Whom|Whose|Whether|Where|When|Those|These|How|As|Its)\b")
"""What a class cannot be: one that begins with a noun says what its objects are."""
RETURNS = ("Return", "Yield")
CODE = ("nccl_inspect/", "tools/", "benchmarks/", "docs/", "tests/")


def find_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line of each function or class with such a name or docstring, and what is wrong."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node) or ""
            if node.name.startswith("test_"):
                continue
            if NO_NAME.fullmatch(node.name) and node.name not in FIXED:
                yield node.lineno, f"{node.name}: name what it does, or its value"
            if NO_SENTENCE.match(doc):
                yield node.lineno, f"{node.name}: begin the docstring with a verb, such as {' or '.join(RETURNS)}"
        elif isinstance(node, ast.ClassDef) and NO_DEFINITION.match(ast.get_docstring(node) or ""):
            yield node.lineno, f"{node.name}: say what its objects are or hold"


def test_functions_are_verbs_or_nouns_and_docstrings_are_sentences() -> None:
    wrong = []
    for file in sorted(ROOT.rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if path.startswith(CODE):
            faults = find_faults(ast.parse(file.read_text(encoding="utf-8")))
            wrong += [f"{path}:{line}: {fault}" for line, fault in faults]
    assert not wrong, "\n".join(wrong)
