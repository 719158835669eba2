"""Many jobs in a store: each is there once and whole, and what the bad ones share is found, and nothing else."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import command_line
import pyarrow.parquet as pq
import pytest
import simulate_fleet
from chromium import BROWSER
from repository import ROOT
from schemas import close_schema

from nccl_inspect.extras.fleet import adding, report
from nccl_inspect.extras.fleet.formats import FORMATS
from nccl_inspect.extras.fleet.store import MOST_FILES, Store
from nccl_inspect.extras.fleet.tables import TABLES
from nccl_inspect.report import Style

MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: train-7f9c-node-0}
spec:
  containers:
  - {name: main, image: "registry/train:7", resources: {limits: {nvidia.com/gpu: 4}}}
"""


def log(number: int, hosts: int = 2, on_each: int = 2, fault: str = "") -> bytes:
    """Return a job of its own: another communicator, on another day."""
    text = simulate_fleet.text(hosts, on_each, fault)
    return text.replace(b"0x949dfd688ed0b46b", b"0x%016x" % (number + 1)).replace(
        b"2026-11-20", b"2026-11-%02d" % (number % 28 + 1)
    )


def fleet(*args: str) -> str:
    done = command_line.execute("fleet", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def rows(store: Path | str, sql: str) -> Any:
    done = Store(str(store)).connect().execute(sql)
    names = [column[0] for column in done.description]
    return json.loads(json.dumps([dict(zip(names, row, strict=True)) for row in done.fetchall()], default=str))


def test_a_log_is_added_once_whatever_it_is_called_and_the_files_of_a_job_together(tmp_path: Path) -> None:
    logs, store = tmp_path / "logs", tmp_path / "store"
    logs.mkdir()
    for number in range(3):
        (logs / f"job-{number}.log").write_bytes(log(number, fault="host" if number == 1 else ""))
    lines = log(7).splitlines(keepends=True)
    for host in range(2):
        (logs / f"other.{host}").write_bytes(b"".join(line for line in lines if b"-node-%d:" % host in line))
    (logs / "pod.yaml").write_text(MANIFEST)
    assert fleet("add", str(logs), "--store", str(store)).startswith("4 jobs added (3 ")
    expected = [{"verdict": "failed", "ranks": 4, "hosts": 2, "day": "2026-11-02"}]
    assert rows(store, "SELECT verdict, ranks, hosts, day FROM job WHERE bad") == expected
    assert rows(store, "SELECT image, clock, count(*) n FROM job GROUP BY ALL") == [
        {"image": "registry/train:7", "clock": "lines", "n": 4}
    ]
    assert rows(store, "SELECT host FROM host WHERE named") == [{"host": "train-7f9c-node-0"}]
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*.parquet")}
    (logs / "job-0.log").rename(logs / "renamed.log")
    assert fleet("add", str(logs), "--store", str(store)) == "0 jobs added; 4 logs already there\n"
    assert before == {path: path.stat().st_mtime_ns for path in store.rglob("*.parquet")}
    done = command_line.execute("fleet", "add", "--store", str(store), "--image", "own", data=log(9))
    assert done.stdout.startswith(b"1 job added")
    assert rows(store, "SELECT count(*) n FROM job WHERE image = 'own'") == [{"n": 1}]
    (logs / "live.log").write_bytes(log(11))
    fleet("add", str(logs / "live.log"), "--store", str(store))
    assert rows(store, "SELECT count(*) n FROM job") == [{"n": 6}]
    (logs / "empty.log").write_text("nothing\n")
    assert command_line.execute("fleet", "add", str(logs / "empty.log"), "--store", str(store)).returncode == 3


def test_which_logs_are_read_together(tmp_path: Path) -> None:
    names = {
        "a/rank-0.log": b"x NCCL INFO y", "a/rank-1.log": b"x NCCL INFO y",
        "a/job-1.log": b"NCCL", "a/job-2.log": b"NCCL",
        "b/one": b"h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 commId 0xabc - Init START",
        "b/two": b"h:2:2 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 1 commId 0xabc - Init START",
        "b/two.1": b"h:2:2 [1] NCCL INFO later", "b/zero": b"commId 0x0",
    }  # fmt: skip
    for name, text in names.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    inputs = [str(tmp_path / name) for name in names]
    found, problems = adding.group_logs([*inputs, str(tmp_path / "gone.log")])
    together = {tuple(sorted(os.path.relpath(log, tmp_path) for log in unit.logs)) for unit in found}
    assert together == {
        ("a/rank-0.log", "a/rank-1.log"),
        ("a/job-1.log",),
        ("a/job-2.log",),
        ("b/one", "b/two", "b/two.1"),
        ("b/zero",),
    }
    assert "gone.log" in problems[0]
    assert len(adding.group_logs(inputs, together=True)[0]) == 1


def test_small_files_are_merged_and_what_a_killed_process_left_counts_for_nothing(tmp_path: Path) -> None:
    model = simulate_fleet.model(1, 2, "")
    store = Store(str(tmp_path), make=True)
    simulated = simulate_fleet.Fleet(1, most=1).jobs(MOST_FILES, days=1)
    jobs = [simulate_fleet.rows([job._replace(model=model)]) for job in simulated]
    for job in jobs:
        store.append("2026-11-01", [job])
    counts = rows(tmp_path, "SELECT (SELECT count(*) FROM job) jobs, (SELECT count(*) FROM rank) ranks")
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    store.tidy(["2026-11-01"])
    assert [len(list((tmp_path / table).rglob("*.parquet"))) for table in ("job", "host", "rank")] == [1, 1, 1]
    for path, data in kept.items():  # killed before they were deleted
        path.write_bytes(data)
    orphan = next(path for path in kept if "/rank/" in str(path)).with_stem("new-half")
    orphan.write_bytes(kept[next(path for path in kept if "/rank/" in str(path))])
    assert rows(tmp_path, "SELECT (SELECT count(*) FROM job) jobs, (SELECT count(*) FROM rank) ranks") == counts
    assert counts == [{"jobs": MOST_FILES, "ranks": 2 * MOST_FILES}]
    os.utime(orphan, (0, 0))
    store.tidy(["2026-11-01"])
    assert len(list(tmp_path.rglob("*.parquet"))) == len(TABLES)
    assert pq.read_table(tmp_path / "job").num_rows == MOST_FILES  # as pandas and Spark read it


def test_chances_are_those_of_the_books(tmp_path: Path) -> None:
    connection = Store(str(tmp_path), make=True).connect()
    report.ask(connection, "statistics")

    def value(sql: str) -> float:
        ((found,),) = connection.execute(f"SELECT {sql}").fetchall()
        return float(found)

    for values, chance in (((3, 4, 4, 8), 17 / 70), ((4, 4, 4, 8), 1 / 70), ((0, 4, 4, 8), 1.0)):  # Fisher's tea
        assert value(f"exp(fisher{values})") == pytest.approx(chance)
    assert value("exp(binomial(3, 4, 0.5))") == pytest.approx(5 / 16)
    assert value("exp(binomial(9000, 20000, 0.5))") == 1
    bounds = (value("wilson(10, 100, -1)"), value("wilson(10, 100, 1)"))
    assert bounds == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert (value("rated(0, 0).low"), value("rated(0, 0).high")) == (0.0, 1.0)
    ways = [math.comb(90, n) * math.comb(910, 100 - n) for n in range(40, 91)]
    assert value("fisher(40, 100, 90, 1000)") == pytest.approx(math.log(sum(ways) / math.comb(1000, 100)))


def filled_store(place: Path, number: int, seed: int, background: float, hosts: int = 40) -> simulate_fleet.Truth:
    simulated = simulate_fleet.Fleet(seed, hosts, background, most=4)
    simulate_fleet.fill(str(place), simulated.jobs(number))
    return simulated.truth


def test_the_planted_faults_are_found_and_nothing_else(tmp_path: Path) -> None:
    truth = filled_store(tmp_path, 1500, 5, 0.1, hosts=20)
    document = json.loads(fleet("report", "--store", str(tmp_path), "--format", "json", "--by", "host"))
    assert not list(close_schema("nccl-inspect-fleet-1").iter_errors(document))
    assert {(one["kind"], one["name"]) for one in document["suspects"]} == truth.names
    assert {one["host"] for one in document["suspects"]} == {None, *truth.hosts, truth.nic.split()[0]}
    assert sum(one["suspect"] for one in document["by"]["rows"]) == len(truth.hosts)
    assert all(proof["text"] and proof["line"] for one in document["suspects"] for proof in one["evidence"])
    told = {name: form.render(document, Style()) for name, form in FORMATS.items()}
    assert not [name for _, name in truth.names for text in told.values() if name not in text]
    assert "<polyline" in told["html"]
    assert "\\x0a" not in told["text"]
    week = json.loads(fleet("report", "--store", str(tmp_path), "--format", "json", "--since", "7d"))
    assert len(week["days"]) == 7


def document_of(place: Path, jobs: list[tuple[int, list[str], str, str]]) -> dict[str, Any]:
    """Return the report on jobs of one host each, unless more are given: day, hosts, image, fault."""
    begin = simulate_fleet.BEGIN
    simulated = [
        simulate_fleet.Simulated(
            simulate_fleet.model(len(hosts), 2, fault), f"{n:020}", begin + timedelta(days=day, seconds=n), hosts, image
        )
        for n, (day, hosts, image, fault) in enumerate(jobs)
    ]
    simulate_fleet.fill(str(place), simulated)
    return report.make_report(Store(str(place)))


def test_one_bad_job_accuses_nobody_and_company_is_cleared(tmp_path: Path) -> None:
    few = [(0, [f"h{n % 4}"], "i", "program" if n == 3 else "") for n in range(24)]
    assert document_of(tmp_path / "one", few)["suspects"] == []
    shared = [(0, ["bad", "near"] if n % 2 else ["near"], "i", "program" if n % 2 else "") for n in range(40)]
    shared += [(0, [f"h{n % 9}"], "i", "") for n in range(30)]
    (one,) = document_of(tmp_path / "near", shared)["suspects"]
    assert (one["name"], one["together"]) == ("bad", [])
    twins = [(0, ["a", "b"], "i", "program") for _ in range(12)] + [(0, ["c", "d"], "i", "") for _ in range(30)]
    (one,) = document_of(tmp_path / "twins", twins)["suspects"]
    assert (one["name"], one["together"]) == ("a", ["host b"])


def test_an_image_that_made_jobs_worse_is_told_with_what_was_before(tmp_path: Path) -> None:
    before = [(n // 4, [f"h{n % 8}"], "app:1", "program" if n % 12 == 0 else "") for n in range(48)]
    after = [(12 + n // 4, [f"h{n % 8}"], "app:2", "program" if n % 3 else "") for n in range(24)]
    document = document_of(tmp_path, before + after)
    (change,) = document["changes"]
    assert (change["name"], change["before"]["name"], change["bad"], change["jobs"]) == ("app:2", "app:1", 16, 24)
    assert ("image", "app:2") in {(one["kind"], one["name"]) for one in document["new"]}
    after_a_pause = [(40, [f"h{n % 8}"], "app:3", "program") for n in range(12)]
    assert document_of(tmp_path / "pause", before + after_a_pause)["changes"] == []


def test_a_store_is_told_from_other_folders_and_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "note").write_text("mine")
    for args, says in (
        (["report", "--store", str(tmp_path / "gone")], "no store; make one with"),
        (["add", str(tmp_path / "note"), "--store", str(tmp_path)], "neither a store nor empty"),
        (["report", "--store", str(tmp_path), "--since", "soon"], "not a number of days or weeks"),
    ):
        done = command_line.execute("fleet", *args)
        assert (done.returncode, says in done.stderr.decode()) == (2, True), done.stderr
    store = Store(str(tmp_path / "new"), make=True)
    assert fleet("report", "--store", str(tmp_path / "new")) == "FLEET: no job\n"
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = command_line.execute("fleet", "report", "--store", str(tmp_path / "new"))
    assert (done.returncode, b"pip install 'nccl-inspect[fleet]'" in done.stderr) == (2, True)
    (tmp_path / "new" / "fleet.json").write_text('{"schema": "nccl-inspect-fleet-store/9"}')
    assert (
        b"add the logs to a new store"
        in command_line.execute("fleet", "report", "--store", str(tmp_path / "new")).stderr
    )
    assert store.batches() == []


def test_jobs_without_a_date_are_counted_and_days_without_jobs_are_gaps(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    undated = re.sub(rb"(?m)^\[2026[^\]]*\] ", b"", log(1))
    assert command_line.execute("fleet", "add", "--store", store, data=undated).stdout.startswith(b"1 job added")
    assert rows(store, "SELECT name, logs, start, day FROM job") == [
        {"name": "<stdin>", "logs": ["<stdin>"], "start": None, "day": None}
    ]
    assert (tmp_path / "s" / "job" / "day=undated").is_dir()
    assert "left out by --since: 0 older, 1 without a date" in fleet("report", "--store", store, "--since", "7d")
    for number in (2, 3, 9):
        (tmp_path / f"{number}.log").write_bytes(log(number))
        fleet("add", str(tmp_path / f"{number}.log"), "--store", store)
    document = json.loads(fleet("report", "--store", store, "--format", "json", "--since", "1d"))
    assert not list(close_schema("nccl-inspect-fleet-1").iter_errors(document))
    assert (document["jobs"], document["left_out"]) == (1, {"older": 2, "undated": 1})
    document = report.make_report(Store(store))
    assert (document["jobs"], document["undated"], len(document["days"])) == (4, 1, 3)
    page = FORMATS["html"].render(document, Style())
    assert page.count("<polyline") == 4  # two trends, each of the third and fourth, and of the tenth
    assert "without a date, and in no trend: 1" in page
    for since in ("0d", "-1d", "d", "99999d", "7"):
        done = command_line.execute("fleet", "report", "--store", store, "--since", since)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_a_job_has_the_date_of_the_few_lines_that_have_one(tmp_path: Path) -> None:
    sample = ROOT / "sample_logs" / "efa-provider-missing-socket-fallback" / "job.log"
    fleet("add", str(sample), "--store", str(tmp_path))
    assert rows(tmp_path, "SELECT CAST(start AS VARCHAR) AS start, clock FROM job") == [
        {"start": "2026-11-20 23:11:30", "clock": "lines"}
    ]


def test_a_log_is_the_same_when_it_is_compressed_and_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(log(1))
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(log(1)))
    store = str(tmp_path / "s")
    fleet("add", str(tmp_path / "a.log"), "--store", store)
    assert fleet("add", str(tmp_path / "a.log.gz"), "--store", store) == "0 jobs added; 1 log already there\n"
    (broken,) = Path(store, "rank").rglob("*.parquet")
    broken.write_text("x")
    done = command_line.execute("fleet", "report", "--store", store)
    assert (done.returncode, f"delete {broken.name} from every table".encode() in done.stderr) == (2, True), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "background"), [(11, 0.05), (11, 0.2), (12, 0.05), (12, 0.2)])
def test_faults_among_a_thousand_hosts(tmp_path: Path, seed: int, background: float) -> None:
    simulated = simulate_fleet.Fleet(seed, 1000, background, most=64)
    simulate_fleet.fill(str(tmp_path), simulated.jobs(20_000))
    document = report.make_report(Store(str(tmp_path)))
    assert {(one["kind"], one["name"]) for one in document["suspects"]} == simulated.truth.names


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_nothing_and_adds_nothing_twice(tmp_path: Path) -> None:
    """With jobs of several days, a batch after each few logs, and files that are merged meanwhile."""
    logs, store = tmp_path / "logs", str(tmp_path / "store")
    logs.mkdir()
    for number in range(120):
        (logs / f"job-{number:03}.log").write_bytes(log(number, hosts=1))
    script = (
        "import sys; from nccl_inspect.extras.fleet import adding, store\n"
        "from nccl_inspect.pipeline.options import Options\n"
        "adding._MOST_JOBS = 1; store.MOST_FILES = 2\n"
        "adding.add(adding.group_logs(sys.argv[2:])[0], adding.Target(sys.argv[1], Options()))"
    )
    chance = random.Random(4)
    seen: set[str] = set()
    files = sorted(map(str, logs.iterdir()))
    for kill in range(50):
        some = files[: 4 + 2 * kill]
        process = subprocess.Popen([sys.executable, "-c", script, store, *some], cwd=ROOT)
        deadline = time.monotonic() + 30
        while not Path(store, "fleet.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.5, 4.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        jobs = [row["job"] for row in rows(store, "SELECT job FROM job")]
        ranks = rows(store, "SELECT job, count(*) n FROM rank GROUP BY 1")
        assert len(jobs) == len(set(jobs)), "a job is there twice"
        assert seen <= set(jobs), "a job is lost"
        assert {row["job"]: row["n"] for row in ranks} == dict.fromkeys(jobs, 2), "a job is there in part"
        seen = set(jobs)
    subprocess.run([sys.executable, "-c", script, store, *files], cwd=ROOT, check=True)
    assert len(rows(store, "SELECT job FROM job")) == 120


@pytest.mark.slow
def test_several_processes_add_at_once(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"job-{number}.log").write_bytes(log(number, hosts=1))
    command = [sys.executable, "-m", "nccl_inspect", "fleet", "add", "--store", str(tmp_path / "s")]
    command += map(str, tmp_path.glob("*.log"))
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert rows(tmp_path / "s", "SELECT count(*) n FROM job") == [{"n": 12}]
    assert rows(tmp_path / "s", "SELECT count(*) n FROM rank") == [{"n": 24}]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_page_fits_a_phone_and_asks_for_nothing(tmp_path: Path, browser: Any) -> None:
    filled_store(tmp_path / "s", 600, 3, 0.1, hosts=12)
    fleet("report", "--store", str(tmp_path / "s"), "--by", "nic", "-o", str(tmp_path / "f.html"))
    page = browser.new_page(viewport={"width": 390, "height": 800})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    page.goto((tmp_path / "f.html").as_uri())
    assert (said, page.evaluate("document.documentElement.scrollWidth")) == ([], 390)
    assert page.locator("#trends polyline").count() >= 2
