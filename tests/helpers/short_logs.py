"""Logs of a few lines, and what the tool finds in them."""

from repository import TESTS

import nccl_inspect
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

G6E_TOPOLOGY = str(TESTS / "data" / "g6e.nvidia-smi-topo.txt")


def found(job: Job, rule: str) -> Finding:
    matches = [finding for finding in job.findings if finding.rule == rule]
    assert len(matches) == 1, [finding.rule for finding in job.findings]
    return matches[0]


def names(job: Job) -> list[str]:
    return [finding.rule for finding in job.findings]


def line(rank: int, message: str, host: str = "vm") -> str:
    return f"{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {message}\n"


SHM = line(0, "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct")
P2P_OFF = line(0, "NCCL_P2P_DISABLE set by environment to 1")
SOCKET = "".join(
    f"node-{host}:{pid}:{pid} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [{side}] via NET/Socket/0\n"
    for host, pid, side in (("a", 1, "send"), ("b", 2, "receive"))
)


def read(text: str, **options: str | list[str]) -> Job:
    return nccl_inspect.read(text.encode(), **options)  # type: ignore[arg-type]


def completion(status: int, rank: int = 0) -> str:
    said = f"NET/IB: Got completion from peer 10.0.0.2<40000> with status={status} opcode=0 len=0 vendor err 129 (Send)"
    return f"node-a:{100 + rank}:{100 + rank} [{rank}] transport/net_ib.cc:2449 NCCL WARN {said} hca mlx5_{rank}\n"
