"""Logs as ``anonymize`` writes them."""

from __future__ import annotations

from nccl_inspect.anonymous import Anonymizer
from nccl_inspect.anonymous.names import Names
from nccl_inspect.ingest.sources import blocks


def anonymized(*logs: bytes, names: Names | None = None) -> tuple[Anonymizer, list[bytes]]:
    anonymizer = Anonymizer(names or Names())
    for source in blocks.find(list(logs)):
        anonymizer.learn_from(source)
    anonymizer.settle()
    return anonymizer, [b"".join(anonymizer.blocks(source)) for source in blocks.find(list(logs))]


PRIVATE = b"""\
2026-11-20 gpu-a17.cluster.corp torchrun --nnodes 2 --rdzv_endpoint gpu-a17:29500 /home/alice/acme/train_secret.py
gpu-a17:11:11 [0] NCCL INFO Bootstrap: Using eth0:10.77.3.9<0>
gpu-a17:11:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB bond0.112:10.77.3.9<0>
gpu-a18:12:12 [0] NCCL INFO Bootstrap: Using eth0:fe80::a00:27ff:fe8e:8aa8%eth0<0>
gpu-a18:12:12 [0] NCCL INFO NCCL_DEBUG_FILE set by environment to /fsx/acme-nlp/alice/nccl.%h.%p.log
gpu-a18:12:12 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ^docker0,lo
gpu-a18:12:12 [0] /home/alice/nccl/src/misc/socket.cc:500 NCCL WARN Call to bind failed: Permission denied
gpu-a17:11:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
gpu-a17:11:11 [0] NCCL INFO NET/OFI GUID for dev[0]: 00000000000000000a00057000000000
alice@gpu-a18:~$ nvidia-smi -L
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5e1f6c1a-1234-4321-aaaa-0123456789ab)
link/ether 0c:42:a1:77:3b:10 brd ff:ff:ff:ff:ff:ff guid 0c42:a103:0077:3b10
gid fe80:0000:0000:0000:0e42:a1ff:fe77:3b10 and 0000:0000:0000:0000:0000:ffff:0a4d:0309
wandb: run at https://wandb.acme-corp.com/nlp/secret-run and s3://acme-bucket/ckpt/step-100
WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 HF_TOKEN=hf_abcdefghijklmnopqrstuvwx
mail bob.smith@acme-corp.com on gpu-a18, i-0123456789abcdef0
ip-10-77-3-9.ec2.internal, arn:aws:iam::123456789012:role/x
error on node gpu-a18: rank 3 of nccl.gpu-a17.4182.log; see https://pytorch.org/docs/stable/elastic/errors.html
"""
