"""Every recorded input of the repository with the answer that is stored for it: the net under each change.

An *input* is a log, or a folder of a log and the evidence beside it. Its *answer* is the document of
`summarize --format json`, shortened: evidence as `file:line`, paths and communicators by class. One JSON line holds one
answer, so that a change is a line of the diff.

`make answers` writes the files of this folder anew. Answers are what the code says today; what is *known* of a log is
in `tests/labels` and is never written by a program.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import rule_pages
from click.testing import CliRunner
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect.cli import cli
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import Job

FOLDER = Path(__file__).parent
SHARDS = 8
"""In how many parts a corpus is judged, so that several processes share the work."""
_EMPTY: tuple[object, ...] = (None, [], {}, "", 0, False)
_WHOLE: tuple[str, ...] = ("waiting", "bandwidth", "training", "first_failure", "story")
_WHOLE += ("suppressed", "not_judged", "unexplained", "evidence", "passed_over")
_COUNTS = ("lines", "nccl_lines", "typed_lines", "unrecognised_lines", "repaired_lines", "damaged_lines")


@dataclass(frozen=True)
class Input:
    """A recorded input: files of the repository (`paths`, relative to its root), or texts with their files' names."""

    name: str
    paths: tuple[str, ...] = ()
    texts: tuple[tuple[str, bytes], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def read(self, platform: str | None = None) -> Job:
        """Judge the input; sources are named as in the repository."""
        options = self.options | ({"platform": platform} if platform else {})
        if self.paths:
            with chdir(ROOT):
                return nccl_inspect.read(list(self.paths), **options)
        if [name for name, _ in self.texts] == ["job.log"]:
            with chdir(ROOT):
                return nccl_inspect.read(self.texts[0][1], **options)
        with self.folder():
            return nccl_inspect.read(".", **options)

    @contextmanager
    def folder(self) -> Iterator[None]:
        """Write the texts into a folder, and be there."""
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            for name, data in self.texts:
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(data)
                os.utime(name, (0, 0))
            yield


# --- the corpora: each yields its inputs, and has one file of answers


def samples() -> Iterator[Input]:
    """Yield each log of sample_logs, and each folder with evidence, without those of :func:`repeated_logs`."""
    yield from (one for one in _samples() if not _REPEATS.match(one.name))
    yield _repository_path(ROOT / "sample_logs" / "run-loop")


def repeated_logs() -> Iterator[Input]:
    """Yield recordings of broken jobs that say nearly what others do: with lazy communicators, and of two ranks."""
    yield from (one for one in _samples() if _REPEATS.match(one.name))


_REPEATS = re.compile(r"sample_logs/(mesh/|mesh-nodes/\w+(-\w+)*-lazy)")


def _samples() -> Iterator[Input]:
    folder = ROOT / "sample_logs"
    yield from map(_repository_path, sorted(folder.rglob("*.log*")))
    for truth in sorted({*folder.glob("*/*/truth.json"), *folder.glob("*/truth.json")}):
        if sum(1 for _ in truth.parent.rglob("*")) > 2:
            yield _repository_path(truth.parent)


def pages() -> Iterator[Input]:
    """Yield the examples of the rules' pages."""
    for name in rule_pages.RULES:
        for example in rule_pages.examples(name):
            yield Input(f"{name}#{example.number}", options={"example": example})


def logs() -> Iterator[Input]:
    """Yield the logs below tests: cases that people reported, launchers, and others with a label."""
    for file in sorted(TESTS.rglob("*.log")):
        yield _repository_path(file)


def built() -> Iterator[Input]:
    """Yield the logs that tests once built in Python: a folder of each archive is an input, named for what it shows.

    An input of one file `job.log` is read as bytes, others as a folder; `options.json` holds options of `read`.
    """
    for file in sorted(FOLDER.glob("built/*.zip")):
        with zipfile.ZipFile(file) as archive:
            for name, members in groupby(archive.namelist(), key=lambda member: "/".join(member.split("/")[:2])):
                texts = {member[len(name) + 1 :]: archive.read(member) for member in members}
                options = json.loads(texts.pop("options.json", b"{}"))
                yield Input(f"{file.stem}/{name}", texts=tuple(texts.items()), options=options)


def outputs() -> Iterator[Input]:
    """Yield the commands of `commands.txt`.

    Behind ``<`` stands a log of :func:`built`, for standard input, behind ``<<`` an input whose folder a command is in.
    """
    given = {one.name: one.texts for one in inputs_of("built")}
    for line in (FOLDER / "commands.txt").read_text(encoding="utf-8").splitlines():
        command, mark, name = re.match(r"(.*?)(?: (<<?) (.*))?$", line).groups()  # type: ignore[union-attr]
        data = dict(given[name])["job.log"] if mark == "<" else None
        yield Input(line, texts=given[name] if mark == "<<" else (), options={"command": command, "data": data})


CORPORA: dict[str, Callable[[], Iterator[Input]]] = {
    "samples": samples,
    "repeated": repeated_logs,
    "pages": pages,
    "logs": logs,
    "built": built,
    "outputs": outputs,
}
TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "FORCE_COLOR": None, "TZ": "UTC", "LANG": "C.UTF-8"}


def output(one: Input) -> dict[str, Any]:
    """Return what a command prints, in a terminal of 100 columns, its status, and the error that it ends with."""
    words = shlex.split(one.options["command"])
    with one.folder() if one.texts else chdir(ROOT):
        done = CliRunner().invoke(cli, words, input=one.options["data"], env=TERMINAL, standalone_mode=False)
    text = done.output.replace(f"{ROOT}/", "").replace(nccl_inspect.__version__, "VERSION")
    error = f"{done.exception}" if done.exception else ""
    return _fill_command({"status": done.return_value, "error": error, "prints": text.splitlines()})


def _repository_path(path: Path) -> Input:
    name = path.relative_to(ROOT).as_posix()
    return Input(name, paths=(name,))


@cache
def inputs_of(corpus: str) -> tuple[Input, ...]:
    """Return the inputs of a corpus."""
    return tuple(CORPORA[corpus]())


def shard(corpus: str, number: int) -> list[Input]:
    """Return the inputs of one part of a corpus, by their names: a new input moves no other."""
    return [one for one in inputs_of(corpus) if zlib.crc32(one.name.encode()) % SHARDS == number]


# --- answers


def answer(one: Input) -> tuple[dict[str, Any], Job | None]:
    """Return the answer to an input, and the job: the document, shortened, or the error that it ends with."""
    if "command" in one.options:
        return output(one), None
    try:
        example = one.options.get("example")
        job: Job = example.read() if example else one.read()
    except NcclInspectError as error:
        return {"error": str(error).replace(f"{ROOT}/", "")}, None
    document: dict[str, Any] = job.to_dict()
    short = {
        "verdict": document["verdict"],
        "head": document["head"],
        "jobs": document.get("jobs"),
        "job": _fill_command(document["job"]),
        "findings": [_finding(entry) for entry in document["findings"]],
        "paths": dict(sorted(Counter(_path(entry) for entry in document["paths"]).items())),
        "communicators": [_communicator(entry) for entry in document["communicators"]],
        "sources": [" ".join([entry["name"], *(f"{entry[key]}" for key in _COUNTS)]) for entry in document["sources"]],
        "digest": _digest(document),
        **{key: document[key] for key in _WHOLE},
        "unrecognised": [entry["template"] for entry in document["unrecognised"]],
    }
    return json.loads(json.dumps(_fill_command(_without_root(short)))), job


def _without_root(value: Any) -> Any:
    """Replace evidence by `file:line`, and the folder of the repository by nothing."""
    if isinstance(value, dict):
        if value.keys() == {"source", "line", "text"}:
            return f"{Path(value['source']).name}:{value['line']}"
        return {key: _without_root(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_root(item) for item in value]
    return value.replace(f"{ROOT}/", "") if isinstance(value, str) else value


def _fill_command(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without fields that hold nothing."""
    return {key: value for key, value in entry.items() if value not in _EMPTY}


def _finding(entry: dict[str, Any]) -> dict[str, Any]:
    left_out = ("category", "references", *(("root",) if entry["root"] else ()))
    left_out += () if entry["action"] in ("drain-host", "wait") else ("action",)  # the others follow from the rest
    return _fill_command({key: value for key, value in entry.items() if key not in left_out}) | (
        {} if entry["root"] else {"root": False}
    )


def _path(entry: dict[str, Any]) -> str:
    """Return the class of a path in one line."""
    gdr = {True: " GDR", "partial": " partly GDR"}.get(entry["gdr"], "")
    more = [key for key in ("guessed", "shared", "also", "expected") if entry.get(key)]
    rules = ",".join(entry["rules"])
    return " ".join(filter(None, [entry["scope"], f"{entry['detail']}{gdr}", entry["verdict"], rules, *more]))


def _communicator(entry: dict[str, Any]) -> str:
    more = {key: entry[key] for key in ("color", "group", "parallelism", "algorithms", "collnet", "inconsistent")}
    parent = f" of {entry['parent']}" if entry["parent"] else ""
    shape = f"{entry['nranks']} ranks, {len(entry['hosts'])} hosts, {entry['channels']} channels, {entry['state']}"
    return f"{entry['id']}{parent}: {shape}" + (f" {json.dumps(more)}" if (more := _fill_command(more)) else "")


def _digest(document: dict[str, Any]) -> str:
    """Return a sum of the fields that the answer only counts: each path, ring, tree and life of a communicator."""
    whole = _without_root({key: document[key] for key in ("paths", "communicators")})
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]


# --- stored answers


def read_stored(corpus: str) -> dict[str, dict[str, Any]]:
    """Return the stored answers of a corpus by the names of their inputs."""
    file = FOLDER / f"{corpus}.jsonl"
    rows = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
    return {row.pop("input"): row for row in rows}


def changes(name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    """Return how an answer differs from the stored one, field by field; [] if it does not."""
    if old == new:
        return []
    if old is None or new is None:
        return [f"{name}: {'no answer is stored' if old is None else 'the input is gone'}"]
    lines = difflib.unified_diff(_lines(old), _lines(new), n=0, lineterm="")
    return [f"{name}:", *(f"    {line}" for line in lines if not line.startswith(("---", "+++", "@@")))]


def _lines(value: Any, path: str = "") -> list[str]:
    """Return one line for each value that an answer holds, with the way to it."""
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in _lines(item, f"{path}.{key}" if path else key)]
    if isinstance(value, list):
        return [line for index, item in enumerate(value) for line in _lines(item, f"{path}[{index}]")]
    return [f"{path} = {json.dumps(value, ensure_ascii=False)}"]


def judge(part: tuple[str, int]) -> dict[str, dict[str, Any]]:
    """Return the answers of one part of a corpus."""
    return {one.name: answer(one)[0] for one in shard(*part)}


def main() -> None:
    """Write the answers of all corpora, or of those named, and print what changed."""
    wanted = sys.argv[1:] or list(CORPORA)
    with ProcessPoolExecutor() as pool:
        for corpus in wanted:
            found: dict[str, dict[str, Any]] = {}
            for part in pool.map(judge, [(corpus, number) for number in range(SHARDS)]):
                found |= part
            before = read_stored(corpus)
            for name in sorted(found.keys() | before.keys()):
                for line in changes(name, before.get(name), found.get(name)):
                    print(line)
            rows = (json.dumps({"input": name} | found[name], ensure_ascii=False) for name in sorted(found))
            (FOLDER / f"{corpus}.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
            print(f"{corpus}: {len(found)} answers")


if __name__ == "__main__":
    main()
