"""Words that tell nothing about whose log it is: they stay, in paths, in labels and in what accounts are called."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from nccl_inspect.grammar import engine

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
        *(
            "accelerate",
            "aiohttp",
            "apex",
            "asyncio",
            "bitsandbytes",
            "click",
            "colossalai",
            "composer",
            "concurrent",
            "cupy",
        ),
        *("datasets", "deepspeed", "diffusers", "einops", "fairscale", "fire", "flash_attn", "fsspec", "horovod"),
        *("huggingface_hub", "hydra", "importlib", "jax", "jaxlib", "json", "lightning", "megatron", "mlflow"),
        *("mpi4py", "multiprocessing", "nemo", "numpy", "nvidia", "omegaconf", "pandas", "peft", "pip", "pyarrow"),
        *("pytorch_lightning", "ray", "requests", "runpy", "safetensors", "scipy", "sentencepiece", "sglang"),
        *("tensorboard", "tensorflow", "threading", "tokenizers", "torch", "torchrun", "torchvision", "tqdm"),
        *("transformer_engine", "transformers", "triton", "trl", "typer", "urllib3", "uvloop", "venv", "verl", "vllm"),
        *("wandb", "xformers", "yaml", "zmq"),
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
        "docs.ray.io",
        "nvidia.com",
        "pytorch.org",
        "rocm.docs.amd.com",
        "slurm.schedmd.com",
        "vpc.amazonaws.com",
        "www.open-mpi.org",
    )
)
"""Documentation that messages point to."""
PUBLIC_DOMAINS = frozenset(
    (
        *("amazonaws.com", "azurecr.io", "azure.com", "cloudapp.net", "docker.com", "docker.io", "gcr.io", "ghcr.io"),
        *(
            "github.com",
            "gitlab.com",
            "google.com",
            "googleapis.com",
            "huggingface.co",
            "nvcr.io",
            "pkg.dev",
            "quay.io",
        ),
        *("windows.net", "wandb.ai", "pypi.org", "cluster.local", "compute.internal", "ec2.internal", "kubernetes.io"),
        *("nvidia.com", "amd.com", "pytorch.org", "open-mpi.org", "schedmd.com", "kernel.org", "gserviceaccount.com"),
    )
)
"""Domains that many share: only the part before them identifies somebody."""
KEY_DOMAINS = frozenset(
    (
        *(
            "kubernetes.io",
            "k8s.io",
            "x-k8s.io",
            "cncf.io",
            "gke.io",
            "kubeflow.org",
            "ray.io",
            "volcano.sh",
            "nvidia.com",
        ),
        *("cilium.io", "openshift.io", "projectcalico.org", "karpenter.sh", "mellanox.com", "intel.com", "istio.io"),
    )
)
"""Domains of keys in manifests: the part before them names a component."""
KEPT_ROOTS = ("/proc/", "/sys/", "/dev/", "/opt/amazon/", "/opt/hpcx/", "/opt/rocm/")
"""Folders in which all is what a program brings along."""
PUBLIC_PLACES = re.compile(
    r"(?:www\.)?github\.com/(?:NVIDIA|aws|pytorch|ROCm|Mellanox|ofiwg|openucx|google)(?:/|$)", re.I
)
"""Repositories of the programs that print to these logs."""

_COMMON = re.compile(
    r"about|after|all|and|any|are|art|but|can|day|did|end|for|from|get|had|has|have|her|him|"
    r"his|how|its|job|let|man|may|max|new|not|now|off|old|one|our|out|own|ran|run|say|see|"
    r"set|she|sub|sum|the|tmp|too|two|use|via|was|who|why|will|with|yes|you"
)
"""Short words of any text."""


@cache
def said() -> frozenset[str]:
    """The words of all messages that are known, in small letters."""
    return frozenset(engine.shipped().words())


def is_public(host: str) -> bool:
    """Whether a host, or the domain of a key, is that of a program or of its documentation."""
    return host in PUBLIC_HOSTS or ".".join(host.rsplit(".", 2)[-2:]) in KEY_DOMAINS


def is_rare(name: str) -> bool:
    """Whether a short name never occurs as a word of a message, so that it is a name wherever it occurs."""
    return (
        len(name) > 2
        and name.isalpha()
        and not is_plain(name)
        and name.lower() not in said()
        and not _COMMON.fullmatch(name.lower())
    )


_PIECE = re.compile(r"[A-Za-z]+|%[A-Za-z]|\d+")
_NUMBERED = re.compile(r"(?<![A-Za-z%])[A-Za-z]\d{3}(?!\d*[a-z])", re.IGNORECASE)
"""``p123``: a project rather than a version."""
_LIBRARY = re.compile(r"lib[\w+-]+\.(?:so|a)[\d.]*|[\w-]+\.(?:cc|cpp|cu|cuh|h|hpp|c)")


def is_plain(word: str) -> bool:
    """Whether a name is made of such words and numbers only: ``python3.11``, ``nccl.%h.%p.log``, ``trainer-0``."""
    if _LIBRARY.fullmatch(word):
        return True
    if _NUMBERED.search(word):
        return False
    return all(piece.isdigit() or piece[0] == "%" or piece.lower() in WORDS for piece in _PIECE.findall(word))
