"""Evidence as ``anonymize`` writes it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import yaml

from nccl_inspect.cli import cli

LOG = b"gpu-a17:11:11 [0] NCCL INFO cudaDriverVersion 13000\ngpu-a17:11:11 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"


def run(*words: object) -> None:
    cli.main(["anonymize", *map(str, words)], standalone_mode=False)


# --- what was planted ---------------------------------------------------------------------------------------------

HOST, POD, USER, PROJECT = "zenith-gpu17", "orion-train-worker-3", "bobsmith", "orion"
TOKEN, PASSWORD, IMAGE = "hf_aBcDeFgHiJkL", "Tr0ub4dor+3", "registry.zenithcorp.com/nlp/orion-train:2.1-bob"
PLANTED = (
    HOST,
    POD,
    USER,
    PROJECT,
    TOKEN,
    PASSWORD,
    "zenith",
    "203.0.113.7",
    "0x946dae03008d5f00",
    "94:6d:ae:8d:5f:00",
)
WANDB = "0123456789abcdef0123456789abcdef01234567"


def pods() -> dict[str, Any]:
    container = {
        "name": f"{PROJECT}-main",
        "image": IMAGE,
        "command": ["bash", "-c", f"cd /home/{USER}/{PROJECT} && python train.py --api-key {PASSWORD}"],
        "args": ["--wandb-token", WANDB, f"--data=s3://zenith-data/{PROJECT}"],
        "env": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "NCCL_IB_HCA", "value": "mlx5_0,mlx5_1"},
            {"name": "HF_TOKEN", "value": TOKEN},
            {"name": "DB_PASSWORD", "value": PASSWORD},
            {"name": f"{PROJECT.upper()}_BUCKET", "value": f"s3://zenith-{PROJECT}/x"},
        ],
        "resources": {"limits": {"nvidia.com/gpu": "8", "rdma/hca_shared": "1", "zenithcorp.com/nic": "1"}},
        "volumeMounts": [{"mountPath": f"/mnt/{PROJECT}", "name": f"{PROJECT}-data"}],
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }
    metadata: dict[str, Any] = {
        "name": POD,
        "namespace": "zenith-ml",
        "labels": {"zenithcorp.com/team": USER, "app": PROJECT},
        "annotations": {"owner": f"{USER}@zenithcorp.com", "note": f"run of {USER} for {PROJECT}"},
        "ownerReferences": [{"kind": "Job", "name": "orion-train"}],
        "managedFields": [{"manager": USER, "fieldsV1": {f'k:{{"name":"{PROJECT}-data"}}': {}}}],
    }
    spec = {"nodeName": f"{HOST}.zenithcorp.com", "serviceAccountName": f"{PROJECT}-sa", "containers": [container]}
    status = {"phase": "Failed", "hostIP": "203.0.113.7", "message": f"Pod was evicted from {HOST} by {USER}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def event() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "name": POD, "namespace": "zenith-ml"},
        "message": f"Successfully assigned zenith-ml/{POD} to {HOST}",
        "source": {"component": "kubelet", "host": HOST},
    }


def docker() -> list[dict[str, Any]]:
    return [
        {
            "Id": "4f1c9d0a7b2e" * 5,
            "Name": f"/{PROJECT}-run",
            "Path": "torchrun",
            "Args": ["--password", PASSWORD, f"/home/{USER}/train.py"],
            "HostConfig": {"Binds": [f"/home/{USER}/{PROJECT}:/data:ro"], "NetworkMode": "host", "ShmSize": 67108864},
            "Config": {
                "Hostname": HOST,
                "User": USER,
                "Env": ["NCCL_DEBUG=INFO", f"HF_TOKEN={TOKEN}", f"TEAM={PROJECT}"],
                "Image": IMAGE,
                "Labels": {"maintainer": f"{USER}@zenithcorp.com"},
            },
            "NetworkSettings": {"MacAddress": "94:6d:ae:8d:5f:00", "IPAddress": "203.0.113.7"},
        }
    ]


def dump() -> dict[str, Any]:
    frames = [
        {"name": "all_reduce", "filename": "/opt/torch/distributed/distributed_c10d.py", "line": 1},
        {"name": "step", "filename": f"/home/{USER}/{PROJECT}/train.py", "line": 7},
    ]
    entry = {
        "frames": frames,
        "record_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "thread_name": f"{PROJECT}-{HOST}",
        "extra": {"owner": USER, "where": f"{HOST}:1234"},
    }
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "comm_lib_version": "2.28.9", "pg_config": groups, "pg_status": {}, "entries": [entry]}


def ras() -> dict[str, Any]:
    rank = {"rank": 0, "host": HOST, "pid": 7, "collective_counts": {"AllReduce": 1}}
    comm = {"hash": "0xdc70b0f089e62d4", "size": 1, "ranks": [rank], "missing_ranks": []}
    return {"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [comm]}


SLURM = f"""JobId=4711 JobName={PROJECT}
   UserId={USER}(1001) GroupId={USER}(1001) MCS_label=N/A
   Priority=1 Nice=0 Account=zenith QOS=normal
   Partition=gpu AllocNode:Sid={HOST}:20127
   NodeList={HOST}
   Command=/home/{USER}/train.sbatch
   WorkDir=/p/{USER}/{PROJECT}
"""
SCRIPT = f"""#!/bin/bash
#SBATCH --job-name={PROJECT}
#SBATCH --account zenith
#SBATCH --chdir=/home/{USER}/{PROJECT}
export HF_TOKEN={TOKEN} NCCL_DEBUG=INFO
ssh {USER}@{HOST} ls
srun -w {HOST} python train.py --password {PASSWORD}
"""
IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNode GUID: 0x946dae03008d5f00
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tPort GUID: 0x946dae03008d5f00
"""
QUERY = """==============NVSMI LOG==============
GPU 00000000:00:06.0
    Product Name                                       : NVIDIA H200
    Serial Number                                      : 1654923004417
    GPU UUID                                           : GPU-5f1f9a52-3a1b-4f7c-8d8e-0f9d6b1d7a01
    ECC Errors
        Volatile
            DRAM Uncorrectable                         : 0
    Processes
        Process ID                                     : 7
            Name                                       : /home/bobsmith/orion/bin/python
"""
DF = f"Filesystem      Size  Used Avail Use% Mounted on\n{HOST}:/export/{PROJECT} 1.0T  1G  1.0T   1% /home/{USER}\n"
KERNEL = "".join(f"Nov 23 01:22:1{n} {HOST} kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1234\n" for n in range(3))
TOPOLOGY = '<system version="1">\n  <cpu host_hash="0x946dae03008d5f00" numaid="-1" arch="x86_64"/>\n</system>\n'
FILES: dict[str, bytes] = {
    "pods.json": json.dumps(pods(), indent=2).encode(),
    "list.json": json.dumps({"apiVersion": "v1", "items": [pods(), event()], "kind": "List"}, indent=2).encode(),
    "pods.yaml": ("# by " + USER + "\n" + yaml.safe_dump(pods(), sort_keys=True)).encode(),
    "wide.yaml": yaml.safe_dump(pods(), width=30).encode(),
    "events.yaml": yaml.safe_dump(event()).encode(),
    "docker.json": json.dumps(docker(), indent=4).encode(),
    f"{PROJECT}_rank_0": pickle.dumps(dump(), 2),
    f"{HOST}/nccl_trace_rank_1.json": json.dumps(dump(), indent=1).encode(),
    "ras.json": json.dumps(ras(), indent=1).encode(),
    "scontrol.txt": SLURM.encode(),
    "train.sbatch": SCRIPT.encode(),
    f"hosts/{HOST}/ibstat": IBSTAT.encode(),
    f"hosts/{HOST}/nvidia-smi-q": QUERY.encode(),
    f"hosts/{HOST}/df": DF.encode(),
    f"hosts/{HOST}/dmesg.log": KERNEL.encode(),
    f"{HOST}.xml": TOPOLOGY.encode(),
    "labelled.txt": "".join(f"{HOST}: {line}\n" for line in IBSTAT.splitlines()).encode(),
}
SECRETS = (*PLANTED, WANDB, "1654923004417", "5f1f9a52-3a1b-4f7c", "4f1c9d0a7b2e", "zenithcorp")


def planted(folder: Path, *names: str) -> Path:
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
