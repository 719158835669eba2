"""Evidence as ``anonymize`` writes it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import yaml
from repository import TESTS

from nccl_inspect.cli import cli

LOG = b"gpu-a17:11:11 [0] NCCL INFO cudaDriverVersion 13000\ngpu-a17:11:11 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"


def run(*words: object) -> None:
    cli.main(["anonymize", *map(str, words)], standalone_mode=False)


# --- what was planted ---------------------------------------------------------------------------------------------

HOST, POD, USER, PROJECT = "zenith-gpu17", "orion-train-worker-3", "bobsmith", "orion"
TOKEN, PASSWORD = "hf_aBcDeFgHiJkL", "Tr0ub4dor+3"
NUMBERS = ("203.0.113.7", "0x946dae03008d5f00", "94:6d:ae:8d:5f:00")
PLANTED = (HOST, POD, USER, PROJECT, TOKEN, PASSWORD, "zenith", *NUMBERS)
WANDB = "0123456789abcdef0123456789abcdef01234567"


def plant(name: str) -> Any:
    """Return a document of `tests/extras/anonymize/planted`, where these names stand in files as tools write them."""
    return json.loads(text(f"{name}.json"))


def text(name: str) -> bytes:
    return (TESTS / "extras" / "anonymize" / "planted" / name).read_bytes()


FILES: dict[str, bytes] = {
    "pods.json": json.dumps(plant("pod"), indent=2).encode(),
    "list.json": json.dumps(
        {"apiVersion": "v1", "items": [plant("pod"), plant("event")], "kind": "List"}, indent=2
    ).encode(),
    "pods.yaml": ("# by " + USER + "\n" + yaml.safe_dump(plant("pod"), sort_keys=True)).encode(),
    "wide.yaml": yaml.safe_dump(plant("pod"), width=30).encode(),
    "events.yaml": yaml.safe_dump(plant("event")).encode(),
    "docker.json": json.dumps(plant("docker"), indent=4).encode(),
    f"{PROJECT}_rank_0": pickle.dumps(plant("dump"), 2),
    f"{HOST}/nccl_trace_rank_1.json": json.dumps(plant("dump"), indent=1).encode(),
    "ras.json": json.dumps(plant("ras"), indent=1).encode(),
    **{name: text(name) for name in ("scontrol.txt", "train.sbatch")},
    **{f"hosts/{HOST}/{name}": text(name) for name in ("ibstat", "nvidia-smi-q", "df")},
    f"hosts/{HOST}/dmesg.log": text("dmesg"),
    f"{HOST}.xml": text("topology.xml"),
    "labelled.txt": b"".join(f"{HOST}: ".encode() + line for line in text("ibstat").splitlines(True)),
}
SECRETS = (*PLANTED, WANDB, "1654923004417", "5f1f9a52-3a1b-4f7c", "4f1c9d0a7b2e", "zenithcorp")


def list_planted(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(FILES[name])
    return folder


def leaks(folder: Path) -> list[tuple[str, str]]:
    found = []
    for file in (path for path in folder.rglob("*") if path.is_file()):
        text = f"{file.relative_to(folder)}\n".encode() + file.read_bytes()
        found += [(file.name, secret) for secret in SECRETS if secret.encode().lower() in text.lower()]
    return found
