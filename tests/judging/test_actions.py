"""What to do about a job for what was found in it: the page, the layer, and how sure it is decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import invoke

import nccl_inspect
from nccl_inspect.extras.live import exit_conditions
from nccl_inspect.extras.live.watch import End
from nccl_inspect.judging.actions import decide
from nccl_inspect.judging.engine import registered
from nccl_inspect.model.finding import ACTIONS, Finding

RULES = {entry.rule.name: entry.rule for entry in registered()}
ONE = ["node-a"]
DEAD: list[tuple[str, dict[str, Any], str]] = [
    # A rule without an action on its page: the layer decides.
    ("p2p-nvlink-fault", {"hosts": ONE}, "drain-host"),
    ("shm-volume-missing", {}, "fix-then-restart"),
    ("env-mismatch-across-ranks", {"confidence": "likely"}, "fix-then-restart"),
    ("invalid-usage", {}, "fix-then-restart"),
    ("ib-timeout-err12", {}, "restart"),
    ("watchdog-timeout", {}, "restart"),
    ("failure-unexplained", {"severity": "info"}, "restart"),
    # A host is drained only if the finding is sure and names it, and not for what half of the hosts have.
    ("p2p-nvlink-fault", {"hosts": ONE, "confidence": "likely"}, "drain-host"),
    ("p2p-nvlink-fault", {"hosts": ONE, "confidence": "possible"}, "restart"),
    ("p2p-nvlink-fault", {"hosts": ONE, "clue": True}, "restart"),
    ("p2p-nvlink-fault", {"hosts": []}, "restart"),
    ("p2p-nvlink-fault", {"hosts": ["node-a", "node-b"]}, "drain-host"),
    ("p2p-nvlink-fault", {"hosts": ["node-a", "node-b", "node-c"]}, "restart"),
    ("shm-volume-missing", {"confidence": "possible"}, "restart"),
    ("shm-volume-missing", {"action": "drain-host", "hosts": ONE}, "drain-host"),
    ("p2p-nvlink-fault", {"hosts": ONE, "root": False}, "none"),
    ("hang-in-init", {"open_end": True}, "wait"),
    ("pod-not-started", {"action": "wait"}, "wait"),
]
ALIVE: list[tuple[str, dict[str, Any], str]] = [
    ("gdr-disabled", {"severity": "warning", "confidence": "likely"}, "fix-then-restart"),
    ("gdr-disabled", {"severity": "warning", "confidence": "possible"}, "none"),
    ("gdr-disabled", {"severity": "warning", "clue": True}, "none"),
    ("gdr-disabled", {"severity": "info"}, "none"),
    ("lines-cut-off", {"severity": "warning"}, "none"),
    ("nic-driver-error", {"severity": "warning", "action": "drain-host", "hosts": ONE}, "drain-host"),
    ("nic-driver-error", {"severity": "warning", "action": "drain-host"}, "fix-then-restart"),
    ("ib-async-event", {"severity": "warning", "action": "wait"}, "wait"),
    ("bootstrap-failed", {"severity": "warning", "action": "restart"}, "none"),
    ("peer-death", {"fatal": True, "confidence": "possible", "action": "restart"}, "wait"),
]


def finding(rule: str, **fields: Any) -> Finding:
    says: dict[str, Any] = {
        "severity": "error",
        "confidence": "certain",
        "summary": "s",
        "cause": "c",
        "impact": "i",
        "fix": ["f"],
    }
    return Finding(rule=rule, category=RULES[rule].category, **(says | fields))


def test_the_page_the_layer_and_the_confidence_decide() -> None:
    wrong = [
        f"{rule} {fields} of a job that {'failed' if is_dead else 'runs'}: {found}, not {wanted}"
        for is_dead, table in ((True, DEAD), (False, ALIVE))
        for rule, fields, wanted in table
        for found in [decide(finding(rule, **fields), RULES[rule], is_dead, has_ended=False, hosts=4)]
        if found != wanted
    ]
    assert not wrong, "\n".join(wrong)
    ended = decide(finding("hang-in-init", open_end=True), RULES["hang-in-init"], True, has_ended=True, hosts=4)
    assert ended == "restart"


def line(host: str, rank: int, text: str) -> str:
    return f"{host}:{100 + rank}:{100 + rank} [{rank % 2}] {text}\n"


INIT = "NCCL INFO ncclCommInitRankConfig comm 0x5 rank {} nranks 4 cudaDev {} nvmlDev {} busId 18000 commId 0x7 - Init "
JOB = "".join(
    line(f"node-{'ab'[rank // 2]}", rank, INIT.format(rank, rank % 2, rank % 2) + phase)
    for phase in ("START", "COMPLETE")
    for rank in range(4)
)
LOST = "".join(
    line("node-a", rank, "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-b<40001>")
    for rank in range(2)
)
JOBS = {
    "enqueue.cc:215 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'": ("drain-host", "node-b"),
    "enqueue.cc:215 NCCL WARN Cuda failure 'Invalid access of peer GPU memory over nvlink or a hardware error'": (
        "restart",
        "node-b",
    ),
    "enqueue.cc:215 NCCL WARN Cuda failure 'out of memory'": ("fix-then-restart", "node-b"),
}


def test_gates_end_on_actions(tmp_path: Path) -> None:
    for error, (action, host) in JOBS.items():
        (log := tmp_path / "job.log").write_text(JOB + line(host, 3, error) + LOST)
        job = nccl_inspect.read(log)
        assert job.findings[0].action == action, (error, job.findings[0])
        for other in exit_conditions.TO_ACT:
            status = int(other == f"action={action}")
            done = [
                invoke("check", str(log), "--exit-on", other, "--format", "json"),
                invoke("watch", str(log), "--until-end", "--exit-on", other),
            ]
            assert [one.return_value for one in done] == [status, status], (error, other)
            document = json.loads(done[0].stdout)
            assert [one["action"] for one in document["findings"]] == [action] * status
            assert f"stopped by --exit-on: {other}" in done[1].stderr or not status
    alarm = exit_conditions.alarm([End(job)], ["action=fix-then-restart"])
    assert alarm is not None and alarm.environment["NCCLINSPECT_ACTION"] == "fix-then-restart"
    assert {one.action for one in job.findings} <= set(ACTIONS)
