"""Measure what each path between GPUs gives: one machine, the same collectives, under settings that force each path.

Runs on a machine with PyTorch and at least two GPUs; nccl-tests are run as well where they were built::

    python tools/measure_paths.py --out measured                            # PyTorch, every setting
    python tools/measure_paths.py --out measured --nccl-tests build shm     # nccl-tests, one setting

Each run leaves a folder with ``job.log`` (what NCCL and the program printed), ``results.json`` (rows of operation, size
in bytes, time in microseconds, algorithm and bus bandwidth in GB/s as nccl-tests define them; the last row is that of a
training step) and ``truth.json`` (what was forced). Nodes are sets of Linux namespaces, as in ``break_mesh.py``: NCCL
takes them for machines. NVLink multicast (NVLS) stays off.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from break_mesh import start_commands, wait_for

SIZES = [8**exponent for exponent in range(1, 11)] + [4 << 30]
SECONDS = 0.25
"""For one size of one collective; at least two calls."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
LAYERS, WIDTH, TOKENS = 24, 2048, 4096
"""A model of 1.2 billion parameters, and how many tokens each rank has in a step."""
LIMIT = 150
"""Seconds for one run."""


class Setting(NamedTuple):
    """A way to force a path."""

    environment: dict[str, str]
    path: str
    """What connection lines then say, as the beginning of the path's detail; between nodes, where there are several."""
    nodes: int = 1
    largest: int = SIZES[-1]
    """The largest message: slow paths need no more to show what they give."""


SLOW = 1 << 30
SETTINGS = {
    "default": Setting({}, "P2P/CUMEM"),
    "ipc": Setting({"NCCL_CUMEM_ENABLE": "0"}, "P2P/IPC"),
    "read": Setting({"NCCL_P2P_READ_ENABLE": "1"}, "P2P/CUMEM/read"),
    "copy-engine": Setting({"NCCL_P2P_USE_CUDA_MEMCPY": "1"}, "P2P/CUMEM/CE"),
    "shm": Setting({"NCCL_P2P_DISABLE": "1"}, "SHM", largest=SLOW),
    "socket": Setting({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, "NET/Socket", largest=SLOW),
    "nodes": Setting({}, "NET/Socket", nodes=2, largest=SLOW),
    "nodes-4": Setting({}, "NET/Socket", nodes=4, largest=SLOW),
    "channels-1": Setting({"NCCL_MAX_NCHANNELS": "1"}, "P2P/CUMEM"),
    "channels-2": Setting({"NCCL_MAX_NCHANNELS": "2"}, "P2P/CUMEM"),
    "channels-4": Setting({"NCCL_MAX_NCHANNELS": "4"}, "P2P/CUMEM"),
    "ring-simple": Setting({"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}, "P2P/CUMEM"),
    "ring-ll128": Setting({"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL128"}, "P2P/CUMEM"),
    "ring-ll": Setting({"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}, "P2P/CUMEM"),
    "tree": Setting({"NCCL_ALGO": "Tree"}, "P2P/CUMEM"),
}


def bus_factor(operation: str, ranks: int) -> float:
    """Return bus bandwidth divided by algorithm bandwidth (doc/PERFORMANCE.md of nccl-tests)."""
    return {"all_reduce": 2 * (ranks - 1) / ranks, "sendrecv": 1.0}.get(operation, (ranks - 1) / ranks)


# --- one rank


def measure(largest: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each collective and size, as one rank of a job of torchrun."""
    torch, dist = import_module("torch"), import_module("torch.distributed")
    ranks = int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank = dist.get_rank()
    for operation in OPERATIONS:
        for size in (size for size in SIZES if size <= largest):
            number = max(size // 4 // ranks, 1) * ranks
            whole = torch.zeros(number, device="cuda")
            part, others = torch.zeros(number // ranks, device="cuda"), torch.empty(number, device="cuda")
            after, before = (rank + 1) % ranks, (rank - 1) % ranks
            exchange = [dist.P2POp(dist.isend, whole, after), dist.P2POp(dist.irecv, others, before)]
            calls: dict[str, Callable[[], object]] = {
                "all_reduce": partial(dist.all_reduce, whole),
                "all_gather": partial(dist.all_gather_into_tensor, whole, part),
                "reduce_scatter": partial(dist.reduce_scatter_tensor, part, whole),
                "alltoall": partial(dist.all_to_all_single, others, whole),
                "sendrecv": partial(_exchange, dist, exchange),
            }
            call = calls[operation]
            often = max(2, min(200, int(SECONDS / _seconds(torch, dist, call, 2))))
            taken, moved = _seconds(torch, dist, call, often), number * 4
            algorithm = moved / taken / 1e9
            yield {
                "operation": operation,
                "bytes": moved,
                "microseconds": round(taken * 1e6, 2),
                "algbw": round(algorithm, 3),
                "busbw": round(algorithm * bus_factor(operation, ranks), 3),
                "calls": often,
            }
    yield _train(torch, dist)
    dist.destroy_process_group()


def _train(torch: Any, dist: Any) -> dict[str, Any]:
    """Return the row of a training step: parameters, gradients and optimizer are sharded over all ranks."""
    fsdp = import_module("torch.distributed.fsdp")
    options = {"batch_first": True, "dropout": 0.0, "device": "cuda", "dtype": torch.bfloat16}
    model = torch.nn.Sequential(
        *(torch.nn.TransformerEncoderLayer(WIDTH, WIDTH // 128, 4 * WIDTH, **options) for _ in range(LAYERS))
    )
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    for layer in model:
        fsdp.fully_shard(layer)
    fsdp.fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.randn(TOKENS // 1024, 1024, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    _seconds(torch, dist, step, 2)
    seconds = _seconds(torch, dist, step, 5)
    return {"operation": "training_step", "bytes": size, "microseconds": round(seconds * 1e6, 2), "calls": 5}


def _exchange(dist: Any, operations: list[Any]) -> None:
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def _seconds(torch: Any, dist: Any, call: Callable[[], Any], often: int) -> float:
    """Return the time of one call, from a barrier to the end of the last one, on the slowest GPU."""
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(often):
        call()
    torch.cuda.synchronize()
    seconds = torch.tensor((time.perf_counter() - begin) / often, device="cuda")
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds)


# --- runs


def tests(setting: Setting, gpus: int, build: Path) -> Iterator[list[str]]:
    """Yield the programs of nccl-tests, each with a thread for each GPU."""
    for operation in OPERATIONS:
        options = ["-t", str(gpus), "-g", "1", "-b", "8", "-e", str(setting.largest), "-f", "8", "-n", "20", "-w", "3"]
        yield [str(build / f"{operation}_perf"), *options]


def run(name: str, gpus: int, out: Path, build: Path | None, port: int) -> str:
    """Measure under one setting, and return how that ended."""
    setting = SETTINGS[name]
    folder = out / (name if build is None else f"{name}-nccl-tests")
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "NCCL_DEBUG": "INFO", "NCCL_NVLS_ENABLE": "0", **setting.environment}
    environment |= {"NCCL_TOPO_DUMP_FILE": f"{folder}/topology.xml", "NCCL_GRAPH_DUMP_FILE": f"{folder}/graphs.xml"}
    statuses = []
    with (folder / "job.log").open("ab") as log:
        if build is not None:
            for command in tests(setting, gpus, build):
                statuses.append(wait_for([subprocess.Popen(command, env=environment, stdout=log, stderr=log)], LIMIT))
        else:
            inner = [__file__, "--out", str(folder), "--inside", str(setting.largest)]
            started = [
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                for command in start_commands(inner, gpus, setting.nodes, port)
            ]
            statuses.append(wait_for(started, LIMIT))
    truth = {
        "setting": setting.environment,
        "path": setting.path if build is None else _path_of_threads(setting),
        "nodes": setting.nodes,
        "ranks": gpus,
        "program": "PyTorch" if build is None else "nccl-tests",
        "statuses": statuses,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    return f"{folder.name}: {statuses}"


def _path_of_threads(setting: Setting) -> str:
    """Return the path between GPUs of one process, which need no handles for each other's memory."""
    if not setting.path.startswith("P2P") or setting.path.endswith("/CE"):
        return setting.path
    return f"P2P/direct pointer{'/read' if setting.path.endswith('/read') else ''}"


def main() -> None:
    """Run the settings, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", choices=[*SETTINGS, []], help="default: all")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--gpus", type=int, help="how many GPUs (default: all that are there)")
    parser.add_argument("--nccl-tests", type=Path, metavar="BUILD", help="run the programs in this folder instead")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    if options.inside:
        rows = list(measure(options.inside))
        if os.environ["RANK"] == "0":
            text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
            (out / "results.json").write_text(text, encoding="utf-8")
        return
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    gpus = options.gpus or listed.count("\n")
    out.mkdir(parents=True, exist_ok=True)
    machine = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=False).stdout
    (out / "machine.txt").write_text(f"{socket.gethostname()}\n{listed}{machine}", encoding="utf-8")
    for number, name in enumerate(options.settings or SETTINGS):
        nodes = SETTINGS[name].nodes
        if gpus % nodes == 0 and (options.nccl_tests is None or nodes == 1):
            print(run(name, gpus, out, options.nccl_tests, 29700 + number), flush=True)


if __name__ == "__main__":
    main()
