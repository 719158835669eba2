"""Measures speed as ratios to other programs within one run, because absolute times mean little on shared machines.

Each pair of programs runs alternately; the ratio is that of the medians, and its spread that of the single pairs. The
ratio of processor times changes less where other programs are busy; with several processes it counts the work of all.
``NCCLINSPECT_BENCH_BYTES`` sets the size of the large logs (default 200 MB), ``NCCLINSPECT_BENCH_ROUNDS`` how often
each pair runs, ``NCCLINSPECT_BENCH_STREAM`` the bytes that are piped in to measure memory (default 2 GB).
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import logs
from tabulate import tabulate

TOOL = [sys.executable, "-c", "from nccl_inspect.cli import main; main()", "summarize"]
BYTES = int(os.environ.get("NCCLINSPECT_BENCH_BYTES", "200_000_000"))
STREAM = int(os.environ.get("NCCLINSPECT_BENCH_STREAM", "2_000_000_000"))
ROUNDS = int(os.environ.get("NCCLINSPECT_BENCH_ROUNDS", "5"))
IMPORTS = [sys.executable, "-c", "import click, regex, tabulate"]
COUNT_VIA = ["awk", '/ via /{for(i=1;i<=NF;i++) if($i=="via") c[$(i+1)]++} END{for(k in c) print c[k],k}']
COUNT_NCCL = ["grep", "-c", " NCCL "]


def main() -> None:
    """Measure, and print tables."""
    print(machine() + "\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wide = written(folder / "dense.log", logs.many_hosts(logs.WIDE.read_bytes(), BYTES))
        half = written(folder / "half.log", logs.many_hosts(logs.WIDE.read_bytes(), BYTES // 2))
        kilo = written(folder / "kilo.log", logs.many_communicators(logs.WIDE.read_bytes(), BYTES))
        stamped = written(
            folder / "stamped.log", logs.collected(logs.many_communicators(logs.WIDE.read_bytes(), BYTES // 4))
        )
        sparse = written(folder / "sparse.log", logs.training(BYTES))
        spam = written(folder / "spam.log", logs.spam(BYTES))
        cycle = written(folder / "cycle.log", logs.cycle(BYTES))
        (several := folder / "files").mkdir()
        logs.per_process(several, BYTES // 10)
        files = list(map(str, sorted(several.iterdir())))
        rows = [
            ("20 kB", "imports", 2.0, *ratio([*TOOL, str(logs.SMALL)], IMPORTS, ROUNDS * 3)),
            ("every line NCCL's", "awk", 1.0, *ratio([*TOOL, wide], [*COUNT_VIA, wide])),
            ("the same, --jobs 1", "awk", None, *ratio([*TOOL, wide, "--jobs", "1"], [*COUNT_VIA, wide])),
            ("1,024 ranks, many communicators", "awk", None, *ratio([*TOOL, kilo], [*COUNT_VIA, kilo])),
            ("the same, --jobs 1", "awk", None, *ratio([*TOOL, kilo, "--jobs", "1"], [*COUNT_VIA, kilo])),
            ("a quarter of it with a collector's times", "awk", None, *ratio([*TOOL, stamped], [*COUNT_VIA, stamped])),
            ("1 % of the lines NCCL's", "grep -c", 1.5, *ratio([*TOOL, sparse], [*COUNT_NCCL, sparse])),
            ("the same, --jobs 1", "grep -c", None, *ratio([*TOOL, sparse, "--jobs", "1"], [*COUNT_NCCL, sparse])),
            ("the same errors again and again", "awk", 1.0, *ratio([*TOOL, spam], [*COUNT_VIA, spam])),
            ("the same six lines in turn", "awk", 2.3, *ratio([*TOOL, cycle], [*COUNT_VIA, cycle])),
            (f"{len(files)} files, a tenth", "awk", None, *ratio([*TOOL, str(several)], [*COUNT_VIA, *files])),
            ("half as many ranks", "all ranks", 0.5, *ratio([*TOOL, half], [*TOOL, wide], 2)),
        ]
    head = ["summarize", "compared with", "goal", "seconds", "other's", "ratio", "spread", "processor"]
    print(f"Logs of {BYTES / 1e6:.0f} MB:\n")
    print(tabulate(rows, head, tablefmt="github", floatfmt=("", "", ".1f", ".2f", ".3f", ".2f", "", ".2f")))
    print(f"\nMemory for {STREAM / 1e9:.1f} GB from standard input:\n")
    kinds = [
        ("1 % of the lines NCCL's", logs.training(STREAM)),
        ("the same errors again and again", logs.spam(STREAM)),
        ("collective calls, no two the same", logs.calls(STREAM // 10)),
    ]
    table = [(kind, *memory(stream)) for kind, stream in kinds]
    print(tabulate(table, ["piped in", "MB after 1 %", "MB at the end", "seconds"], tablefmt="github", floatfmt=".0f"))


def machine() -> str:
    """What this was measured on."""
    names = [line.split(":")[1].strip() for line in lines_of("/proc/cpuinfo") if line.startswith("model name")]
    processors = len(os.sched_getaffinity(0))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    model = names[0] if names else platform.machine()
    day, python = time.strftime("%Y-%m-%d"), platform.python_version()
    return f"{day}, {processors} x {model}, Python {python}, load {load}"


def lines_of(path: str) -> list[str]:
    """A file of the kernel; nothing on other systems."""
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


def written(path: Path, blocks: Iterable[bytes]) -> str:
    """The name of a file with this content."""
    with path.open("wb") as file:
        file.writelines(blocks)
    return str(path)


def ratio(command: list[str], other: list[str], rounds: int = ROUNDS) -> tuple[float, float, float, str, float]:
    """Two commands in turn: median times, their ratio, the smallest and largest ratio, that of processor times."""
    times = [(seconds(command), seconds(other)) for _ in range(rounds + 1)][1:]  # the first round warms the caches
    ours, theirs = (statistics.median(pair[side][0] for pair in times) for side in (0, 1))
    work, others_work = (statistics.median(pair[side][1] for pair in times) for side in (0, 1))
    single = [mine[0] / its[0] for mine, its in times]
    return ours, theirs, ours / theirs, f"{min(single):.2f} to {max(single):.2f}", work / others_work


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall time and processor time of one run; its output goes to a file, as a user's would."""
    with tempfile.TemporaryFile() as out:
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=out, env={**os.environ, "LC_ALL": "C"}, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - start, work


def memory(blocks: Iterable[bytes]) -> tuple[float, float, float]:
    """The peak of memory in MB after a hundredth and at the end, and the seconds that it took."""
    start = time.perf_counter()
    early = 0.0
    done = 0
    with tempfile.TemporaryFile() as out, subprocess.Popen([*TOOL, "-"], stdin=subprocess.PIPE, stdout=out) as process:
        assert process.stdin is not None
        for block in blocks:
            process.stdin.write(block)
            done += len(block)
            if not early and done >= STREAM / 100:
                early = peak(process.pid)
        late = peak(process.pid)
        process.stdin.close()
        process.wait()
    return early, late, time.perf_counter() - start


def peak(pid: int) -> float:
    """The largest amount of memory that a process had, in MB."""
    found = [line.split()[1] for line in lines_of(f"/proc/{pid}/status") if line.startswith("VmHWM")]
    return int(found[0]) / 1e3 if found else float("nan")


if __name__ == "__main__":
    main()
