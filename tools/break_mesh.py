"""Breaks a small training mesh in many ways, and records what is left: NCCL's log, dumps, RAS answers, the truth.

Runs on a machine with PyTorch and at least two GPUs; the tests judge what it recorded (``sample_logs/mesh``,
``sample_logs/mesh-nodes``)::

    python tools/break_mesh.py --out recordings               # every scenario, eager and lazy communicators
    python tools/break_mesh.py --out recordings order sigkill # some of them
    python tools/break_mesh.py --out recordings --nodes 4     # four ranks for each GPU, as on four nodes

With ``--nodes`` each node is a set of Linux namespaces with a host name and a ``/dev/shm`` of its own (root
only). NCCL takes them for machines, connects GPUs of two nodes by sockets, and so allows that nodes share the GPUs:
groups, elimination and culprits show themselves from four ranks on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

TIMEOUT = 15
"""Seconds until PyTorch gives up."""
_BREAKS_AT = 4
_STEPS = 6
_TIMED_STEPS = 30
_ASK_AFTER = 7
_RAS_PORT = 28028
_LIMIT = 100


@dataclass
class Mesh:
    """Holds what one rank knows of the job."""

    torch: Any
    dist: Any
    rank: int
    size: int
    groups: dict[str, Any]
    """``world``, and of tp, dp, pp those of more than one rank."""
    pipeline: list[int]
    """The ranks of its pipeline, in order."""

    def tensor(self, elements: int = 1 << 18, dtype: str = "float32") -> Any:
        """Return a tensor on the GPU of this rank."""
        return self.torch.ones(elements, dtype=getattr(self.torch, dtype), device="cuda")

    def reduce(self, group: str, elements: int = 1 << 18, dtype: str = "float32") -> None:
        """Run an all-reduce."""
        self.dist.all_reduce(self.tensor(elements, dtype), group=self.groups[group])

    def gather(self, group: str) -> None:
        """Run an all-gather."""
        part = self.tensor(1 << 12)
        whole = self.tensor((1 << 12) * self.dist.get_world_size(self.groups[group]))
        self.dist.all_gather_into_tensor(whole, part, group=self.groups[group])

    @property
    def inner(self) -> str:
        """Return the innermost group of more than one rank."""
        return next(name for name in ("tp", "dp", "pp") if name in self.groups)

    def step(self) -> None:
        """Run a training step."""
        for name in ("tp", "dp"):
            if name in self.groups:
                self.reduce(name)
                self.gather(name)
        place = self.pipeline.index(self.rank)
        if place > 0:
            self.dist.recv(self.tensor(), self.pipeline[place - 1])
        if place + 1 < len(self.pipeline):
            self.dist.send(self.tensor(), self.pipeline[place + 1])
        self.reduce("world")
        self.torch.cuda.synchronize()


@dataclass(frozen=True)
class Scenario:
    """A way to break the job."""

    what: str
    """In words; ``{victim}`` is the rank that :func:`choose_victim` names."""
    kind: str
    victim: Callable[[Mesh], None] | None = None
    """What the victim does instead of its step."""
    others: Callable[[Mesh], None] | None = None
    """What the others do instead of theirs."""
    environment: tuple[tuple[str, str], ...] = ()
    """Of the victim only."""
    shared_environment: tuple[tuple[str, str], ...] = ()
    small_shm: bool = False
    is_timed: bool = False
    """It comes to its end after many steps, and each rank writes its dump there, with how long each call took."""
    delay: float = 0
    """Seconds by which the victim is late to each step, times the nodes: ranks that share a GPU are uneven."""


def _sleep(_mesh: Mesh) -> None:
    time.sleep(10 * _LIMIT)


def _loop(_mesh: Mesh) -> None:
    began = time.monotonic()
    while time.monotonic() - began < 10 * _LIMIT:
        sum(range(10_000))


def _raise(_mesh: Mesh) -> None:
    raise RuntimeError("bad sample in the data loader")


def _leave(_mesh: Mesh) -> None:
    os._exit(0)


def _stop(number: int, _mesh: Mesh) -> None:
    os.kill(os.getpid(), number)


def _skip(mesh: Mesh) -> None:
    mesh.gather(mesh.inner) if mesh.inner != "pp" else None
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


def _call_odd(elements: int, dtype: str, mesh: Mesh) -> None:
    mesh.reduce(mesh.inner, elements, dtype)
    mesh.torch.cuda.synchronize()
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


def _reduce_inner_first(mesh: Mesh) -> None:
    mesh.reduce(mesh.inner)
    mesh.torch.cuda.synchronize()
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


def _reduce_world_first(mesh: Mesh) -> None:
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()
    mesh.reduce(mesh.inner)
    mesh.torch.cuda.synchronize()


def _gather_instead(mesh: Mesh) -> None:
    mesh.gather(mesh.inner)
    mesh.torch.cuda.synchronize()


def _broadcast(root: int, mesh: Mesh) -> None:
    mesh.dist.broadcast(mesh.tensor(), root)
    mesh.torch.cuda.synchronize()
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


def _send_to_last(mesh: Mesh) -> None:
    if mesh.rank == 0:
        mesh.dist.send(mesh.tensor(), choose_victim(mesh.size))
        mesh.torch.cuda.synchronize()
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


SCENARIOS = {
    "skip": Scenario("rank {victim} leaves out one all-reduce of its inner group", "skipped-call", _skip),
    "size": Scenario(
        "rank {victim} passes half as many elements", "other-size", partial(_call_odd, 1 << 17, "float32")
    ),
    "type": Scenario(
        "rank {victim} passes bfloat16 instead of float32", "other-type", partial(_call_odd, 1 << 18, "bfloat16")
    ),
    "operation": Scenario(
        "rank {victim} calls all-gather where the others call all-reduce",
        "other-operation",
        _gather_instead,
        _reduce_inner_first,
    ),
    "order": Scenario(
        "rank {victim} calls the world before its inner group, the others after it",
        "order",
        _reduce_world_first,
        _reduce_inner_first,
    ),
    "no-partner": Scenario("rank {victim} never receives what rank 0 sends", "no-partner", _sleep, _send_to_last),
    "loop": Scenario("rank {victim} is busy in a Python loop", "busy", _loop),
    "sigkill": Scenario("rank {victim} is killed (SIGKILL)", "killed", partial(_stop, signal.SIGKILL)),
    "sigstop": Scenario("rank {victim} is stopped (SIGSTOP)", "stopped", partial(_stop, signal.SIGSTOP)),
    "sigterm": Scenario("rank {victim} gets SIGTERM", "terminated", partial(_stop, signal.SIGTERM)),
    "abort": Scenario("rank {victim} aborts (SIGABRT)", "aborted", partial(_stop, signal.SIGABRT)),
    "root": Scenario(
        "rank {victim} broadcasts from another root, unnoticed; RAS is asked when the others have left",
        "healthy",
        partial(_broadcast, 1),
        partial(_broadcast, 0),
    ),
    "exception": Scenario("rank {victim} raises an exception", "exception", _raise),
    "leave": Scenario("rank {victim} ends with exit status 0 in the middle of the job", "left", _leave),
    "small-shm": Scenario(
        "/dev/shm has 1 MB and P2P is off",
        "shm",
        shared_environment=(("NCCL_P2P_DISABLE", "1"), ("NCCL_CUMEM_HOST_ENABLE", "0")),
        small_shm=True,
    ),
    "p2p-off": Scenario(
        "rank {victim} alone has NCCL_P2P_DISABLE=1", "other-setting", environment=(("NCCL_P2P_DISABLE", "1"),)
    ),
    "setting": Scenario(
        "rank {victim} alone has NCCL_ALGO=Tree", "other-setting", environment=(("NCCL_ALGO", "allreduce:tree"),)
    ),
    "late": Scenario("rank {victim} comes {late} ms late to each step", "straggler", is_timed=True, delay=0.04),
    "even": Scenario("all ranks are equally fast", "healthy", is_timed=True),
}


def shape(size: int) -> tuple[int, int, int]:
    """Return pipeline, data and tensor parallelism for a number of GPUs."""
    tensor = 2 if size % 2 == 0 else 1
    data = 2 if size % 8 == 0 else 1
    return size // (tensor * data), data, tensor


def choose_victim(size: int) -> int:
    """Return the rank that breaks: the last one of a few, and one in the middle of many."""
    return size - 1 if size < 8 else size // 2 + 1


def run_rank(name: str, out: Path, eager: bool, nodes: int) -> None:
    """Run one rank of the job, started by torchrun."""
    scenario = SCENARIOS[name]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == choose_victim(size):
        os.environ.update(scenario.environment)
    import torch  # type: ignore[import-not-found] # after the environment is complete
    from torch import distributed as dist

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    limit = timedelta(seconds=TIMEOUT)
    dist.init_process_group("nccl", timeout=limit, device_id=device if eager else None)
    mesh = _mesh(torch, dist, rank, size, limit)
    if rank == 0 and (scenario.environment or scenario.shared_environment):
        threading.Timer(_ASK_AFTER, _ask, (out,)).start()
    for step in range(_TIMED_STEPS if scenario.is_timed else _STEPS):
        if scenario.delay and rank == choose_victim(size):
            torch.cuda.synchronize()
            time.sleep(scenario.delay * nodes)
        if step == _BREAKS_AT:
            if rank == 0 and (scenario.victim or scenario.others):
                threading.Timer(_ASK_AFTER, _ask, (out,)).start()
            act = scenario.victim if rank == choose_victim(size) else scenario.others
            if act:
                act(mesh)
                continue
        mesh.step()
    if scenario.is_timed:
        torch.cuda.synchronize()
        time.sleep(2)  # the watchdog looks at calls that are over once a second
        trace = torch._C._distributed_c10d._dump_nccl_trace()
        Path(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}").write_bytes(trace)
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


def _mesh(torch: Any, dist: Any, rank: int, size: int, limit: timedelta) -> Mesh:
    stages, replicas, parts = shape(size)
    number = [[[(s * replicas + d) * parts + t for t in range(parts)] for d in range(replicas)] for s in range(stages)]
    made = {
        "tp": [row for stage in number for row in stage],
        "dp": [[number[s][d][t] for d in range(replicas)] for s in range(stages) for t in range(parts)],
        "pp": [[number[s][d][t] for s in range(stages)] for d in range(replicas) for t in range(parts)],
    }
    groups: dict[str, Any] = {"world": dist.group.WORLD}
    pipeline = [rank]
    for name, rows in made.items():
        for ranks in rows:
            group = dist.new_group(ranks, timeout=limit, group_desc=name) if len(ranks) > 1 else None
            if rank in ranks and group is not None:
                groups[name] = group
            if name == "pp" and rank in ranks:
                pipeline = ranks
    return Mesh(torch, dist, rank, size, groups, pipeline)


def _ask(out: Path) -> None:
    """Save what RAS answers, as text and as JSON."""
    host, _, port = os.environ["NCCL_RAS_ADDR"].rpartition(":")
    for form in ("text", "json"):
        try:
            (out / f"ras.{form}").write_bytes(_answer(host, int(port), form))
        except OSError as error:
            print(f"no RAS answer: {error}", flush=True)


def _answer(host: str, port: int, form: str) -> bytes:
    """Return the protocol of ``ncclras`` (src/ras/client_support.cc)."""
    with socket.create_connection((host, port), timeout=25) as connection, connection.makefile("rwb") as stream:
        for command in ("CLIENT PROTOCOL 2", f"SET FORMAT {form}"):
            stream.write(f"{command}\n".encode())
            stream.flush()
            stream.readline()
        stream.write(b"VERBOSE STATUS\n")
        stream.flush()
        found = bytearray()
        while piece := stream.read1(1 << 16):  # RAS closes the connection behind its answer
            found += piece
        return bytes(found)


_NODE = """
hostname {name}
mount -t tmpfs {option} tmpfs /dev/shm
exec "$@"
"""
"""What a node of its own does in its namespaces before it starts its part of the job."""


def start_commands(inner: list[str], size: int, nodes: int, port: int, *, small_shm: bool = False) -> list[list[str]]:
    """Return the commands that start a job, one for each node.

    Args:
        inner: what each rank runs, behind torchrun's options.
        size: number of ranks.
        nodes: number of nodes; one is this machine as it is.
        port: of the rendezvous.
        small_shm: give ``/dev/shm`` one megabyte.
    """
    commands = []
    for node in range(nodes):
        options = [f"--nnodes={nodes}", f"--node-rank={node}", f"--nproc-per-node={size // nodes}"]
        options += ["--master-addr=127.0.0.1", f"--master-port={port}"]
        command = [sys.executable, "-m", "torch.distributed.run", *options, *inner]
        if nodes > 1 or small_shm:
            name = f"gpu-node-{node}" if nodes > 1 else socket.gethostname()
            shell = _NODE.format(name=name, option="-o size=1m" if small_shm else "")
            command = ["unshare", "--mount", "--uts", "sh", "-ec", shell, "sh", *command]
        commands.append(command)
    return commands


def record(name: str, communicators: str, size: int, nodes: int, out: Path, turn: int) -> str:
    """Run a scenario and keep what is left of it.

    Args:
        name: of the scenario.
        communicators: ``eager`` makes them at once, ``lazy`` with their first call.
        size: how many ranks.
        nodes: how many nodes these are on.
        out: the folder of all recordings.
        turn: keeps the ports of jobs apart that run at the same time.
    """
    scenario = SCENARIOS[name]
    folder = out / f"{name}-{communicators}"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "NCCL_DEBUG": "INFO",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_RAS_ADDR": f"localhost:{_RAS_PORT + turn}",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/nccl_trace_rank_",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/nccl_trace_rank_",
        **({"TORCH_NCCL_ENABLE_TIMING": "1"} if scenario.is_timed else {}),
        **dict(scenario.shared_environment),
    }
    inner = [__file__, "--inside", name, "--out", str(folder), f"--nodes={nodes}", f"--communicators={communicators}"]
    commands = start_commands(inner, size, nodes, 29600 + turn, small_shm=scenario.small_shm)
    with (folder / "job.log").open("ab") as log:  # all nodes append to one file
        started = [
            subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            for command in commands
        ]
        status = wait_for(started, _LIMIT)
    truth = {
        "what_happened": scenario.what.format(victim=choose_victim(size), late=round(1000 * scenario.delay * nodes)),
        "kind": scenario.kind,
        "culprit_rank": None if scenario.small_shm or scenario.kind == "healthy" else choose_victim(size),
        "communicators": communicators,
        "world_size": size,
        "nodes": nodes,
        "exit_status": status,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    return f"{folder.name}: exit status {status}"


def wait_for(nodes: list[subprocess.Popen[bytes]], limit: float) -> int | None:
    """Return the worst exit status of all nodes, None where one had to be terminated after so many seconds."""
    ends = time.monotonic() + limit
    try:
        return max(node.wait(max(0, ends - time.monotonic())) for node in nodes)
    except subprocess.TimeoutExpired:
        for node in nodes:
            node.terminate()  # torchrun ends its workers, which have sessions of their own
            node.wait()
        return None


def main(arguments: Iterable[str] | None = None) -> None:
    """Run the scenarios, some at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="default: all")
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--gpus", type=int, help="GPUs of each node (default: all that are there)")
    parser.add_argument("--nodes", type=int, default=1, help="nodes that share the GPUs (default: %(default)s)")
    parser.add_argument(
        "--communicators", nargs="*", choices=["eager", "lazy"], default=["eager", "lazy"], help="default: both"
    )
    parser.add_argument("--at-once", type=int, default=4, help="jobs that share the GPUs (default: %(default)s)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    out = options.out.resolve()
    if options.inside:
        run_rank(options.inside, out, options.communicators == ["eager"], options.nodes)
        return
    size = options.nodes * (options.gpus or _gpus())
    wanted = list(product(options.scenarios or SCENARIOS, options.communicators))
    with ThreadPoolExecutor(options.at_once) as pool:
        jobs = [
            pool.submit(record, name, communicators, size, options.nodes, out, turn)
            for turn, (name, communicators) in enumerate(wanted)
        ]
        for job in jobs:
            print(job.result(), flush=True)


def _gpus() -> int:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return listed.stdout.count("\n")


if __name__ == "__main__":
    main()
