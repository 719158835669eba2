"""Measures speed and memory in one run on one machine, as ratios to other programs, and writes the table of the docs.

Each pair of programs runs alternately; the ratio is that of the medians, its spread that of the single pairs. Before a
wide job is measured, what is read from it is compared with its truth. ``NCCLINSPECT_BENCH_BYTES`` sets the size of the
sparse log and the floods (default 200 MB), ``NCCLINSPECT_BENCH_ROUNDS`` how often each pair runs (default 5),
``NCCLINSPECT_BENCH_STREAM`` the bytes that ``--stream`` pipes in (default 2 GB).

examples:
  python benchmarks/run.py                            a few minutes
  python benchmarks/run.py --large --stream --write   all of docs/performance.md
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import logs
from measuring import ROUNDS, Comparison, compare, machine, measure_peak
from tabulate import tabulate
from wide_job import WideJob, collect_lines

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, PAGE = ROOT / "nccl_inspect", ROOT / "docs" / "performance.md"
TOOL = [sys.executable, "-c", "from nccl_inspect.__main__ import main; main()", "summarize"]
BYTES = int(os.environ.get("NCCLINSPECT_BENCH_BYTES", "200_000_000"))
STREAM = int(os.environ.get("NCCLINSPECT_BENCH_STREAM", "2_000_000_000"))
COUNT_VIA = ["awk", '/ via /{for(i=1;i<=NF;i++) if($i=="via") c[$(i+1)]++} END{for(k in c) print c[k],k}']
IMPORTS = [sys.executable, "-c", "import click, regex, tabulate"]
COUNT_NCCL = ["grep", "-c", " NCCL "]
RANKS = (8, 128, 1024)
LARGE = (4096, 8192)
HEAD = (
    "summarize",
    "MB",
    "compared with",
    "seconds",
    "ratio",
    "spread",
    "processor",
    "µs per line",
    "ms per rank",
    "MB at most",
)
FORMATS = ("", ".1f", "", ".2f", ".2f", "", ".2f", ".2f", ".2f", ".0f")


def main() -> None:
    """Measure, print tables, and write them into the page."""
    about, _, examples = (__doc__ or "").partition("\nexamples:")
    parser = argparse.ArgumentParser(
        description=about, epilog=f"examples:{examples}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="also measure jobs of 4,096 and 8,192 ranks")
    parser.add_argument("--stream", action="store_true", help="also measure the memory for a stream of 2 GB")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.name}")
    arguments = parser.parse_args()
    compileall.compile_dir(
        PACKAGE, quiet=1
    )  # as pip does; without that, a short run spends two thirds of its time on it
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(Path(folder), RANKS + LARGE * arguments.large)
        tables = {"speed": _table(list(rows), HEAD, FORMATS)}
    if arguments.stream:
        tables["stream"] = _table(
            _streams(), ("piped in", "MB after 1 %", "MB at the end", "seconds"), ("", *3 * (".0f",))
        )
    for name, table in tables.items():
        print(f"{table}\n")
        if arguments.write:
            _write(name, table)


def _rows(folder: Path, sizes: Iterable[int]) -> Iterator[tuple[object, ...]]:
    yield _row("20 kB", str(logs.SMALL), IMPORTS, "imports", rounds=ROUNDS * 3)
    for ranks in sizes:
        log = _job(folder / f"wide-{ranks}.log", ranks)
        yield _row(f"{ranks:,} ranks", log, [*COUNT_VIA, log], "awk", ranks)
        if ranks == 1024:
            for jobs in ("1", "2"):
                yield _row(f"the same, --jobs {jobs}", log, [*COUNT_VIA, log], "awk", ranks, options=["--jobs", jobs])
            log = _job(folder / "collected.log", ranks, collect_lines)
            yield _row("the same, with pod and time", log, [*COUNT_VIA, log], "awk", ranks)
            log = _job(folder / "docker.log", ranks, logs.wrap_in_docker)
            yield _row("the same, in JSON", log, [*COUNT_VIA, log], "awk", ranks)
    sparse = write_log(folder / "sparse.log", logs.training(BYTES))
    yield _row("1 % of the lines NCCL's", sparse, [*COUNT_NCCL, sparse], "grep -c")
    yield _row("the same, --jobs 2", sparse, [*COUNT_NCCL, sparse], "grep -c", options=["--jobs", "2"])
    for name, flood in (
        ("one error again and again", logs.flood_of_one_line),
        ("six lines in a cycle", logs.flood_of_a_cycle),
    ):
        log = write_log(folder / "flood.log", flood(BYTES))
        yield _row(name, log, [*COUNT_VIA, log], "awk")
    (several := folder / "files").mkdir()
    logs.write_per_process(several, BYTES // 10)
    files = sorted(map(str, several.iterdir()))
    yield _row(f"{len(files):,} files", str(several), [*COUNT_VIA, *files], "awk", len(files))


def _job(path: Path, ranks: int, passed_on: Callable[[Iterable[str]], Iterator[str]] = iter) -> str:
    """Return the log of a wide job, made in another process: else its memory would count for what this one starts."""
    with ProcessPoolExecutor(1) as process:
        return process.submit(_check_job, path, ranks, passed_on).result()


def _check_job(path: Path, ranks: int, passed_on: Callable[[Iterable[str]], Iterator[str]]) -> str:
    """Return the log of a wide job, which is read as its truth says."""
    job = WideJob(ranks)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(passed_on(job.lines()))
    document = json.loads(
        subprocess.run([*TOOL, str(path), "--format", "json"], stdout=subprocess.PIPE, check=True).stdout
    )
    paths = {(found["src"], found["dst"]): (found["transport"], found["gdr"]) for found in document["paths"]}
    if paths != job.truth or document["verdict"] != "ok":
        wrong = sum(paths.get(pair) != way for pair, way in job.truth.items())
        raise SystemExit(f"{path.name}: verdict {document['verdict']}, {wrong} of {len(job.truth)} paths are wrong")
    return str(path)


def _row(
    name: str,
    log: str,
    other: list[str],
    its_name: str,
    ranks: int = 0,
    *,
    options: Iterable[str] = (),
    rounds: int = ROUNDS,
) -> tuple[object, ...]:
    print(f"{name} …", file=sys.stderr)
    files = [Path(log)] if Path(log).is_file() else list(Path(log).iterdir())
    lines = sum(_count_lines(file) for file in files)
    size = sum(file.stat().st_size for file in files) / 1e6
    result = compare([*TOOL, log, *options], other, rounds)
    spread = f"{result.least:.2f} to {result.most:.2f}"
    processor = result.ours.processor / result.other.processor
    per_rank = 1e3 * result.ours.seconds / ranks if ranks else None
    cost = result.ours.seconds, result.ratio, spread, processor, 1e6 * result.ours.seconds / lines, per_rank
    return name, size, its_name, *cost, result.ours.peak


def _count_lines(file: Path) -> int:
    with file.open("rb") as blocks:
        return sum(block.count(b"\n") for block in iter(lambda: blocks.read(1 << 20), b""))


def _streams() -> Iterator[tuple[object, ...]]:
    kinds = {
        "1 % of the lines NCCL's": (logs.training(STREAM), STREAM),
        "six lines in a cycle": (logs.flood_of_a_cycle(STREAM), STREAM),
        "collective calls, no two the same": (logs.calls(STREAM // 10), STREAM // 10),
    }
    return ((kind, *_measure_pipe(blocks, size)) for kind, (blocks, size) in kinds.items())


def _measure_pipe(blocks: Iterable[bytes], size: int) -> tuple[float, float, float]:
    """Return the peak of memory in MB after a hundredth and at the end, and the seconds that it took."""
    start = time.perf_counter()
    early, done = 0.0, 0
    with tempfile.TemporaryFile() as out, subprocess.Popen([*TOOL, "-"], stdin=subprocess.PIPE, stdout=out) as process:
        assert process.stdin is not None
        for block in blocks:
            process.stdin.write(block)
            done += len(block)
            if not early and done >= size / 100:
                early = measure_peak(process.pid)
        late = measure_peak(process.pid)
        process.stdin.close()
        process.wait()
    return early, late, time.perf_counter() - start


def _table(rows: Iterable[tuple[object, ...]], head: tuple[str, ...], formats: tuple[str, ...]) -> str:
    return f"{machine()}:\n\n{tabulate(list(rows), head, tablefmt='github', floatfmt=formats)}"


def _write(name: str, table: str) -> None:
    """Put a table between its marks in the page."""
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- benchmark: {name} -->\n")
    _, end, after = rest.partition("<!-- benchmark: end -->\n")
    if not (mark and end):
        raise SystemExit(f"{PAGE}: no marks of the table {name}")
    PAGE.write_text(f"{before}{mark}\n{table}\n\n{end}{after}", encoding="utf-8")


def write_log(path: Path, blocks: Iterable[bytes]) -> str:
    """Return the name of a file with this content."""
    with path.open("wb") as file:
        file.writelines(blocks)
    return str(path)


def ratio(command: list[str], other: list[str]) -> tuple[float, float, float, str, float]:
    """Return what two commands take in turn: median times, their ratio, its extremes, that of processor times."""
    result: Comparison = compare(command, other)
    spread = f"{result.least:.2f} to {result.most:.2f}"
    times = result.ours.seconds, result.other.seconds
    return *times, result.ratio, spread, result.ours.processor / result.other.processor


if __name__ == "__main__":
    main()
