"""``anonymize`` of folders: what is not recognised is named, and what ``collect`` wrote is written as a whole."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from pathlib import Path

import pytest
import yaml
from anonymized_evidence import FILES, HOST, LOG, USER, dump, leaks, planted, ras, run, written

from nccl_inspect.anonymous.names import Names
from nccl_inspect.errors import NcclInspectError


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
