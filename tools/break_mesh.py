"""Breaks a small training mesh in many ways, and records what is left: NCCL's log, dumps, RAS answers, the truth.

Runs on a machine with PyTorch and at least two GPUs; the tests judge what it recorded (``sample_logs/mesh``)::

    python tools/break_mesh.py --out recordings               # every scenario, eager and lazy communicators
    python tools/break_mesh.py --out recordings order sigkill # some of them
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
from pathlib import Path
from typing import Any

TIMEOUT = 15
"""Seconds until PyTorch gives up."""
_BREAKS_AT = 4
_STEPS = 6
_TIMED_STEPS = 30
_ASK_AFTER = 7
_RAS_PORT = 28028
_LIMIT = 150


@dataclass
class Mesh:
    """What one rank knows of the job."""

    torch: Any
    dist: Any
    rank: int
    size: int
    groups: dict[str, Any]
    """``world``, and of tp, dp, pp those of more than one rank."""
    pipeline: list[int]
    """The ranks of its pipeline, in order."""

    def tensor(self, elements: int = 1 << 18, dtype: str = "float32") -> Any:
        """A tensor on the GPU of this rank."""
        return self.torch.ones(elements, dtype=getattr(self.torch, dtype), device="cuda")

    def reduce(self, group: str, elements: int = 1 << 18, dtype: str = "float32") -> None:
        """An all-reduce."""
        self.dist.all_reduce(self.tensor(elements, dtype), group=self.groups[group])

    def gather(self, group: str) -> None:
        """An all-gather."""
        part = self.tensor(1 << 12)
        whole = self.tensor((1 << 12) * self.dist.get_world_size(self.groups[group]))
        self.dist.all_gather_into_tensor(whole, part, group=self.groups[group])

    @property
    def inner(self) -> str:
        """The innermost group of more than one rank."""
        return next(name for name in ("tp", "dp", "pp") if name in self.groups)

    def step(self) -> None:
        """What a training step does."""
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
    """In words; ``{victim}`` is the last rank."""
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
    """Seconds that the victim comes late to each step."""


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


def _odd(elements: int, dtype: str, mesh: Mesh) -> None:
    mesh.reduce(mesh.inner, elements, dtype)
    mesh.torch.cuda.synchronize()
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


def _inner_first(mesh: Mesh) -> None:
    mesh.reduce(mesh.inner)
    mesh.torch.cuda.synchronize()
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


def _world_first(mesh: Mesh) -> None:
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()
    mesh.reduce(mesh.inner)
    mesh.torch.cuda.synchronize()


def _gather_instead(mesh: Mesh) -> None:
    mesh.gather(mesh.inner)
    mesh.torch.cuda.synchronize()


def _send_to_last(mesh: Mesh) -> None:
    if mesh.rank == 0:
        mesh.dist.send(mesh.tensor(), mesh.size - 1)
        mesh.torch.cuda.synchronize()
    mesh.reduce("world")
    mesh.torch.cuda.synchronize()


SCENARIOS = {
    "skip": Scenario("rank {victim} leaves out one all-reduce of its inner group", "skipped-call", _skip),
    "size": Scenario("rank {victim} passes half as many elements", "other-size", partial(_odd, 1 << 17, "float32")),
    "type": Scenario(
        "rank {victim} passes bfloat16 instead of float32", "other-type", partial(_odd, 1 << 18, "bfloat16")
    ),
    "operation": Scenario(
        "rank {victim} calls all-gather where the others call all-reduce",
        "other-operation",
        _gather_instead,
        _inner_first,
    ),
    "order": Scenario(
        "rank {victim} calls the world before its inner group, the others after it", "order", _world_first, _inner_first
    ),
    "no-partner": Scenario("rank {victim} never receives what rank 0 sends", "no-partner", _sleep, _send_to_last),
    "loop": Scenario("rank {victim} is busy in a Python loop", "busy", _loop),
    "sigkill": Scenario("rank {victim} is killed (SIGKILL)", "killed", partial(_stop, signal.SIGKILL)),
    "sigstop": Scenario("rank {victim} is stopped (SIGSTOP)", "stopped", partial(_stop, signal.SIGSTOP)),
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
    "late": Scenario("rank {victim} comes 40 ms late to each step", "straggler", is_timed=True, delay=0.04),
    "even": Scenario("all ranks are equally fast", "healthy", is_timed=True),
}


def shape(size: int) -> tuple[int, int, int]:
    """Pipeline, data and tensor parallelism for a number of GPUs."""
    tensor = 2 if size % 2 == 0 else 1
    data = 2 if size % 8 == 0 else 1
    return size // (tensor * data), data, tensor


def inside(name: str, out: Path, eager: bool) -> None:
    """One rank of the job, started by torchrun."""
    scenario = SCENARIOS[name]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == size - 1:
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
        if scenario.delay and rank == size - 1:
            torch.cuda.synchronize()
            time.sleep(scenario.delay)
        if step == _BREAKS_AT:
            if rank == 0 and (scenario.victim or scenario.others):
                threading.Timer(_ASK_AFTER, _ask, (out,)).start()
            act = scenario.victim if rank == size - 1 else scenario.others
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
    """The protocol of ``ncclras`` (src/ras/client_support.cc)."""
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


def record(name: str, eager: bool, gpus: int, out: Path, turn: int) -> str:
    """Run a scenario and keep what is left of it.

    Args:
        name: of the scenario.
        eager: make communicators at once; else with their first call.
        gpus: how many ranks.
        out: the folder of all recordings.
        turn: keeps the ports of jobs apart that run at the same time.
    """
    scenario = SCENARIOS[name]
    folder = out / f"{name}-{'eager' if eager else 'lazy'}"
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
    run = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={gpus}", f"--master-port={29600 + turn}"]
    command = [*run, __file__, "--inside", name, "--out", str(folder), *(["--eager"] if eager else [])]
    if scenario.small_shm:
        shell = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", shell, "sh", *command]
    with (folder / "job.log").open("wb") as log:
        job = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status: int | None = job.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            job.terminate()  # torchrun ends its workers, which have sessions of their own
            job.wait()
            status = None
    truth = {
        "what_happened": scenario.what.format(victim=gpus - 1),
        "kind": scenario.kind,
        "culprit_rank": None if scenario.small_shm or scenario.kind == "healthy" else gpus - 1,
        "communicators": "eager" if eager else "lazy",
        "world_size": gpus,
        "exit_status": status,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    return f"{folder.name}: exit status {status}"


def main(arguments: Iterable[str] | None = None) -> None:
    """Run the scenarios, some at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="default: all")
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--gpus", type=int, help="default: all that are there")
    parser.add_argument("--at-once", type=int, default=4, help="jobs that share the GPUs (default: %(default)s)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--eager", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    out = options.out.resolve()
    if options.inside:
        inside(options.inside, out, options.eager)
        return
    gpus = options.gpus or _gpus()
    wanted = [(name, eager) for name in options.scenarios or SCENARIOS for eager in (True, False)]
    with ThreadPoolExecutor(options.at_once) as pool:
        jobs = [pool.submit(record, name, eager, gpus, out, turn) for turn, (name, eager) in enumerate(wanted)]
        for job in jobs:
            print(job.result(), flush=True)


def _gpus() -> int:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return listed.stdout.count("\n")


if __name__ == "__main__":
    main()
