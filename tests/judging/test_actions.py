"""What to do about a job for what was found in it: the page, the layer, and how sure it is decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import invoke

import nccl_inspect
from nccl_inspect.extras.live.watch import TO_ACT, End, find_alarm
from nccl_inspect.judge import choose_action
from nccl_inspect.judging.engine import list_rules
from nccl_inspect.model.finding import ACTIONS, Finding

RULES = {entry.rule.name: entry.rule for entry in list_rules()}
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
    texts: dict[str, Any] = {"summary": "s", "cause": "c", "impact": "i", "fix": ["f"]}
    says = {"severity": "error", "confidence": "certain", **texts, **fields}
    return Finding(rule=rule, category=RULES[rule].category, **says)


def test_the_page_the_layer_and_the_confidence_decide() -> None:
    wrong = [
        f"{rule} {fields} of a job that {'failed' if is_dead else 'runs'}: {found}, not {wanted}"
        for is_dead, table in ((True, DEAD), (False, ALIVE))
        for rule, fields, wanted in table
        for found in [choose_action(finding(rule, **fields), RULES[rule], is_dead, has_ended=False, hosts=4)]
        if found != wanted
    ]
    assert not wrong, "\n".join(wrong)
    ended = choose_action(finding("hang-in-init", open_end=True), RULES["hang-in-init"], True, has_ended=True, hosts=4)
    assert ended == "restart"


INIT = "NCCL INFO ncclCommInitRankConfig comm 0x5 rank {} nranks 4 cudaDev {} nvmlDev {} busId 18000 commId 0x7 - Init "
LOST = "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-b<40001>"
FAILURES = {
    "uncorrectable ECC error encountered": "drain-host",
    "Invalid access of peer GPU memory over nvlink or a hardware error": "restart",
    "out of memory": "fix-then-restart",
}


def job(failure: str) -> str:
    """Return the log of four ranks on two hosts, of which the last one failed."""
    lines = [(rank, INIT.format(rank, rank % 2, rank % 2) + how) for how in ("START", "COMPLETE") for rank in range(4)]
    lines += [(3, f"enqueue.cc:215 NCCL WARN Cuda failure '{failure}'"), (0, LOST), (1, LOST)]
    return "".join(f"node-{'ab'[r // 2]}:{100 + r}:{100 + r} [{r % 2}] {text}\n" for r, text in lines)


def test_gates_end_on_actions(tmp_path: Path) -> None:
    for failure, action in FAILURES.items():
        (log := tmp_path / "job.log").write_text(job(failure))
        judged = nccl_inspect.read(log)
        assert judged.findings[0].action == action, (failure, judged.findings[0])
        assert {one.action for one in judged.findings} <= set(ACTIONS)
        for other in TO_ACT:
            status = int(other == f"action={action}")
            check = invoke("check", str(log), "--exit-on", other, "--format", "json")
            watch = invoke("watch", str(log), "--until-end", "--exit-on", other)
            assert [check.return_value, watch.return_value] == [status, status], (failure, other)
            assert [one["action"] for one in json.loads(check.stdout)["findings"]] == [action] * status
            assert f"stopped by --exit-on: {other}" in watch.stderr or not status
        alarm = find_alarm([End(judged)], [f"action={action}"])
        assert alarm is not None and alarm.environment["NCCLINSPECT_ACTION"] == action
