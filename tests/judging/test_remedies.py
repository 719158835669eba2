"""What to do about a finding: something to paste, with words about it behind a mark, or a sentence."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from itertools import pairwise

import pytest
from rule_pages import findings

from nccl_inspect.judging.remedies import COMMENT, is_sentence

_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>]*>")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SETTING = re.compile(r"(?:export |unset )?[A-Za-z_][A-Za-z0-9_]*=|unset [A-Z]")
_SPEC = re.compile(r"(?:[a-z][\w./-]*: |- \{)")
_DIRECTIVE = re.compile(r"#SBATCH --[a-z]")
_OPTION = re.compile(r"--[a-z]")
_CALL = re.compile(r"torch\.")
_PROGRAMS = """
    all_reduce_perf apt apt-get aws cat dcgmi df dmesg echo env ethtool fi_info fi_pingpong free getent grep
    hostnamectl ib_write_bw ibstat ibv_devices ibv_devinfo ip journalctl kubectl last ldconfig ldd ls lsmod lspci
    make mlxlink modprobe mpirun nc nccl-inspect nv-fabricmanager nvidia-cuda-mps-control nvidia-imex-ctl nvidia-smi
    ncclras perfquery ping pip ps py-spy python rdma rocm-smi rocminfo rping setpci sharp_hello show_gids sinfo sacct
    sbatch scontrol source srun ss stdbuf sudo sysctl systemctl torchrun ucx_info ulimit head tail modinfo unset
"""
_IN_PROSE = ("head", "make", "mpirun", "source", "srun")
"""Of these an option may be named in a sentence."""


@cache
def sentences() -> tuple[str, ...]:
    return tuple({step for finding in findings() for step in finding.fix if is_sentence(step)})


@cache
def pasted() -> dict[str, str]:
    """Steps that are no sentences, with what a user would paste of them."""
    steps = {step for finding in findings() for step in finding.fix if not is_sentence(step)}
    return {step: _PLACEHOLDER.sub("X", step.partition(COMMENT)[0]) for step in steps}


def is_program(word: str) -> bool:
    return word in _PROGRAMS.split()


def holds_a_command(sentence: str) -> bool:
    """Whether a program is called in it, outside of quotes."""
    words = _QUOTED.sub("Q", sentence).replace("(", " ").split()
    return any(is_program(word) and word not in _IN_PROSE and after[0] in "-<|" for word, after in pairwise(words))


def is_known(code: str) -> bool:
    """Whether it is a setting, options, a piece of a spec or script, or begins all commands with a program."""
    if any(shape.match(code) for shape in (_SETTING, _SPEC, _OPTION, _CALL, _DIRECTIVE)):
        return True
    commands = [part.split() for part in re.split(r";|\|", _QUOTED.sub("Q", code))]
    return all(words and is_program(words[0]) for words in commands)


def test_a_sentence_is_one_and_holds_no_command() -> None:
    assert len(sentences()) > 50
    assert not [step for step in sentences() if not (step[0].isupper() or step[0].isdigit()) or COMMENT in step]
    assert not [step for step in sentences() if holds_a_command(step)]


def test_what_can_be_pasted_has_its_words_behind_the_mark() -> None:
    assert len(pasted()) > 150
    assert not [step for step, code in pasted().items() if not is_known(code)]
    assert not [step for step in pasted() if step.count(COMMENT) > 1 or step != step.strip()]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs a shell")
def test_a_shell_can_parse_what_can_be_pasted() -> None:
    code = "\n".join(code for code in sorted(pasted().values()) if not _CALL.match(code))
    done = subprocess.run(["bash", "-n"], input=code.encode(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_finding_tells_a_step_once() -> None:
    assert not [finding for finding in findings() if len(set(finding.fix)) < len(finding.fix)]
