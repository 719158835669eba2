"""A watch that ends a bad job, and one that tells Prometheus how it goes."""

from __future__ import annotations

import re
import socket
import urllib.request
from pathlib import Path

import pytest
import sample_data
from command_line import invoke
from watching import FAST, HANG, HEALTHY, PATIENCE, Watched, fd, read_until, started, write

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.live import exit_conditions, metrics
from nccl_inspect.live.watch import Stall

DEGRADED = (sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log").read_bytes()
DEAD = (sample_data.FOLDER / "peer-killed" / "job.log").read_bytes()
BEGUN = b"".join(line for line in HANG.splitlines(keepends=True) if b" NCCL " in line)
"""Three of four ranks wait, and nobody says that they were ended."""


def hook(folder: Path) -> str:
    """A command that notes each time it is run, with its variables and one that the shell expands."""
    return f'echo "$NCCLINSPECT_VERDICT|$NCCLINSPECT_RULE|$NCCLINSPECT_RANKS|$HOME" >> {folder}/runs; echo said; exit 7'


@pytest.mark.parametrize(
    ("data", "conditions", "told"),
    [
        (DEAD, ["error"], "failed|peer-death|"),
        (DEAD, ["warning"], "failed|peer-death|"),
        (DEGRADED, ["error", "warning"], "degraded|p2p-disabled-by-env|0-3"),
        (BEGUN, ["stall"], "unknown||2"),
    ],
)
def test_the_watch_ends_by_itself_and_runs_the_command_once(
    data: bytes, conditions: list[str], told: str, tmp_path: Path
) -> None:
    asked = [word for name in conditions for word in ("--exit-on", name)]
    with started(*FAST, "--stall", "0.4", *asked, "--on-exit", hook(tmp_path)) as process:
        write(process, data)
        assert process.wait(PATIENCE) == 1
        assert process.stderr is not None
        said = process.stderr.read().decode()
    (run,) = (tmp_path / "runs").read_text(encoding="utf-8").splitlines()
    assert run.startswith(told)
    assert not run.endswith("$HOME")
    assert "said\n" in said, "what the command prints does not mix with the report"
    assert re.search(r"^nccl-inspect: stopped by --exit-on: (error|warning|stall)[a-z0-9 -]*: ", said, re.MULTILINE)
    assert said.endswith("nccl-inspect: the command of --on-exit ended with status 7\n")


@pytest.mark.parametrize("conditions", [["error"], ["error", "warning", "stall"]])
def test_a_healthy_job_is_left_alone(conditions: list[str], tmp_path: Path) -> None:
    asked = [word for name in conditions for word in ("--exit-on", name)]
    with started(*FAST, "--stall", "0.4", *asked, "--on-exit", hook(tmp_path)) as process:
        write(process, HEALTHY)
        read_until(fd(process.stdout), b"OK: ")
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert not (tmp_path / "runs").exists()


def test_a_warning_does_not_end_what_ends_on_errors(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(DEGRADED)
    for condition, status in (("error", 0), ("warning", 1)):
        assert invoke("watch", str(log), "--until-end", "--exit-on", condition).return_value == status


def test_a_command_needs_to_know_when() -> None:
    with pytest.raises(Exception, match="--on-exit needs --exit-on"):
        invoke("watch", "--on-exit", "true")


def test_what_was_not_told_ends_nothing() -> None:
    watched = Watched()
    watched.watch.feed(b"".join(DEGRADED.splitlines(keepends=True)[:125]))
    assert exit_conditions.alarm(watched.watch.look(), ("warning",)) is None


def test_the_end_after_a_stall_names_who_is_missing() -> None:
    watched = Watched()
    watched.after(0, BEGUN)
    assert watched.after(61)
    news, job = watched.watch.end(interrupted=True)
    assert not [one for one in news if isinstance(one, Stall)], "the verdict says it"
    assert job.verdict == "failed"
    assert job.waiting is not None
    assert job.waiting.missing == [2]
    assert job.head is not None
    assert "rank 2 " in job.head.headline


def test_a_variable_that_is_too_long_for_a_command_is_empty(tmp_path: Path) -> None:
    hosts = ",".join(f"gpu-node-{number:06}.cluster.example.com" for number in range(5000))
    why = exit_conditions.Alarm("error", "failed", "it failed", hosts=hosts)
    assert exit_conditions.run(f'echo "$NCCLINSPECT_VERDICT|$NCCLINSPECT_HOSTS" > {tmp_path}/runs', why) == 0
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "failed|\n"


def test_the_status_is_that_of_the_alarm_where_there_is_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("subprocess.run", fail)
    log = str(sample_data.FOLDER / "peer-killed" / "job.log")
    result = invoke("watch", log, "--until-end", "--exit-on", "error", "--on-exit", "true")
    assert result.return_value == 1
    assert "the command of --on-exit was not run: No such file or directory" in result.stderr


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def fetched(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


def value(text: str, metric: str) -> float:
    (found,) = re.findall(rf"^nccl_inspect_{re.escape(metric)} (\S+)$", text, re.MULTILINE)
    return float(found)


def test_metrics_are_served_while_the_log_grows_and_no_longer() -> None:
    port = free_port()
    with started(*FAST, "--stall", "0.4", "--metrics", str(port)) as process:
        write(process, BEGUN)
        read_until(fd(process.stdout), b"last step")
        text = fetched(port)
        assert value(text, 'verdict{verdict="unknown"}') == 1
        assert (value(text, "watch_running"), value(text, "watch_told")) == (1, 0)
        assert value(text, "watch_stalled") == 1
        assert (value(text, "ranks_seen"), value(text, "world_size")) == (3, 4)
        assert value(text, 'watch_lines{kind="nccl"}') > 20
        first = value(text, "watch_quiet_seconds")
        assert 0 < first < value(fetched(port), "watch_quiet_seconds")
        named = fetched(port, "/metrics?name[]=nccl_inspect_watch_stalled")
        assert re.findall(r"^nccl_inspect_\w+", named, re.MULTILINE) == ["nccl_inspect_watch_stalled"]
        process.communicate(timeout=PATIENCE)
    with pytest.raises(OSError, match="refused"):
        fetched(port)


def test_after_the_verdict_the_metrics_are_those_of_summarize(tmp_path: Path) -> None:
    log, file = tmp_path / "job.log", tmp_path / "watch.prom"
    log.write_bytes(DEGRADED)
    assert invoke("watch", str(log), "--until-end", "--metrics", str(file)).return_value == 0
    text = file.read_text(encoding="utf-8")
    whole = invoke("summarize", str(log), "--format", "prometheus").stdout
    assert set(whole.splitlines()) <= set(text.splitlines())
    assert value(text, "watch_running") == 0
    assert {entry.name for entry in tmp_path.iterdir()} == {"job.log", "watch.prom"}


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("99999", "choose another port"),
        ("/nowhere/x.prom", "folder given with --metrics"),
        ("job.log", "would be lost"),
    ],
)
def test_metrics_that_cannot_be_published_are_an_error_at_once(
    target: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.log").write_bytes(HEALTHY)
    with pytest.raises(NcclInspectError) as error:
        invoke("watch", "job.log", "--until-end", "--metrics", target)
    assert says in str(error.value)
    assert Path("job.log").read_bytes() == HEALTHY


def test_metrics_that_cannot_be_written_any_more_do_not_end_the_watch(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    watch = Watched().watch
    with metrics.meter(str(folder / "x.prom"), 0) as meter:
        assert meter.update(watch) == ""
        (folder / "x.prom").unlink()
        folder.rmdir()
        assert "folder given with --metrics" in meter.update(watch)
        assert meter.update(watch) == "", "said once"
        folder.mkdir()
        assert meter.update(watch) == ""
        assert (folder / "x.prom").exists()


@pytest.mark.parametrize("target", ["127.0.0.1:0", "localhost:0", ":0", "0"])
def test_addresses(target: str) -> None:
    with metrics.meter(target, 1) as meter:
        meter.update(Watched().watch)
