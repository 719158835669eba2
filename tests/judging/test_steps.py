"""The steps of findings: few, each a sentence or something to paste, filled in where the log states what is meant."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from answers import CORPORA, read_stored
from command_line import invoke
from repository import ROOT
from rule_pages import RULES

import nccl_inspect
from nccl_inspect.event.base import Process
from nccl_inspect.extras.live.watch import TO_ACT, End, find_alarm
from nccl_inspect.judge import choose_action, gather_facts
from nccl_inspect.judging import impact, places
from nccl_inspect.judging.impact import Rate
from nccl_inspect.judging.places import pod_of
from nccl_inspect.judging.remedies import COMMENT, is_sentence
from nccl_inspect.model.finding import ACTIONS, Finding
from nccl_inspect.platforms import require_platform

MOST = 4
_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>]*>")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_CALL = re.compile(r"torch\.")
_CODE = re.compile(
    r"(?:export |unset |options \w+ )?[A-Za-z_][A-Za-z0-9_.]*=|unset [A-Z]|"
    r"[a-z][\w./-]*: |- \{|#SBATCH --[a-z]|--[a-z]|torch\."
)
"""A setting, a piece of a spec or script, options, or a call."""
_PROGRAMS = """
    afmctl all_reduce_perf apt apt-get aws cat dcgmi df dmesg echo env ethtool fi_info fi_pingpong free getent grep
    hostnamectl ib_write_bw ibstat ibv_devices ibv_devinfo ip journalctl kubectl last ldconfig ldd ls lsmod lspci make
    mlxfwmanager mlxfwreset mlxlink modprobe mpirun nc nccl-inspect nv-fabricmanager nvidia-container-cli
    nvidia-cuda-mps-control nvidia-imex-ctl nvidia-smi ncclras perfquery ping pip ps py-spy python rdma rocm-smi
    rocminfo rping setpci sharp_hello show_gids sinfo sacct sbatch scontrol source srun ss stdbuf sudo sysctl
    systemctl torchrun ucx_info ulimit head tail modinfo unset
"""
_IN_PROSE = ("head", "make", "mpirun", "source", "srun")
"""Of these an option may be named in a sentence."""
_PLACEHOLDERS = """
    GPUs;GPUs of the node;NICs of the node;NICs of the job;address;address of the NIC;address of the first
    address of the peer's NIC;another port;bdf;branch;bytes;command;device;existing options;file;folder
    folder of libplugin_UCX.so;gid index;host;host of --rdzv-endpoint;hosts;id;index;interface;job;library;log;longer
    name;namespace;netdev;network;nic;node;nodes;number;of the plugin;other server;path;pid;pod;port;resource;row
    script;sg;suffix;version
"""
"""What a user, or a report that knows it, fills in."""


def findings(*corpora: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the steps of all findings in stored answers, with the names of input and rule."""
    for corpus in corpora:
        for name, answer in read_stored(corpus).items():
            for finding in answer.get("findings", ()):
                yield f"{name}: {finding['rule']}", finding.get("fix", [])


def list_misspelled(step: str) -> Iterator[str]:
    """Yield what is wrong with a step."""
    programs = _PROGRAMS.split()
    known = {name.strip() for name in re.split(r"[;\n]", _PLACEHOLDERS)}
    if unknown := {name[1:-1] for name in _PLACEHOLDER.findall(step)} - known:
        yield f"another spelling of a placeholder: {sorted(unknown)}"
    if re.search(r"NCCL_(SOCKET_IFNAME|IB_HCA)==", step):
        yield "cannot be pasted"
    if is_sentence(step):
        words = _QUOTED.sub("Q", step).replace("(", " ").split()
        called = (word in programs and word not in _IN_PROSE and after[0] in "-<|" for word, after in pairwise(words))
        if not (step[0].isupper() or step[0].isdigit()) or COMMENT in step or any(called):
            yield "a sentence begins with a capital and holds no command"
        return
    if step.count(COMMENT) > 1 or step != step.strip():
        yield "words about a command stand behind one mark"
    parts = [part.split() for part in re.split(r";|\|", _QUOTED.sub("Q", list_pasted(step)))]
    if not _CODE.match(step) and not all(words and words[0] in programs for words in parts):
        yield "neither a sentence, nor a setting, nor a known program"


def list_pasted(step: str) -> str:
    return _PLACEHOLDER.sub("X", step.partition(COMMENT)[0])


def test_findings_have_few_steps_and_tell_each_once() -> None:
    wrong = [where for where, fix in findings(*CORPORA) if not 0 < len(fix) == len(set(fix)) <= MOST]
    assert not wrong, "\n".join(wrong)


def test_a_step_is_a_sentence_or_can_be_pasted() -> None:
    steps = {step: where for where, fix in findings("pages") for step in fix}
    assert len(steps) > 200
    wrong = [f"{where}: {what}: {step}" for step, where in steps.items() for what in list_misspelled(step)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="needs a shell")
def test_a_shell_can_parse_what_can_be_pasted() -> None:
    steps = {step for _, fix in findings("pages") for step in fix if not is_sentence(step) and not _CALL.match(step)}
    code = "\n".join(map(list_pasted, sorted(steps)))
    done = subprocess.run(["bash", "-n"], input=code.encode(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_rules_about_one_cloud_say_so() -> None:
    named = {name for name in RULES if name.startswith(("efa-", "tcpx")) or name.endswith("-efa")}
    assert named == {name for name, rule in RULES.items() if rule.cloud}


_LOG = "".join(
    f"[pod/llama-{host}/main] n{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO ncclCommInitRank comm "
    f"0x{rank + 1}000 rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {rank}0 commId 0x77 - Init START\n"
    for host, rank in ((1, 0), (1, 1), (2, 2), (2, 3))
)
_BARE = re.sub(r"(?m)^\[.*?\] ", "", _LOG)
_PIDS = "<pid>: 100, 101 on n1; 102, 103 on n2"


def fill_step(step: str, log: str, about: dict[str, list[int] | list[str]]) -> str:
    known = {"rule": "r", "category": "c", "severity": "error", "confidence": "likely"}
    finding = Finding(**known, summary="s", cause="c", impact="i", fix=[step], **about)  # type: ignore[arg-type]
    places.fill(gather_facts(nccl_inspect.read(log.encode())), [finding])
    return finding.fix[0]


def test_placeholders_are_filled_with_what_the_log_states_and_with_nothing_else() -> None:
    dump, logs, cordon = "py-spy dump --pid", "kubectl logs", "kubectl cordon"
    rows: list[tuple[str, str, dict[str, list[int] | list[str]], str]] = [
        # step, log, what it is about, what it becomes
        (f"{dump} <pid>   # on rank 3", _LOG, {"ranks": [3]}, f"{dump} 103   # rank 3, on n2"),
        (f"{dump} <pid>   # where?", _LOG, {"ranks": [3]}, f"{dump} 103   # rank 3, on n2; where?"),
        (f"{dump} <pid>   # on every rank: x", _LOG, {"ranks": [3]}, f"{dump} <pid>   # on every rank: x; {_PIDS}"),
        (f"{dump} <pid>", _LOG, {}, f"{dump} <pid>"),
        # processes of two pods with one number are not the same
        (f"{dump} <pid>", _LOG.replace(":102:102", ":100:100"), {"ranks": [0, 2]}, f"{dump} <pid>   # {_PIDS[:6]} 100"),
        # a pod is the one that the collector names
        (f"{logs} --previous <pod>", _LOG, {"ranks": [2, 3]}, f"{logs} --previous llama-2"),
        (f"{logs} <pod>", _LOG, {"hosts": ["n1"]}, f"{logs} llama-1"),
        (f"{logs} <pod>", _LOG, {"ranks": [0, 2]}, f"{logs} <pod>   # <pod>: llama-1, llama-2"),
        (f"{cordon} <node>", _LOG, {"ranks": [3]}, f"{cordon} <node>"),
        (f"{logs} <pod>", _LOG, {"ranks": [9], "hosts": ["n1"]}, f"{logs} <pod>"),  # which printed nothing
        # without a collector the host stands for the pod and says so
        (f"{logs} <pod>", _BARE, {"ranks": [3]}, f"{logs} <pod>"),
        (f"{logs} <pod>", _BARE.replace("n2:", "llama-node-0-1:"), {"ranks": [3]}, f"{logs} llama-node-0-1   # pod"),
        (f"{logs} <pod>", _BARE.replace("n2:", "ip-10-0-0-2:"), {"ranks": [3]}, f"{logs} <pod>"),
        (f"{cordon} <node>", _BARE.replace("n2:", "ip-10-0-0-2:"), {"ranks": [3]}, f"{cordon} ip-10-0-0-2"),
    ]
    wrong = [
        f"{step} about {about}: {found}, not {becomes}"
        for step, log, about, becomes in rows
        if not (found := fill_step(step, log, about)).startswith(becomes) or (becomes == step and found != step)
    ]
    assert not wrong, "\n".join(wrong)


def test_labels_name_pods() -> None:
    for label, pod in {
        "pod/llama-node-0-0/trainer": "llama-node-0-0",
        "llama-node-0-0 trainer": "llama-node-0-0",
        "ml llama-node-0-0 trainer": "llama-node-0-0",
        "llama-node-0-0 › trainer": "llama-node-0-0",
        "llama-0/trainer": "llama-0",
        "job.log": None,
        "": None,
    }.items():
        assert pod_of(Process("ip-10-0-0-1", 7, label)) == pod, label


# --- Estimates of what a slow path costs

SHM = b"vm:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
NET = (
    b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
    b"b:2:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0\n"
)
NIC_OF_A_GPU = {
    **{"p4d.24xlarge": 100, "p5.48xlarge": 400, "p5en.48xlarge": 400, "p6-b200.48xlarge": 400, "p6-b300.48xlarge": 800},
    **{"bm.gpu.h100.8": 400, "dgx-h100": 400, "bm.gpu4.8": None},
}
"""Gb/s of all NICs beside a GPU."""
BETWEEN_GPUS = {
    ("p4d.24xlarge", False): impact.NVLINK[3],
    ("p3dn.24xlarge", True): impact.NVLINK[2],
    ("g6e.12xlarge", False): impact.PCIE,
    ("a100-pcie", False): impact.P2P,  # only some pairs are on a bridge
    ("a40", True): None,
    # where measurements differ from the generation the machine has its own
    ("h800-sxm", False): "215 GB/s",
    ("nc48ads-a100-v4", False): "193-208 GB/s",
    ("a100-pcie", True): "193-208 GB/s",
    ("nc80adis-h100-v5", False): "208 GB/s",
    ("mi300x", False): "310-350 GB/s",
    ("nd96isr-mi300x-v5", False): "310-350 GB/s",
}


def test_rates_follow_the_machine() -> None:
    assert [str(impact.nic(gbps)) for gbps in (100, 400, 25)] == ["11-12 GB/s", "45-49 GB/s", "2.8-3 GB/s"]
    assert impact.nic(None).low < impact.nic(100).high < impact.nic(None).high
    for machine, gbps in NIC_OF_A_GPU.items():
        assert require_platform(machine).rate == gbps, machine
        assert impact.network(require_platform(machine))[:2] == impact.nic(gbps)[:2], machine
    for (machine, nvlink), rate in BETWEEN_GPUS.items():
        found = impact.p2p(require_platform(machine), nvlink)
        assert (str(found) if isinstance(rate, str) else found) == rate, machine
    assert impact.p2p(None) is impact.P2P
    assert impact.p2p(None, nvlink=True) is impact.ON_NVLINK
    assert impact.socket(None) is impact.socket(require_platform("p5.48xlarge")) is impact.SOCKET
    assert str(impact.socket(require_platform("a2-highgpu-8g"))) == "1.3-12.5 GB/s"
    assert impact.socket(require_platform("p3.16xlarge")).high < impact.SOCKET.high


def test_no_figure_is_told_where_none_is_known() -> None:
    ahead = replace(require_platform("b200-sxm"), nvlink=6)
    assert impact.p2p(ahead) is None
    against = str(impact.against_nvlink(nccl_inspect.read(SHM).paths, ahead))
    assert against.startswith("NVLink is idle; SHM/direct/direct gives 13-35 GB/s")
    (path,) = nccl_inspect.read(NET).paths
    assert impact.find_rate(path) is None
    (direct,) = nccl_inspect.read(NET.replace(b"IB/0", b"IB/0/GDRDMA")).paths
    p5en = require_platform("p5en.48xlarge")
    assert impact.find_rate(direct, p5en) == impact.network(p5en)


def test_every_rate_says_where_it_can_be_read_and_ratios_are_ranges() -> None:
    single = [value for value in vars(impact).values() if isinstance(value, Rate)]
    for rate in (*single, *impact.NVLINK.values(), impact.nic(None), impact.nic(800)):
        assert rate.low <= rate.high and rate.what, rate
        assert re.match(r"[a-z.]+\.(com|co)/", rate.link) or (ROOT / rate.link).is_file(), rate
    assert impact.compare_rates(impact.SHM, impact.NVLINK[4]) == "9.9 to 37 times less bandwidth"
    assert impact.compare_rates(impact.SHM, impact.PCIE) == "up to 4.8 times less"


# --- What to do about a job for what was found in it: the page, the layer, and how sure it is decide

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
            (tmp_path / "policy.toml").write_text(f'forbidden_actions = ["{other.partition("=")[2]}"]\n')
            check = invoke("check", str(log), "--policy", str(tmp_path / "policy.toml"), "--format", "json")
            watch = invoke("watch", str(log), "--until-end", "--exit-on", other)
            assert [check.return_value, watch.return_value] == [status, status], (failure, other)
            assert [one["action"] for one in json.loads(check.stdout)["findings"]] == [action] * status
            assert f"stopped by --exit-on: {other}" in watch.stderr or not status
        alarm = find_alarm([End(judged)], [f"action={action}"])
        assert alarm is not None and alarm.environment["NCCLINSPECT_ACTION"] == action
