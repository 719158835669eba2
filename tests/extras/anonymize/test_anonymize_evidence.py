"""``nccl-inspect anonymize`` of what was gathered: no name is left in any file, and all say the same together."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import rule_pages
import sample_data
import yaml
from anonymized_logs import PRIVATE, anonymize_log
from command_line import execute
from few_examples import FEW
from hypothesis import example, given
from hypothesis import strategies as st
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import Kind
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.cli import cli
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.extras.anonymize import cli_anonymize
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.extras.anonymize.evidence import MEANINGS, Evidence, stated_names
from nccl_inspect.extras.anonymize.text import CATEGORIES, Names, load_table
from nccl_inspect.model.job import Job
from nccl_inspect.util import secrets

LOG = b"gpu-a17:11:11 [0] NCCL INFO cudaDriverVersion 13000\ngpu-a17:11:11 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"


def run(*words: object) -> None:
    cli.main(["anonymize", *map(str, words)], standalone_mode=False)


# --- what was planted

HOST, POD, USER, PROJECT = "zenith-gpu17", "orion-train-worker-3", "bobsmith", "orion"
TOKEN, PASSWORD = "hf_aBcDeFgHiJkL", "Tr0ub4dor+3"
NUMBERS = ("203.0.113.7", "0x946dae03008d5f00", "94:6d:ae:8d:5f:00")
PLANTED = (HOST, POD, USER, PROJECT, TOKEN, PASSWORD, "zenith", *NUMBERS)
WANDB = "0123456789abcdef0123456789abcdef01234567"


def plant(name: str) -> Any:
    """Return a document of `tests/extras/anonymize/planted`, where these names stand in files as tools write them."""
    return json.loads(text(f"{name}.json"))


def text(name: str) -> bytes:
    return (TESTS / "extras" / "anonymize" / "planted" / name).read_bytes()


FILES: dict[str, bytes] = {
    "pods.json": json.dumps(plant("pod"), indent=2).encode(),
    "list.json": json.dumps(
        {"apiVersion": "v1", "items": [plant("pod"), plant("event")], "kind": "List"}, indent=2
    ).encode(),
    "pods.yaml": ("# by " + USER + "\n" + yaml.safe_dump(plant("pod"), sort_keys=True)).encode(),
    "wide.yaml": yaml.safe_dump(plant("pod"), width=30).encode(),
    "events.yaml": yaml.safe_dump(plant("event")).encode(),
    "docker.json": json.dumps(plant("docker"), indent=4).encode(),
    f"{PROJECT}_rank_0": pickle.dumps(plant("dump"), 2),
    f"{HOST}/nccl_trace_rank_1.json": json.dumps(plant("dump"), indent=1).encode(),
    "ras.json": json.dumps(plant("ras"), indent=1).encode(),
    **{name: text(name) for name in ("scontrol.txt", "train.sbatch")},
    **{f"hosts/{HOST}/{name}": text(name) for name in ("ibstat", "nvidia-smi-q", "df")},
    f"hosts/{HOST}/dmesg.log": text("dmesg"),
    f"{HOST}.xml": text("topology.xml"),
    "labelled.txt": b"".join(f"{HOST}: ".encode() + line for line in text("ibstat").splitlines(True)),
}
SECRETS = (*PLANTED, WANDB, "1654923004417", "5f1f9a52-3a1b-4f7c", "4f1c9d0a7b2e", "zenithcorp")


def list_planted(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(FILES[name])
    return folder


def leaks(folder: Path) -> list[tuple[str, str]]:
    found = []
    for file in (path for path in folder.rglob("*") if path.is_file()):
        text = f"{file.relative_to(folder)}\n".encode() + file.read_bytes()
        found += [(file.name, secret) for secret in SECRETS if secret.encode().lower() in text.lower()]
    return found


SAMPLES = ROOT / "sample_logs"


def document(job: Job) -> Any:
    """Return what a summary says, without what is of the files: their names and packing, and forms of names."""
    found: dict[str, Any] = job.to_dict()
    for key in ("sources", "config", "unrecognised", "suppressed", "passed_over"):
        found.pop(key, None)
    return found


def map_names(found: Any, folder: Path, names: Names) -> Any:
    """Return a document with the names replaced; numbers of LIDs and short words that are no names stay."""
    table = {
        name: new
        for category in CATEGORIES
        for name, new in names.table[category].items()
        if len(name) > 4 or category == "host"
    }
    either = "|".join(re.escape(name) for name in sorted(table, key=len, reverse=True)) or "(?!)"
    known = re.compile(rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])")
    text = json.dumps(found).replace(f"{folder}/", "")
    return json.loads(re.sub(r"\.log\.(?:xz|gz)\b", ".log", known.sub(lambda match: table[match[0]], text)))


def differences(folder: Path, place: Path) -> Iterator[str]:
    """Yield what a folder says otherwise after it is anonymized."""
    run(folder, "-o", place / "out", "--map", place / "names.json")
    names = Names(load_table(str(place / "names.json")))
    before = map_names(document(nccl_inspect.read(str(folder))), folder, names)
    after = map_names(document(nccl_inspect.read(str(place / "out"))), place / "out", Names())
    yield from (
        f"{folder.name}: {key}: {after[key]}, before: {before[key]}" for key in before if after[key] != before[key]
    )


def test_a_folder_says_the_same(tmp_path: Path) -> None:
    assert not [*differences(SAMPLES / "run-loop", tmp_path)]


@pytest.mark.slow
def test_every_recording_and_print_of_a_tool_says_the_same(tmp_path: Path) -> None:
    wrong: list[str] = []
    for folder in sorted(path for path in (SAMPLES / "mesh").iterdir() if path.is_dir()):
        wrong += differences(folder, tmp_path / folder.name)
    for file in sorted((TESTS / "data" / "machines").iterdir()):
        folder = tmp_path / file.name
        (folder / "in").mkdir(parents=True)
        (folder / "in" / "job.log").write_bytes(LOG)
        shutil.copy(file, folder / "in" / "gpu-a17.txt")
        wrong += differences(folder / "in", folder)
        wrong += [f"{file.name}: written as {path.name}" for path in (folder / "out").glob("*a17*")]
    assert not wrong, "\n".join(wrong)


def show_document(job: Job) -> Any:
    """Return what is found and in which lines: they stay where they are, since findings name them."""
    return (
        job.verdict,
        [(f.rule, f.severity, f.confidence, f.ranks, [e.line for e in f.evidence]) for f in job.findings],
        [(a.kind, bool(a.problem)) for a in job.artifacts],
    )


@pytest.mark.slow
def test_files_beside_an_example_say_the_same(tmp_path: Path) -> None:
    wrong: list[str] = []
    for given_example in (one for rule in rule_pages.RULES for one in rule_pages.examples(rule)):
        if not given_example.options.get("beside"):
            continue
        folder = tmp_path / given_example.id
        (folder / "in").mkdir(parents=True)
        (folder / "in" / "job.log").write_bytes(given_example.log * int(given_example.options.get("repeat", 1)))
        for file in rule_pages.beside(given_example.options["beside"]):
            shutil.copy(file, folder / "in")
        run(folder / "in", "-o", folder / "out")
        platform = given_example.options.get("platform")
        before, after = (
            show_document(nccl_inspect.read(str(folder / name), platform=platform)) for name in ("in", "out")
        )
        wrong += [f"{given_example.id}: {after}, before: {before}"] if after != before else []
    assert not wrong, "\n".join(wrong)


def test_what_was_planted_is_gone(tmp_path: Path) -> None:
    wrong: list[object] = []
    for number, name in enumerate(FILES):
        folder = list_planted(tmp_path / f"in-{number}", name)
        (folder / "job.log").write_bytes(LOG.replace(b"gpu-a17", HOST.encode()))
        run(folder, "-o", tmp_path / f"{number}")
        written = [path for path in (tmp_path / f"{number}").rglob("*") if path.is_file()]
        if len(written) != 2 or leaks(tmp_path / f"{number}"):
            wrong.append((name, written, leaks(tmp_path / f"{number}")))
    assert not wrong


def test_what_was_planted_is_gone_from_all_together_and_joins_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = list_planted(tmp_path / "in", *FILES)
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
    container, was = (one["spec"]["containers"][0] for one in (pod, plant("pod")))
    assert container["env"][:2] == was["env"][:2]
    assert container["securityContext"] == was["securityContext"]
    assert container["resources"]["limits"].keys() >= {"nvidia.com/gpu", "rdma/hca_shared"}
    assert yaml.safe_load((tmp_path / "out" / "pods.yaml").read_text()).keys() == pod.keys()


# --- any values

KINDS = {kind.title: kind for kind in artifacts.kinds()}
MANIFEST = KINDS["Kubernetes manifest"]
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**10), 10**10) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def as_yaml(value: Any) -> bytes:
    text: str = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    return text.encode()


FORMS: list[tuple[Kind, Callable[[Any], bytes], Callable[[bytes], Any]]] = [
    (KINDS["flight recorder dump"], lambda value: pickle.dumps(value, 2), loads),
    (KINDS["flight recorder dump"], lambda value: json.dumps(value).encode(), json.loads),
    (KINDS["docker inspect"], lambda value: json.dumps(value, indent=2, ensure_ascii=False).encode(), json.loads),
    (MANIFEST, as_yaml, yaml.safe_load),
]


def change_document(kind: Kind, data: bytes) -> bytes:
    anonymizer = Anonymizer(Names())
    evidence = Evidence(kind, anonymizer)
    evidence.learn(data)
    anonymizer.settle()
    return b"".join(evidence.blocks(data))


def shape(value: Any, is_hidden: bool = False) -> Any:
    """Return what must stay: how values are nested, and all that is no text; of a secret number, its type."""
    if isinstance(value, dict):
        return [shape(entry, secrets.is_secret(str(key))) for key, entry in value.items()]
    if isinstance(value, list):
        return [shape(entry, is_hidden) for entry in value]
    is_typed = isinstance(value, str) or (is_hidden and isinstance(value, int | float))
    return type(value) if is_typed else value


@example({"password": None, "token": True, "secret": 12345678, "api_key": 1.5, "note": [None, False, 7]})
@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_any_values_keep_their_shape(value: dict[str, Any]) -> None:
    # New keys may be equal to each other in theory; none is lost here since each has a number of its own.
    value = {"entries": [value]}
    for kind, write, read in FORMS:
        assert shape(read(change_document(kind, write(value)))) == shape(value)


def test_a_secret_number_stays_a_number_and_is_hidden() -> None:
    secret = {"password": 12345678, "token": -2.5, "serial": [10**14], "replicas": 4, "paused": True, "x": None}
    got = yaml.safe_load(change_document(MANIFEST, as_yaml(secret)))
    assert {key: type(value) for key, value in got.items()} == {key: type(value) for key, value in secret.items()}
    assert [got[key] for key in ("replicas", "paused", "x")] == [4, True, None]
    assert not {12345678, -2.5} & {got["password"], got["token"]}


NAMES = st.from_regex(r"[b-df-hj-np-tv-z]{7,12}[0-9]{0,2}", fullmatch=True).filter(lambda name: "nccl" not in name)


@FEW
@given(secret=NAMES, keys=st.lists(st.sampled_from(["spec", "metadata", "x", "custom", "template"]), max_size=3))
def test_an_unknown_key_hides_its_value(secret: str, keys: list[str]) -> None:
    value: Any = secret
    for key in keys:
        value = {key: [value]}
    for kind in ("flight recorder dump", "RAS answer", "docker inspect", "Kubernetes manifest"):
        for data in (pickle.dumps({"custom": value}, 2), json.dumps({"custom": value}).encode()):
            assert secret.encode() not in change_document(KINDS[kind], data), kind


def test_all_meanings_are_known() -> None:
    for kind in artifacts.kinds():
        assert set(stated_names(kind.name).values()) <= MEANINGS, kind


def test_a_kind_that_states_nothing_is_masked() -> None:
    new = Kind("new", "new", lambda _: True, lambda _name, data: data)
    data = json.dumps({"who": "zenith", "by": "Жанна", "count": 3, "when": "2026-11-20T23:10:41Z"}).encode()
    after = json.loads(change_document(new, data))
    assert after == {"who": "name1", "by": "redacted-1", "count": 3, "when": "2026-11-20T23:10:41Z"}
    assert change_document(new, b"who: /home/zenith/x\n") == b"who: /home/user-1/x\n"


def test_a_variable_may_have_its_value_before_its_name() -> None:
    variables = [{"value": "eth0", "name": "NCCL_SOCKET_IFNAME"}, {"value": "zenith", "name": "ORION_OWNER"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "b", "env": variables}]}}
    for data in (json.dumps(pod, indent=1).encode(), as_yaml(pod)):
        after = yaml.safe_load(change_document(MANIFEST, data))["spec"]["containers"][0]["env"]
        assert after[0] == variables[0]
        assert not {"zenith", "ORION_OWNER"} & set(after[1].values())


def test_what_a_hostile_pickle_shares_is_not_multiplied() -> None:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    assert len(change_document(KINDS["flight recorder dump"], pickle.dumps({"entries": value}, 2))) < 10_000


# --- ``nccl-inspect anonymize`` as a command: pipes, folders, archives, what ``collect`` wrote, what is passed over


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def list_written(folder: Path) -> dict[str, list[str]]:
    """Return the lines of the files, by their names, without numbers: names are numbered in the order of reading."""
    return {
        Path(name).name: re.sub(r"[0-9]+", "0", (folder / name).read_bytes().decode("latin-1")).splitlines()
        for name in names(folder)
    }


def test_what_is_piped_in_comes_out(tmp_path: Path) -> None:
    done = execute("anonymize", data=PRIVATE)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", anonymize_log(PRIVATE)[1][0])
    args = ["-o", str(tmp_path / "out.log"), "--map", str(tmp_path / "names.json")]
    assert execute("anonymize", "-", *args, data=PRIVATE).returncode == 0
    assert (tmp_path / "out.log").read_bytes() == anonymize_log(PRIVATE)[1][0]
    assert "gpu-a17" in json.loads((tmp_path / "names.json").read_text())["names"]["host"]
    done = execute("anonymize", str(list_planted(tmp_path, "pods.json") / "pods.json"))
    assert json.loads(done.stdout)["kind"] == "Pod"


def test_a_folder_becomes_a_folder(tmp_path: Path) -> None:
    source = str(sample_data.FOLDER / "debug-file-per-process")
    done = execute("anonymize", source, "-o", str(tmp_path / "out"))
    assert done.returncode == 0
    passed_over = rb"nccl-inspect: passed over: \S+/truth\.json \(neither a log nor evidence of a known kind\)\n"
    assert re.fullmatch(passed_over, done.stderr)
    logs = names(tmp_path / "out")
    assert logs[:3] == ["job.log", "per-process/nccl.host-1.4182.log", "per-process/nccl.host-1.4183.log"]
    assert len(logs) == 9
    assert nccl_inspect.read(str(tmp_path / "out")).verdict == nccl_inspect.read(source).verdict
    several = b"nccl-inspect: several files; name a folder for them: -o FOLDER, or -o FILE.tar.gz\n"
    assert execute("anonymize", source).stderr == several


def test_archives_are_unpacked_and_stay_in_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "logs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("../gpu-a17.log", "b/gpu-a17.log", "b/gpu-a17.log.gz"):
            info = tarfile.TarInfo(name)
            info.size = len(PRIVATE)
            tar.addfile(info, io.BytesIO(PRIVATE))
    run(archive, "-o", tmp_path / "out")
    assert names(tmp_path) == ["logs.tar.gz", "out/b/2-host-1.log", "out/b/host-1.log", "out/host-1.log"]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("hello\n")
    with pytest.raises(NoInputError, match=r"job\.log: no NCCL line among 1 line;"):
        run(tmp_path / "job.log", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(NoInputError, match="no such file"):
        run(tmp_path / "no.log")
    (tmp_path / "good.log").write_bytes(PRIVATE)
    done = execute("anonymize", "good.log", "no.log", "-o", "out.log", cwd=tmp_path)
    assert (done.returncode, b"no such file" in done.stderr) == (0, True)
    assert (tmp_path / "out.log").is_file()
    assert execute("anonymize", "good.log", "-o", "no/out.log", cwd=tmp_path).returncode == 2


def test_folders_that_are_not_empty_and_inputs_are_safe(tmp_path: Path) -> None:
    folder = list_planted(tmp_path / "in", "pods.json", "ras.json")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(NcclInspectError, match=r"not empty.*--overwrite"):
        run(folder, "-o", tmp_path / "out")
    run(folder, "-o", tmp_path / "out", "--overwrite")
    assert names(tmp_path / "out") == ["mine", "pods.json", "ras.json"]
    with pytest.raises(NcclInspectError, match="it holds an input"):
        run(folder, "-o", folder, "--overwrite")
    with pytest.raises(NcclInspectError, match="is one of the inputs"):
        run(folder / "pods.json", "-o", folder / "pods.json")
    assert (folder / "pods.json").read_bytes() == FILES["pods.json"]


def test_what_is_not_recognized_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = list_planted(tmp_path / "in", "ras.json")
    (folder / "notes.html").write_text(f"run by {USER} in /home/{USER}/x\n")
    (folder / "weights.bin").write_bytes(b"\0" * 9)
    (folder / "nccl_trace_rank_0").write_bytes(FILES[f"{PROJECT}_rank_0"][:-9])
    run(folder, "-o", tmp_path / "out")
    shown = capsys.readouterr().err
    assert "passed over: " in shown
    assert all(name in shown for name in ("notes.html (not a log", "weights.bin (", "nccl_trace_rank_0 (flight"))
    assert names(tmp_path / "out") == ["ras.json"]


def test_a_name_that_is_left_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "job.log").write_bytes(LOG + b"we thank quartz for all\n")
    (folder / "ras.json").write_text(FILES["ras.json"].decode().replace(HOST, "quartz"))
    run(folder, "-o", tmp_path / "out")
    assert ("quartz" in (tmp_path / "out" / "job.log").read_text()) == ("still names quartz" in capsys.readouterr().err)
    (folder / "one.log").write_bytes(LOG.replace(b"gpu-a17", b"man") + b"one man for all\n")
    for out, name in (("one.log", str(tmp_path / "one.log")), ("-", "<stdout>")):
        run(folder / "one.log", "-o", tmp_path / out if out != "-" else out)
        assert f"{name}: still names man; review it" in capsys.readouterr().err


@pytest.mark.slow
def test_packed_evidence_is_written_as_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = list_planted(tmp_path / "in", *FILES)
    (folder / "job.log").write_bytes(LOG)
    run(folder, "-o", tmp_path / "plain")
    assert len(names(tmp_path / "plain")) == len(FILES) + 1
    zipped = shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert capsys.readouterr().err == ""
    (folder / "other.bin").write_bytes(b"\0")
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", folder)
    for number, packed in enumerate((folder, Path(zipped), Path(archive))):
        run(packed, "-o", tmp_path / f"{number}")
        assert list_written(tmp_path / f"{number}") == list_written(tmp_path / "plain")
        assert leaks(tmp_path / f"{number}") == []
        assert ("other.bin" in capsys.readouterr().err) == (packed != Path(zipped))


def test_what_collect_writes_for_people_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    shutil.copytree(TESTS / "data" / "collected", folder)
    (list_planted(folder, "ras.json") / "job.log").write_bytes(LOG)
    for number, collection in enumerate((folder, shutil.make_archive(str(tmp_path / "packed"), "gztar", folder))):
        run(collection, "-o", tmp_path / f"{number}")
        assert names(tmp_path / f"{number}") == ["job.log", "ras.json"]
        assert capsys.readouterr().err.count("passed over: ") == len(names(folder)) - 2


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files without a name can be opened again on Linux only")
def test_no_kill_leaves_piped_input_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a line\n")))
    with ExitStack() as stack:
        path = Path(cli_anonymize.keep_input("-", stack))
        assert path.read_bytes() == path.read_bytes() == b"a line\n"
        assert not [*tmp_path.iterdir()]
