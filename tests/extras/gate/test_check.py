"""Policies: each expectation is kept, broken with its line, or undecided; one is learned from a good log.

What is printed in each format is in `tests/answers/commands.txt` (`gates/policies`).
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import large_job
import pytest
import sample_data
from command_line import execute, invoke
from repository import ROOT, TESTS
from schemas import close_schema

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.gate.formats import check_document
from nccl_inspect.extras.gate.policy import read_policy
from nccl_inspect.model.job import Job

VALIDATOR = close_schema("nccl-inspect-check-1")
POLICIES = tomllib.loads((TESTS / "extras" / "gate" / "policies.toml").read_text(encoding="utf-8"))
HEALTHY = "p2p-nvlink-8gpu"
SHM = "v2.30.7-shm-4gpu"
OFI = "v2.28.9-libfabric-2node"


def log(name: str) -> str:
    path = sample_data.FOLDER / name
    return str(path if path.is_file() else path / "job.log")


def line(rank: int, message: str) -> str:
    return f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {message}\n"


FRAGMENT = "fragment"
FRAGMENT_LOG = (
    line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    + line(0, "NCCL_ALGO set by environment to Ring")
    + line(0, "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA")
    + line(0, "Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/3")
)
DAMAGED = "damaged"
UNKNOWN = "unknown"
MADE = {
    FRAGMENT: FRAGMENT_LOG,
    DAMAGED: "vm:1:1 [0 NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n",
    UNKNOWN: line(0, "a line that no release prints"),
    "one host": line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"),
    "one rank on each host": large_job.log(3, on_each=1).decode(),
    "version only": "NCCL version 2.27.3+cuda12.9\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@cache
def job(name: str) -> Job:
    return nccl_inspect.read(MADE[name].encode() if name in MADE else log(name))


def check_job(folder: Path, name: str, policy: str, *args: str) -> dict[str, Any]:
    """Return the document of a log and a policy."""
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    result = invoke("check", log(name), "--policy", "policy.toml", "--format", "json", *args)
    document: dict[str, Any] = json.loads(result.stdout)
    VALIDATOR.validate(document)
    assert result.return_value == int(not document["is_met"])
    return document


def test_expectations() -> None:
    wrong: list[object] = []
    for name, policy, state, summary in POLICIES["expectations"]:
        document = check_document(read_policy(tomllib.loads(policy)).check(job(name)), strict=False)
        VALIDATOR.validate(document)
        entries = [entry for entry in document["expectations"] if entry["state"] == state]
        if document["state"] != state or summary not in entries[0]["summary"]:
            wrong.append((name, policy, state, document["expectations"]))
        for entry in document["expectations"]:
            needs_line = entry["state"] == "broken" and "dead or stuck" not in entry["summary"]
            if bool(entry["todo"]) != (entry["state"] != "kept") or (needs_line and not entry["evidence"]):
                wrong.append((name, policy, entry))
    assert not wrong, "\n".join(map(str, wrong))


def test_what_is_accepted_breaks_nothing_and_the_text_fits(folder: Path) -> None:
    accepted = '[[suppress]]\nrule = "{}"\nreason = "no P2P here"\n'
    (folder / "nccl-inspect.toml").write_text(accepted.format("p2p-*") + accepted.format("shm-*"))
    document = check_job(folder, SHM, 'max_severity = "none"')
    assert (document["is_met"], document["config"]) == (True, str(folder / "nccl-inspect.toml"))
    (folder / "policy.toml").write_text('world_size = 8\n[environment]\nforbidden = ["NCCL_P2P_DISABLE=1"]\n')
    for columns in (40, 80, 120):
        shown = execute("check", log(SHM), "--policy", "policy.toml", env={"COLUMNS": f"{columns}"}).stdout.decode()
        assert not [text for text in shown.splitlines() if len(text) > columns and " " in text.strip()]


# --- learning from a good log


def test_a_learned_policy_is_kept_by_its_log_and_by_no_other(folder: Path) -> None:
    for name in (HEALTHY, "p2p-direct-threads", "v2.21.5-ipc", "field-notes/p4d-1pod-4gpu.log"):
        assert invoke("check", "--learn", log(name), "-o", "policy.toml").return_value == 0
        assert invoke("check", log(name), "--policy", "policy.toml", "--strict").return_value == 0
        assert invoke("check", log(SHM), "--policy", "policy.toml").return_value == 1


def test_a_policy_learned_from_an_accepted_log_holds_all_that_the_log_shows(folder: Path) -> None:
    (folder / "nccl-inspect.toml").write_text('[[suppress]]\nrule = "*"\nreason = "the best we have"\n')
    assert invoke("check", "--learn", log(OFI), "-o", "policy.toml").return_value == 0
    policy = read_policy("policy.toml")
    assert {each.key for each in policy.expectations} == {
        *("world_size", "hosts", "min_channels", "max_severity", "max_unrecognised_lines", "max_damaged_lines"),
        *("versions.nccl", "versions.cuda", "versions.plugin", "network.name", "network.provider"),
        *("paths.intra.transport", "paths.intra.min_channels", "paths.inter.transport", "paths.inter.min_channels"),
        *("environment.forbidden", "environment.required"),
    }
    assert "# gdr: the log has paths without" in (folder / "policy.toml").read_text()
    assert invoke("check", log(OFI), "--policy", "policy.toml", "--strict").return_value == 0


# --- the file


def test_the_example_of_all_keys_is_read(folder: Path) -> None:
    guide = (ROOT / "docs" / "howto" / "ci-gate.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(world_size.*?)```", guide, re.DOTALL)
    (folder / "policy.toml").write_text(shown, encoding="utf-8")
    assert len([each.key for each in read_policy("policy.toml").expectations]) == 20


def test_a_mistake_is_an_error_of_one_line(folder: Path) -> None:
    wrong: list[object] = []
    for text, says in POLICIES["mistakes"].items():
        (folder / "policy.toml").write_text(text, encoding="utf-8")
        with pytest.raises(NcclInspectError) as raised:
            read_policy("policy.toml")
        wrong += [] if says in str(raised.value) else [(text, str(raised.value))]
    (folder / "policy.toml").write_text("world_size = 8")
    for args, (status, says) in POLICIES["calls"].items():
        done = execute("check", *args.split())
        message = done.stderr.decode()
        if (done.returncode, message.count("\n"), says in message) != (status, 1, True):
            wrong.append((args, done.returncode, message))
    assert not wrong
