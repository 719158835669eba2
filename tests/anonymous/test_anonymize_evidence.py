"""``nccl-inspect anonymize`` of what was gathered: no name is left in any file, and all say the same together."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from anonymized_evidence import FILES, HOST, LOG, POD, leaks, planted, pods, run, told
from hypothesis import given
from hypothesis import strategies as st
from repository import ROOT, TESTS
from rule_pages import EXAMPLES, Example, beside

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.anonymous import Anonymizer, fields
from nccl_inspect.anonymous.evidence import Evidence
from nccl_inspect.anonymous.names import CATEGORIES, Names, load
from nccl_inspect.artifacts import Kind
from nccl_inspect.artifacts.plain_pickle import loads

SAMPLES = ROOT / "sample_logs"
MACHINES = TESTS / "data" / "machines"
FOLDERS = [SAMPLES / "run-loop", *sorted(path for path in (SAMPLES / "mesh").iterdir() if path.is_dir())]
WITH_FILES = [case for case in EXAMPLES if cast(Example, case.values[0]).options.get("beside")]


def mapped(document: Any, folder: Path, names: Names) -> Any:
    """A document with the names replaced; numbers of LIDs and short words that are no names stay."""
    table = {
        name: new
        for category in CATEGORIES
        for name, new in names.table[category].items()
        if len(name) > 4 or category == "host"
    }
    either = "|".join(re.escape(name) for name in sorted(table, key=len, reverse=True)) or "(?!)"
    known = re.compile(rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])")
    text = json.dumps(document).replace(f"{folder}/", "")
    return json.loads(re.sub(r"\.log\.(?:xz|gz)\b", ".log", known.sub(lambda found: table[found[0]], text)))


def check_same(folder: Path, place: Path, **options: Any) -> None:
    run(folder, "-o", place / "out", "--map", place / "names.json")
    names = Names(load(str(place / "names.json")))
    before = told(nccl_inspect.read(str(folder), **options))
    after = told(nccl_inspect.read(str(place / "out"), **options))
    assert mapped(after, place / "out", Names()) == mapped(before, folder, names)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_recording_says_the_same(folder: Path, tmp_path: Path) -> None:
    check_same(folder, tmp_path)


@pytest.mark.parametrize("example", WITH_FILES)
def test_files_beside_an_example_say_the_same(example: Example, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "job.log").write_bytes(example.log * int(example.options.get("repeat", 1)))
    for file in beside(example.options["beside"]):
        shutil.copy(file, folder)
    run(folder, "-o", tmp_path / "out", "--map", tmp_path / "names.json")
    before, after = (
        nccl_inspect.read(str(tmp_path / name), platform=example.options.get("platform")) for name in ("in", "out")
    )
    assert after.verdict == before.verdict
    assert [(f.rule, f.severity, f.confidence, f.ranks) for f in after.findings] == [
        (f.rule, f.severity, f.confidence, f.ranks) for f in before.findings
    ]
    # Lines stay where they are, since findings name them.
    assert [[e.line for e in f.evidence] for f in after.findings] == [
        [e.line for e in f.evidence] for f in before.findings
    ]
    assert [(a.kind, bool(a.problem)) for a in after.artifacts] == [(a.kind, bool(a.problem)) for a in before.artifacts]


@pytest.mark.parametrize("file", sorted(MACHINES.iterdir()), ids=lambda file: file.name)
def test_what_a_tool_printed_says_the_same(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "job.log").write_bytes(LOG)
    shutil.copy(file, folder / "gpu-a17.txt")
    check_same(folder, tmp_path)
    assert not list((tmp_path / "out").glob("*a17*"))


@pytest.mark.parametrize("name", FILES)
def test_what_was_planted_is_gone(name: str, tmp_path: Path) -> None:
    folder = planted(tmp_path / "in", name)
    (folder / "job.log").write_bytes(LOG.replace(b"gpu-a17", HOST.encode()))
    run(folder, "-o", tmp_path / "out")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) == 2
    assert leaks(tmp_path / "out") == []


def test_what_was_planted_is_gone_from_all_together_and_joins_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = planted(tmp_path / "in", *FILES)
    (folder / "job.log").write_bytes(LOG.replace(b"gpu-a17", POD.encode()))
    run(folder, "-o", tmp_path / "out.tar.gz", "--map", tmp_path / "names.json")
    assert capsys.readouterr().err == ""
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert {(info.uname, info.gname, info.mtime) for info in archive} == {("", "", 0)}
        archive.extractall(tmp_path, filter="data")
    assert leaks(tmp_path / "out") == []
    after, before = nccl_inspect.read(str(tmp_path / "out")), nccl_inspect.read(str(folder))
    kinds = [sorted((entry.kind, bool(entry.problem)) for entry in job.artifacts) for job in (after, before)]
    assert kinds[0] == kinds[1]
    names = json.loads((tmp_path / "names.json").read_text())["names"]
    # Pods are told to be of a job by its name in front of theirs.
    assert names["host"][POD].startswith(names["name"]["orion-train"] + "-")
    pod = json.loads((tmp_path / "out" / "pods.json").read_text())
    assert pod["metadata"]["name"] == names["host"][POD]
    assert pod["spec"]["containers"][0]["env"][:2] == pods()["spec"]["containers"][0]["env"][:2]
    assert pod["spec"]["containers"][0]["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits.keys() >= {"nvidia.com/gpu", "rdma/hca_shared"}
    assert yaml.safe_load((tmp_path / "out" / "pods.yaml").read_text()).keys() == pod.keys()


# --- any values ---------------------------------------------------------------------------------------------------

KINDS = {kind.KIND: kind for kind in artifacts.kinds()}
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**10), 10**10) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def changed(kind: Kind, data: bytes) -> bytes:
    anonymizer = Anonymizer(Names())
    evidence = Evidence(anonymizer)
    evidence.learn(kind, "file", data)
    anonymizer.settle()
    return b"".join(evidence.blocks(kind, data))


def shape(value: Any) -> Any:
    """What must stay: how values are nested, and all that is no text."""
    if isinstance(value, dict):
        return [shape(entry) for entry in value.values()]
    if isinstance(value, list):
        return [shape(entry) for entry in value]
    return str if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("kind", "write", "read"),
    [
        ("flight recorder dump", lambda value: pickle.dumps(value, 2), loads),
        ("flight recorder dump", lambda value: json.dumps(value).encode(), json.loads),
        ("docker inspect", lambda value: json.dumps(value, indent=2, ensure_ascii=False).encode(), json.loads),
        (
            "Kubernetes manifest",
            lambda value: yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode(),
            yaml.safe_load,
        ),
    ],
)
@given(value=st.dictionaries(TEXTS, VALUES, max_size=5))
def test_any_values_keep_their_shape(
    kind: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any], value: dict[str, Any]
) -> None:
    # New keys may be equal to each other in theory; none is lost here since each has a number of its own.
    value = {"entries": [value]}
    assert shape(read(changed(KINDS[kind], write(value)))) == shape(value)


NAMES = st.from_regex(r"[b-df-hj-np-tv-z]{7,12}[0-9]{0,2}", fullmatch=True).filter(
    lambda name: not any(word in name for word in ("nccl",))
)


@given(secret=NAMES, keys=st.lists(st.sampled_from(["spec", "metadata", "x", "custom", "template"]), max_size=3))
@pytest.mark.parametrize("kind", ["flight recorder dump", "RAS answer", "docker inspect", "Kubernetes manifest"])
def test_an_unknown_key_hides_its_value(kind: str, secret: str, keys: list[str]) -> None:
    value: Any = secret
    for key in keys:
        value = {key: [value]}
    for data in (pickle.dumps({"custom": value}, 2), json.dumps({"custom": value}).encode()):
        assert secret.encode() not in changed(KINDS[kind], data)


def test_all_meanings_are_known() -> None:
    for kind in artifacts.kinds():
        assert set(getattr(kind, "NAMES", {}).values()) <= fields.MEANINGS


def test_a_kind_that_states_nothing_is_masked() -> None:
    class New:
        __name__ = "new"
        KIND = "new"

    after = changed(New(), b'{"who": "zenith", "count": 3, "when": "2026-11-20T23:10:41Z"}')  # type: ignore[arg-type]
    assert json.loads(after) == {"who": "name-1", "count": 3, "when": "2026-11-20T23:10:41Z"}
    assert changed(New(), b"who: /home/zenith/x\n") == b"who: /home/user-1/x\n"  # type: ignore[arg-type]


def test_what_a_hostile_pickle_shares_is_not_multiplied() -> None:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    assert len(changed(KINDS["flight recorder dump"], pickle.dumps({"entries": value}, 2))) < 10_000
