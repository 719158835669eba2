"""The steps of findings: few, each a sentence or something to paste, filled in where the log states what is meant."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise

import pytest
from answers import CORPORA, read_stored
from rule_pages import RULES

import nccl_inspect
from nccl_inspect.event.base import Process
from nccl_inspect.judge import gather_facts
from nccl_inspect.judging import places
from nccl_inspect.judging.places import pod_of
from nccl_inspect.judging.remedies import COMMENT, is_sentence
from nccl_inspect.model.finding import Finding

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
    mlxfwmanager mlxfwreset mlxlink modprobe mpirun nc nccl-inspect nv-fabricmanager nvidia-cuda-mps-control
    nvidia-imex-ctl nvidia-smi ncclras perfquery ping pip ps py-spy python rdma rocm-smi rocminfo rping setpci
    sharp_hello show_gids sinfo sacct sbatch scontrol source srun ss stdbuf sudo sysctl systemctl torchrun ucx_info
    ulimit head tail modinfo unset
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
