"""``nccl-inspect anonymize``: who wants to find the company finds nothing in what is shared."""

from __future__ import annotations

import re

import pytest
from anonymized_logs import anonymized
from repository import TESTS

HEAD = "gpu-a17:11:11 [0] NCCL INFO cudaDriverVersion 13000\n"
LOGS = {file.stem: file.read_text(encoding="utf-8") for file in sorted((TESTS / "logs" / "leaks").glob("*.log"))}
"""Shaped as Kubernetes, Slurm, AWS, wandb, Docker and the others print it; the names are made up."""
LEAKS = re.compile(
    r"zen|zeus|orion|\bbob\b|smith|/b/|hunter2|ab12|\bxy9|q1w2|p w|0a1b|zz9|abc\.def|hf_abc|sk-abc|AKIA|Zz1|12-34|"
    r"gpu-a1|login01|p123|1234567890|10[.-]4[.-]5|10[.-]9[.-]8|54-12|10-0-3-4|\b1423\b|0x58f|3b1|5e1f|16505|CZ12|"
    r"8aa8|2001:db8|"
    r"abcdef0123|dashing|1f2e|x7k2p|x9z8|sig=abc|:pw@|wJalr|abc123",
    re.IGNORECASE,
)
KEPT = r"""
gpu-a17:11:11 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
gpu-a17:11:11 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.14.0
gpu-a17:11:11 [0] NCCL INFO NCCL_NET_PLUGIN set by environment to /opt/amazon/ofi-nccl/lib/libnccl-net.so
GPU 0: NVIDIA H100 80GB HBM3
LD_LIBRARY_PATH=/opt/amazon/efa/lib:/opt/hpcx/ucx/lib:/usr/local/cuda/lib64 SHELL=/bin/bash
  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/api.py", line 3
image: nvcr.io/nvidia/pytorch:24.05-py3
NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=mlx5_0 pad_token=<pad> max_tokens=4096 tokens: 12
ModuleNotFoundError: No module named 'flash_attn'
srun: error: Unable to create step for job 4711: More processors requested than permitted
"""


@pytest.mark.parametrize("kind", LOGS)
def test_nothing_is_left_to_find(kind: str) -> None:
    _, (after,) = anonymized((HEAD + LOGS[kind]).encode())
    left = [line for line in after.decode().splitlines() if LEAKS.search(line)]
    assert not left
    assert len(after.splitlines()) == len((HEAD + LOGS[kind]).splitlines())


def test_what_everybody_has_stays_readable() -> None:
    _, (after,) = anonymized(KEPT.encode())
    assert after.decode() == KEPT.replace("gpu-a17", "host-1")


def test_a_name_is_the_same_wherever_it_stands() -> None:
    log = """gpu-a17.cluster.zenith.internal:11:11 [0] NCCL INFO cudaDriverVersion 13000
node gpu-a17 of zenith is down, says bob@gpu-a17: /home/bob/ZENITH/bob.log
domain cluster.zenith.internal
"""
    assert (
        anonymized(log.encode())[1][0].decode()
        == """host-1.domain-1.invalid:11:11 [0] NCCL INFO cudaDriverVersion 13000
node host-1 of name-1 is down, says user-1@host-1: /home/user-1/name-1/user-1.log
domain domain-1.invalid
"""
    )


def test_a_port_of_infiniband_has_no_number() -> None:
    # after the format string
    log = (
        "a-1:1:1 [0] NCCL INFO NET/IB: NCCL Dev 0 IbDev 1 Port 1 qpn 7 mtu 5 LID 1423 subnet-prefix 9  FLID 3 "
        "fifoRkey=0x1 fifoLkey=0x2\n"
    )
    assert b"1423" not in anonymized(log.encode())[1][0]
