"""``nccl-inspect anonymize`` of what was gathered: no name is left in any file, and all say the same together."""

from __future__ import annotations

import gzip
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
from nccl_inspect.cli import cli
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import Job

SAMPLES = ROOT / "sample_logs"
MACHINES = TESTS / "data" / "machines"
FOLDERS = [SAMPLES / "run-loop", *sorted(path for path in (SAMPLES / "mesh").iterdir() if path.is_dir())]
WITH_FILES = [case for case in EXAMPLES if cast(Example, case.values[0]).options.get("beside")]
LOG = b"gpu-a17:11:11 [0] NCCL INFO cudaDriverVersion 13000\ngpu-a17:11:11 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"


def run(*words: object) -> None:
    cli.main(["anonymize", *map(str, words)], standalone_mode=False)


def told(job: Job) -> Any:
    """What is told of a job, without what is of the files: their names and packing, and forms of names."""
    document: dict[str, Any] = job.to_dict()
    for key in ("sources", "config", "unrecognised", "suppressed", "passed_over"):
        document.pop(key, None)
    document["head"] = {key: value for key, value in document["head"].items() if key != "do"}
    for finding in document["findings"]:
        del finding["fix"]
    return document


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


# --- what was planted ---------------------------------------------------------------------------------------------

HOST, POD, USER, PROJECT = "zenith-gpu17", "orion-train-worker-3", "bobsmith", "orion"
TOKEN, PASSWORD, IMAGE = "hf_aBcDeFgHiJkL", "Tr0ub4dor+3", "registry.zenithcorp.com/nlp/orion-train:2.1-bob"
PLANTED = (
    HOST,
    POD,
    USER,
    PROJECT,
    TOKEN,
    PASSWORD,
    "zenith",
    "203.0.113.7",
    "0x946dae03008d5f00",
    "94:6d:ae:8d:5f:00",
)
WANDB = "0123456789abcdef0123456789abcdef01234567"


def pods() -> dict[str, Any]:
    container = {
        "name": f"{PROJECT}-main",
        "image": IMAGE,
        "command": ["bash", "-c", f"cd /home/{USER}/{PROJECT} && python train.py --api-key {PASSWORD}"],
        "args": ["--wandb-token", WANDB, f"--data=s3://zenith-data/{PROJECT}"],
        "env": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "NCCL_IB_HCA", "value": "mlx5_0,mlx5_1"},
            {"name": "HF_TOKEN", "value": TOKEN},
            {"name": "DB_PASSWORD", "value": PASSWORD},
            {"name": f"{PROJECT.upper()}_BUCKET", "value": f"s3://zenith-{PROJECT}/x"},
        ],
        "resources": {"limits": {"nvidia.com/gpu": "8", "rdma/hca_shared": "1", "zenithcorp.com/nic": "1"}},
        "volumeMounts": [{"mountPath": f"/mnt/{PROJECT}", "name": f"{PROJECT}-data"}],
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }
    metadata: dict[str, Any] = {
        "name": POD,
        "namespace": "zenith-ml",
        "labels": {"zenithcorp.com/team": USER, "app": PROJECT},
        "annotations": {"owner": f"{USER}@zenithcorp.com", "note": f"run of {USER} for {PROJECT}"},
        "ownerReferences": [{"kind": "Job", "name": "orion-train"}],
        "managedFields": [{"manager": USER, "fieldsV1": {f'k:{{"name":"{PROJECT}-data"}}': {}}}],
    }
    spec = {"nodeName": f"{HOST}.zenithcorp.com", "serviceAccountName": f"{PROJECT}-sa", "containers": [container]}
    status = {"phase": "Failed", "hostIP": "203.0.113.7", "message": f"Pod was evicted from {HOST} by {USER}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def event() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "name": POD, "namespace": "zenith-ml"},
        "message": f"Successfully assigned zenith-ml/{POD} to {HOST}",
        "source": {"component": "kubelet", "host": HOST},
    }


def docker() -> list[dict[str, Any]]:
    return [
        {
            "Id": "4f1c9d0a7b2e" * 5,
            "Name": f"/{PROJECT}-run",
            "Path": "torchrun",
            "Args": ["--password", PASSWORD, f"/home/{USER}/train.py"],
            "HostConfig": {"Binds": [f"/home/{USER}/{PROJECT}:/data:ro"], "NetworkMode": "host", "ShmSize": 67108864},
            "Config": {
                "Hostname": HOST,
                "User": USER,
                "Env": ["NCCL_DEBUG=INFO", f"HF_TOKEN={TOKEN}", f"TEAM={PROJECT}"],
                "Image": IMAGE,
                "Labels": {"maintainer": f"{USER}@zenithcorp.com"},
            },
            "NetworkSettings": {"MacAddress": "94:6d:ae:8d:5f:00", "IPAddress": "203.0.113.7"},
        }
    ]


def dump() -> dict[str, Any]:
    frames = [
        {"name": "all_reduce", "filename": "/opt/torch/distributed/distributed_c10d.py", "line": 1},
        {"name": "step", "filename": f"/home/{USER}/{PROJECT}/train.py", "line": 7},
    ]
    entry = {
        "frames": frames,
        "record_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "thread_name": f"{PROJECT}-{HOST}",
        "extra": {"owner": USER, "where": f"{HOST}:1234"},
    }
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "comm_lib_version": "2.28.9", "pg_config": groups, "pg_status": {}, "entries": [entry]}


def ras() -> dict[str, Any]:
    rank = {"rank": 0, "host": HOST, "pid": 7, "collective_counts": {"AllReduce": 1}}
    comm = {"hash": "0xdc70b0f089e62d4", "size": 1, "ranks": [rank], "missing_ranks": []}
    return {"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [comm]}


SLURM = f"""JobId=4711 JobName={PROJECT}
   UserId={USER}(1001) GroupId={USER}(1001) MCS_label=N/A
   Priority=1 Nice=0 Account=zenith QOS=normal
   Partition=gpu AllocNode:Sid={HOST}:20127
   NodeList={HOST}
   Command=/home/{USER}/train.sbatch
   WorkDir=/p/{USER}/{PROJECT}
"""
SCRIPT = f"""#!/bin/bash
#SBATCH --job-name={PROJECT}
#SBATCH --account zenith
#SBATCH --chdir=/home/{USER}/{PROJECT}
export HF_TOKEN={TOKEN} NCCL_DEBUG=INFO
ssh {USER}@{HOST} ls
srun -w {HOST} python train.py --password {PASSWORD}
"""
IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNode GUID: 0x946dae03008d5f00
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tPort GUID: 0x946dae03008d5f00
"""
QUERY = """==============NVSMI LOG==============
GPU 00000000:00:06.0
    Product Name                                       : NVIDIA H200
    Serial Number                                      : 1654923004417
    GPU UUID                                           : GPU-5f1f9a52-3a1b-4f7c-8d8e-0f9d6b1d7a01
    ECC Errors
        Volatile
            DRAM Uncorrectable                         : 0
    Processes
        Process ID                                     : 7
            Name                                       : /home/bobsmith/orion/bin/python
"""
DF = f"Filesystem      Size  Used Avail Use% Mounted on\n{HOST}:/export/{PROJECT} 1.0T  1G  1.0T   1% /home/{USER}\n"
KERNEL = "".join(f"Nov 23 01:22:1{n} {HOST} kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1234\n" for n in range(3))
TOPOLOGY = '<system version="1">\n  <cpu host_hash="0x946dae03008d5f00" numaid="-1" arch="x86_64"/>\n</system>\n'
FILES: dict[str, bytes] = {
    "pods.json": json.dumps(pods(), indent=2).encode(),
    "list.json": json.dumps({"apiVersion": "v1", "items": [pods(), event()], "kind": "List"}, indent=2).encode(),
    "pods.yaml": ("# by " + USER + "\n" + yaml.safe_dump(pods(), sort_keys=True)).encode(),
    "wide.yaml": yaml.safe_dump(pods(), width=30).encode(),
    "events.yaml": yaml.safe_dump(event()).encode(),
    "docker.json": json.dumps(docker(), indent=4).encode(),
    f"{PROJECT}_rank_0": pickle.dumps(dump(), 2),
    f"{HOST}/nccl_trace_rank_1.json": json.dumps(dump(), indent=1).encode(),
    "ras.json": json.dumps(ras(), indent=1).encode(),
    "scontrol.txt": SLURM.encode(),
    "train.sbatch": SCRIPT.encode(),
    f"hosts/{HOST}/ibstat": IBSTAT.encode(),
    f"hosts/{HOST}/nvidia-smi-q": QUERY.encode(),
    f"hosts/{HOST}/df": DF.encode(),
    f"hosts/{HOST}/dmesg.log": KERNEL.encode(),
    f"{HOST}.xml": TOPOLOGY.encode(),
    "labelled.txt": "".join(f"{HOST}: {line}\n" for line in IBSTAT.splitlines()).encode(),
}
SECRETS = (*PLANTED, WANDB, "1654923004417", "5f1f9a52-3a1b-4f7c", "4f1c9d0a7b2e", "zenithcorp")


def planted(folder: Path, *names: str) -> Path:
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


# --- the command --------------------------------------------------------------------------------------------------


def test_folders_that_are_not_empty_and_inputs_are_safe(tmp_path: Path) -> None:
    folder = planted(tmp_path / "in", "pods.json", "ras.json")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(NcclInspectError, match=r"not empty.*--overwrite"):
        run(folder, "-o", tmp_path / "out")
    run(folder, "-o", tmp_path / "out", "--overwrite")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["mine", "pods.json", "ras.json"]
    with pytest.raises(NcclInspectError, match="it holds an input"):
        run(folder, "-o", folder, "--overwrite")
    with pytest.raises(NcclInspectError, match="is one of the inputs"):
        run(folder / "pods.json", "-o", folder / "pods.json")
    assert (folder / "pods.json").read_bytes() == FILES["pods.json"]


def test_what_is_not_recognized_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = planted(tmp_path / "in", "ras.json")
    (folder / "notes.html").write_text(f"run by {USER} in /home/{USER}/x\n")
    (folder / "weights.bin").write_bytes(b"\0" * 9)
    (folder / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump(), 2)[:-9])
    run(folder, "-o", tmp_path / "out")
    told = capsys.readouterr().err
    assert "passed over: " in told
    assert all(name in told for name in ("notes.html (not a log", "weights.bin (", "nccl_trace_rank_0 (flight"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["ras.json"]
    run(folder, "-o", tmp_path / "more", "--all-text")
    assert sorted(path.name for path in (tmp_path / "more").iterdir()) == ["notes.html", "ras.json"]
    assert USER not in (tmp_path / "more" / "notes.html").read_text()
    assert "notes.html" not in capsys.readouterr().err


def test_evidence_alone_goes_to_standard_output(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = planted(tmp_path, "pods.json")
    run(folder / "pods.json")
    assert json.loads(capsysbinary.readouterr().out)["kind"] == "Pod"


@pytest.mark.parametrize("form", ["gztar", "zip"])
def test_an_archive_is_read_with_its_evidence(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = planted(tmp_path / "in", *FILES)
    (folder / "job.log").write_bytes(LOG)
    (folder / "other.bin").write_bytes(b"\0")
    archive = shutil.make_archive(str(tmp_path / "packed"), form, tmp_path, "in")
    run(Path(archive), "-o", tmp_path / "out")
    assert "passed over" in (said := capsys.readouterr().err)
    assert "other.bin" in said
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) == len(FILES) + 1
    assert leaks(tmp_path / "out") == []


def test_packed_evidence_is_written_as_what_it_is(tmp_path: Path) -> None:
    folder = planted(tmp_path / "in", *FILES)
    (folder / "job.log").write_bytes(LOG)
    run(folder, "-o", tmp_path / "plain")
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    run(folder, "-o", tmp_path / "out")
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", folder)
    run(Path(archive), "-o", tmp_path / "unpacked")
    for name in ("out", "unpacked"):
        assert written(tmp_path / name) == written(tmp_path / "plain")
        assert leaks(tmp_path / name) == []


def written(folder: Path) -> dict[str, list[str]]:
    """The lines of the files, by their names; numbers are the same: names are numbered in the order of reading."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.name: [re.sub(r"[0-9]+", "0", line) for line in path.read_bytes().decode("latin-1").splitlines()]
        for path in files
    }


def test_a_name_that_is_left_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "job.log").write_bytes(LOG + b"we thank quartz for all\n")
    (folder / "ras.json").write_text(json.dumps(ras()).replace(HOST, "quartz"))
    run(folder, "-o", tmp_path / "out")
    assert ("quartz" in (tmp_path / "out" / "job.log").read_text()) == ("still names quartz" in capsys.readouterr().err)


# --- what collect wrote -------------------------------------------------------------------------------------------

EVENTS = """LAST SEEN  TYPE    REASON     OBJECT                     SOURCE                  MESSAGE
1m         Normal  Scheduled  pod/orion-train-worker-3   default-scheduler       Successfully assigned nlp/web to zenith-gpu17
1m         Normal  Pulling    pod/payroll                kubelet, zenith-gpu18   Back-off
"""  # noqa: E501
NODE = """Name:               zenith-gpu17
Roles:              <none>
Labels:             node.kubernetes.io/instance-type=p5.48xlarge
                    team=payroll
Annotations:        container.googleapis.com/instance_id: 7718812349912345678
Addresses:
  InternalIP:   10.128.7.7
  Hostname:     zenith-gpu17
System Info:
  Machine ID:    0f1e2d3c4b5a69788796a5b4c3d2e1f0
ProviderID:      gce://zenithcorp-1234/europe-west4-b/zenith-gpu17
Non-terminated Pods:          (1 in total)
  Namespace                   Name                      CPU Requests
  ---------                   ----                      ------------
  nlp                         web                       100m (0%)
"""
INDEX = "nccl-inspect collection\n\nkept\n  logs/orion-train-worker-3/trainer.log\n      kubectl logs zenith-gpu17\n"


TABLES = {
    "scontrol-nodes": "NodeName=zenith-gpu17 \n   Partitions=orion,nlp Owner=bobsmith(7)\n   Reason=seen by bob\n",
    "scontrol-step": "StepId=4711.0 UserId=1001\n   Partition=orion NodeList=zenith-gpu17\n   Name=payroll\n",
    "sacct": "JobID|JobName|State|NodeList|Reason\n4711|payroll|FAILED|zenith-gpu[17-18]|seen by bob\n4|web|OOM|||\n",
    "uname": "Linux zenith-gpu17 6.8.0-45-generic #1 SMP x86_64 GNU/Linux\n",
    "ip-addr": "1: lo: <LOOPBACK,UP> mtu 65536\n2: eth0: <UP> mtu 1500\n    inet 10.128.7.7/24\n",
}


def collected(folder: Path) -> None:
    (folder / "nodes").mkdir(parents=True)
    (folder / "job.log").write_bytes(LOG.replace(b"gpu-a17", b"orion-train-worker-3"))
    (folder / "events").write_text(EVENTS)
    (folder / "nodes" / "zenith-gpu17").write_text(NODE)
    (folder / "collection.txt").write_text(INDEX)
    for name, text in TABLES.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("form", ["", "gztar", "zip"])
def test_a_collection_is_written_as_a_whole(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collected(tmp_path / "in")
    given_name = shutil.make_archive(str(tmp_path / "packed"), form, tmp_path / "in") if form else tmp_path / "in"
    run(given_name, "-o", tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) == 4 + len(TABLES)
    assert not capsys.readouterr().err
    text = "".join(f"{path}\n{path.read_text()}" for path in files)
    for name in ("orion", "zenith", "payroll", "nlp", "web", "bob", "7718812", "10.128", "0f1e2d3c"):
        assert name not in text
    assert "p5.48xlarge" in text
    for kept in ("Successfully assigned", "eth0", "FAILED", "6.8.0-45", "]|redacted-"):
        assert kept in text


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_variable_may_have_its_value_before_its_name(form: str, tmp_path: Path) -> None:
    variables = [{"value": "eth0", "name": "NCCL_SOCKET_IFNAME"}, {"value": "zenith", "name": "ORION_OWNER"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "b", "env": variables}]}}
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "job.log").write_bytes(LOG)
    text = json.dumps(pod, indent=1) if form == "json" else yaml.dump(pod, sort_keys=False)
    (folder / f"pod.{form}").write_text(text)
    run(folder, "-o", tmp_path / "out")
    after = yaml.safe_load((tmp_path / "out" / f"pod.{form}").read_text())["spec"]["containers"][0]["env"]
    assert after[0] == variables[0]
    assert not {"zenith", "ORION_OWNER"} & set(after[1].values())


def test_a_guid_is_one_in_each_notation() -> None:
    names = Names()
    written = [names.get("guid", guid) for guid in ("0x506b4b0300abcdef", "506b:4b03:00ab:cdef", "506B4B0300ABCDEF")]
    assert written == ["0x0000000000000001", "0000:0000:0000:0001", "0000000000000001"]
    assert Names(names.table).get("guid", "506b4b03.00abcdef") == "00000000.00000001"
    assert names.get("guid", "0x506b4b0300abcdee") == "0x0000000000000002"
