"""Measure the net: make random mutations of the package, and count how many `make test` notices.

    PYTHONPATH=. python tools/mutate.py --count 200 --seed 1

A mutation negates a condition, drops a statement, changes a constant or an operator, or reads another field, in one
place of the rooms that judge and read. Each is first tried against the stored answers to the inputs that run the
changed function, up to the first difference; then against the tests of `make test`. Those that nothing notices are
printed with their place: each is either without an effect on any behaviour, or a hole.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("rules", "judging", "model", "grammar", "scanning")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "build", "site", "dist", "__pycache__", ".*_cache", ".hypothesis")
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SECONDS = 900
"""After this long a mutant that never ends counts as noticed."""
REACHED = """
import answers, json, pathlib, sys
root, reached = f"{pathlib.Path.cwd()}/", {}
for number, one in enumerate(one for corpus in answers.CORPORA.values() for one in corpus()):
    codes = set()
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    answers.answer(one)
    sys.setprofile(None)
    for code in codes:
        if code.co_filename.startswith(root):
            reached.setdefault(f"{code.co_filename.removeprefix(root)}:{code.co_firstlineno}", []).append(number)
json.dump(reached, open(sys.argv[1], "w"))
"""
"""Stores by which inputs each function is run."""
ANSWERS = """
import answers, json, random, sys
inputs = [one for corpus in answers.CORPORA.values() for one in corpus()]
known = {name: row for corpus in answers.CORPORA for name, row in answers.read_stored(corpus).items()}
first = json.load(open(sys.argv[1])).get(sys.argv[2], []) if sys.argv[2] else [0]
first = range(len(inputs)) if first == [0] else first  # what only the first runs may be run once for all
order = random.Random(1).sample(first, len(first))
raise SystemExit(any(answers.answer(inputs[at])[0] != known[inputs[at].name] for at in order))
"""
"""Compares the answers to the inputs that run a function, or to all."""


class Mutant(NamedTuple):
    """One change of one module."""

    file: str
    line: int
    what: str
    function: str
    """Where the changed function is defined, as ``file:line``; empty where all inputs may be concerned."""
    source: str
    """The whole module, changed."""


def mutations(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """Yield each node that can be changed, what is changed, and what takes its place."""
    hidden = {id(part) for node in ast.walk(tree) for whole in _list_inert(node) for part in ast.walk(whole)}
    fields = _fields(tree)
    for node in ast.walk(tree):
        if id(node) not in hidden and hasattr(node, "lineno"):
            yield from ((node, what, new) for what, new in _changes(node, fields))


def _list_inert(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what states nothing at run time: docstrings, annotations, imports for the type checker."""
    match node:
        case ast.Expr(value=ast.Constant()):
            yield node
        case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test):
            yield node
        case ast.FunctionDef(returns=ast.expr() as annotation) | ast.arg(annotation=ast.expr() as annotation):
            yield annotation
        case ast.AnnAssign(annotation=annotation):
            yield annotation


def _fields(tree: ast.Module) -> dict[str, list[str]]:
    """Return the fields that the module reads of each variable."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.value.id, set()).add(node.attr)
    return {name: sorted(fields) for name, fields in found.items()}


def _changes(node: ast.AST, fields: dict[str, list[str]]) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If() | ast.IfExp():
            yield "condition negated", _replace_fields(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension(ifs=[first, *others]):
            yield "condition negated", _replace_fields(node, ifs=[ast.UnaryOp(ast.Not(), first), *others])
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign():
            yield "statement dropped", ast.Pass()
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            yield "comparison changed", _replace_fields(node, ops=[COMPARISONS[type(operator)]()])
        case ast.BoolOp():
            yield "and/or exchanged", _replace_fields(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.Constant(value=bool() as flag):
            yield "constant changed", ast.Constant(not flag)
        case ast.Constant(value=int() as number):
            yield "constant changed", ast.Constant(number + 1)
        case ast.Constant(value=str() as text) if text:
            yield "constant changed", ast.Constant(f"{text}x")
        case ast.Attribute(value=ast.Name(id=name), ctx=ast.Load()) if len(fields.get(name, ())) > 1:
            names = fields[name]
            yield "field exchanged", _replace_fields(node, attr=names[names.index(node.attr) - 1])


def _replace_fields(node: ast.AST, **values: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in values.items():
        setattr(new, name, value)
    return new


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._old:
            return ast.copy_location(self._new, node)
        return super().generic_visit(node)


def choose_mutants(number: int, seed: int, rooms: tuple[str, ...]) -> list[Mutant]:
    """Return random mutants, the same for a seed, as many of each kind of change."""
    kinds: dict[str, list[tuple[Path, int]]] = {}
    for file in sorted(file for room in rooms for file in (ROOT / "nccl_inspect" / room).rglob("*.py")):
        for index, (_, what, _) in enumerate(mutations(ast.parse(file.read_text(encoding="utf-8")))):
            kinds.setdefault(what, []).append((file, index))
    chance = random.Random(seed)
    order = [chance.sample(kinds[what], min(number, len(kinds[what]))) for what in sorted(kinds)]
    turns = [place for places in zip(*order, strict=False) for place in places]
    return [_mutant(*place) for place in turns[:number]]


def _mutant(file: Path, index: int) -> Mutant:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    old, what, new = next(found for at, found in enumerate(mutations(tree)) if at == index)
    shown = f"{what}: {ast.unparse(old).splitlines()[0][:90]}"
    line, name = getattr(old, "lineno", 0), str(file.relative_to(ROOT))
    defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _spans(node, line)]
    function = max(defined, key=lambda node: node.lineno, default=None)
    # A function with a decorator may be run once for all inputs.
    place = f"{name}:{function.lineno}" if function and not function.decorator_list else ""
    changed = ast.fix_missing_locations(_Replace(old, new).visit(tree))
    return Mutant(name, line, shown, place, ast.unparse(changed))


def _spans(node: ast.FunctionDef, line: int) -> bool:
    return node.body[0].lineno <= line <= (node.end_lineno or 0)


class Copy:
    """A copy of the repository in which mutants are tried, compiled once."""

    def __init__(self, tree: Path) -> None:
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
        self.tree, self.reached = tree, tree.parent / "reached.json"
        paths = os.pathsep.join(map(str, (tree, *(tree / "tests" / name for name in ("helpers", "answers", "labels")))))
        self._environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
        subprocess.run([sys.executable, "-m", "compileall", "-q", tree / "nccl_inspect"], check=False)
        self._environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def run(self, *arguments: str, seconds: float | None = SECONDS) -> bool:
        """Run Python and return whether it ends well."""
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.tree, env=self._environment, capture_output=True, timeout=seconds, check=False
        )
        return done.returncode == 0

    def notice(self, mutant: Mutant, *, by_tests: bool) -> str:
        """Try a mutant, and return what notices it; empty if nothing does."""
        file = self.tree / mutant.file
        before, times = file.read_text(encoding="utf-8"), file.stat()
        file.write_text(mutant.source, encoding="utf-8")
        tests = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow"]
        tests += ["--deselect", "tests/answers/test_answers.py"]
        tests += [f"tests/{name}" for name in ("scanning", "model", "answers", "pipeline", "grammar", "ingest", "")]
        answers = ["-c", ANSWERS, str(self.reached), mutant.function]
        try:
            for name, command in (("answers", answers), *([("tests", tests)] if by_tests else [])):
                try:
                    if not self.run(*command):
                        return name
                except subprocess.TimeoutExpired:
                    return f"{name}, which did not end"
        finally:
            file.write_text(before, encoding="utf-8")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # what is compiled of it is valid again
        return ""


def main() -> None:
    """Try mutants and print a table: room, noticed by answers, by tests, by nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--only-answers", action="store_true", help="leave out the other tests")
    arguments = parser.parse_args()
    mutants = choose_mutants(arguments.count, arguments.seed, tuple(arguments.rooms))
    table: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        free: SimpleQueue[Copy] = SimpleQueue()
        copies = [Copy(Path(folder) / str(number) / "copy") for number in range(arguments.jobs)]
        if not copies[0].run("-c", REACHED, str(copies[0].reached), seconds=None):
            sys.exit("mutate: the inputs of the answers cannot be read")
        for one in copies:
            one.reached = copies[0].reached
            free.put(one)

        def attempt(mutant: Mutant) -> tuple[Mutant, str]:
            one = free.get()
            try:
                return mutant, one.notice(mutant, by_tests=not arguments.only_answers)
            finally:
                free.put(one)

        for number, (mutant, by) in enumerate(pool.map(attempt, mutants), 1):
            table[mutant.file.split("/")[1], by.partition(",")[0] or "nothing"] += 1
            mark = by or "NOTHING"
            print(f"{number:4} {mark:8} {mutant.file}:{mutant.line}: {mutant.what}", flush=True)
    print(f"\n{'room':10} {'mutants':>8} {'answers':>8} {'tests':>8} {'nothing':>8}")
    for room in sorted({room for room, _ in table}):
        counts = [table[room, by] for by in ("answers", "tests", "nothing")]
        print(f"{room:10} {sum(counts):8} {counts[0]:8} {counts[1]:8} {counts[2]:8}")
    missed = sum(count for (_, by), count in table.items() if by == "nothing")
    print(f"\n{1 - missed / len(mutants):.1%} of {len(mutants)} mutants are noticed (seed {arguments.seed})")


if __name__ == "__main__":
    main()
