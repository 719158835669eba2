"""Words that tell nothing about whose log it is: they stay, in paths, in labels and in what accounts are called."""

from __future__ import annotations

import re
from pathlib import Path

WORDS = frozenset(
    word
    for line in (Path(__file__).parent / "words.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
    for word in line.split()
)
"""Parts of file names, roles and containers."""
ACCOUNTS = frozenset(
    (
        "admin",
        "app",
        "centos",
        "default",
        "ec2-user",
        "jovyan",
        "nobody",
        "node",
        "nvidia",
        "root",
        "runner",
        "ubuntu",
        "user",
        "work",
    )
)
"""Accounts that every image has."""
LIBRARIES = frozenset(
    (
        "accelerate",
        "apex",
        "deepspeed",
        "lightning",
        "megatron",
        "nvidia",
        "ray",
        "torch",
        "transformers",
        "vllm",
    )
)
"""Packages of which every file may be named."""
PUBLIC_HOSTS = frozenset(
    (
        "amd.com",
        "aws.amazon.com",
        "compute.googleapis.com",
        "container.googleapis.com",
        "developer.nvidia.com",
        "docs.aws.amazon.com",
        "docs.kernel.org",
        "docs.nvidia.com",
        "docs.pytorch.org",
        "nvidia.com",
        "pytorch.org",
        "rocm.docs.amd.com",
        "slurm.schedmd.com",
        "vpc.amazonaws.com",
        "www.open-mpi.org",
    )
)
"""Documentation that messages point to."""
PUBLIC_PLACES = re.compile(
    r"(?:www\.)?github\.com/(?:NVIDIA|aws|pytorch|ROCm|Mellanox|ofiwg|openucx|google)(?:/|$)", re.I
)
"""Repositories of the programs that print to these logs."""

_PIECE = re.compile(r"[A-Za-z]+|%[A-Za-z]|\d+")
_LIBRARY = re.compile(r"lib[\w+-]+\.(?:so|a)[\d.]*|[\w-]+\.(?:cc|cpp|cu|cuh|h|hpp|c)")


def is_plain(word: str) -> bool:
    """Whether a name is made of such words and numbers only: ``python3.11``, ``nccl.%h.%p.log``, ``trainer-0``."""
    if _LIBRARY.fullmatch(word):
        return True
    return all(piece.isdigit() or piece[0] == "%" or piece.lower() in WORDS for piece in _PIECE.findall(word))
