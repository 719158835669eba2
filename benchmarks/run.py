"""Measures speed as ratios to other programs within one run, because absolute times mean little on shared machines.

Each pair of programs runs alternately; the medians of all rounds are compared.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
TOOL = str(Path(sys.executable).parent / "nccl-inspect")
SMALL = ROOT / "sample_logs/efa-provider-missing-socket-fallback/job.log"
DENSE = ROOT / "sample_logs/p2p-nvlink-8gpu/job.log"
DENSE_BYTES = int(os.environ.get("NCCLINSPECT_BENCH_BYTES", "30_000_000"))
IMPORTS = "import click, regex, tabulate"
COUNT_VIA = '/ via /{for(i=1;i<=NF;i++) if($i=="via") c[$(i+1)]++} END{for(k in c) print c[k],k}'


def main() -> None:
    """Measure, and print a table with the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        dense = Path(folder) / "dense.log"
        dense.write_bytes(many_hosts(DENSE.read_bytes(), DENSE_BYTES))
        small = ratio([TOOL, "summarize", str(SMALL)], [sys.executable, "-c", IMPORTS], rounds=15)
        large = ratio([TOOL, "summarize", str(dense)], ["awk", COUNT_VIA, str(dense)], rounds=5)
        megabytes = dense.stat().st_size / 1e6
    rows = [
        (f"{SMALL.stat().st_size / 1e3:.0f} kB", "python -c 'import click, regex, tabulate'", 2.0, *small),
        (f"{megabytes:.0f} MB, every line NCCL's", "awk that counts what follows 'via'", 1.0, *large),
    ]
    head = ["summarize", "compared with", "goal", "seconds", "other's", "ratio"]
    sys.stdout.write(tabulate(rows, head, tablefmt="simple", floatfmt=("", "", ".1f", ".3f", ".3f", ".2f")) + "\n")


def ratio(command: list[str], other: list[str], rounds: int) -> tuple[float, float, float]:
    """The median times of two commands that run in turn, and the ratio of these."""
    times = [(seconds(command), seconds(other)) for _ in range(rounds + 1)][1:]  # the first round warms the caches
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    return ours, theirs, ours / theirs


def seconds(command: list[str]) -> float:
    """Wall time of one run; its output goes to a file, as a user's would."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        subprocess.run(command, stdout=out, env={**os.environ, "LC_ALL": "C"}, check=True)
        return time.perf_counter() - start


def many_hosts(sample: bytes, size: int) -> bytes:
    """The log of a job on one host, repeated as one job on many: hosts, processes and ranks are all distinct."""
    ranks = max(int(found) for found in re.findall(rb" nranks (\d+) ", sample))
    copies = -(-size // len(sample))
    return b"".join(_renumbered(sample, host, ranks, copies) for host in range(copies))


def _renumbered(sample: bytes, host: int, ranks: int, copies: int) -> bytes:
    def process(found: re.Match[bytes]) -> bytes:
        return b"host-%d:%d:%d " % (host, int(found[1]) + host, int(found[2]) + host)

    def rank(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) + host * ranks)

    def size(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) * copies)

    def trees(found: re.Match[bytes]) -> bytes:
        return found[1] + re.sub(rb"(\] |/|->)(\d+)", rank, found[2])

    text = re.sub(rb"(?m)^[\w.-]+:(\d+):(\d+) ", process, sample)
    text = re.sub(rb"( : | -> | rank )(\d+)(?=\[| n[rR]anks)", rank, text)
    text = re.sub(rb"( n[rR]anks | nNodes )(\d+)", size, text)
    text = re.sub(rb"(?m)^(.* NCCL INFO Trees)(.*)$", trees, text)
    return re.sub(rb"(?m)^.* NCCL INFO Channel \d+/\d+ :(?: +\d+)+\n", b"", text) if host else text


if __name__ == "__main__":
    main()
