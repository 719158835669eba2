"""``nccl-inspect watch``: the verdict as soon as a running job is up, then each new finding."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from wsgiref.simple_server import WSGIServer

import click
from prometheus_client import Gauge, make_wsgi_app, start_http_server

from nccl_inspect import artifacts, report
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.cli.manual import FOUND
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.live import watch as watching
from nccl_inspect.ingest.sources.files import STDIN
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.report import Style, digest, prometheus, text
from nccl_inspect.report.words import block, paint, verdict_color
from nccl_inspect.util import atomic_files
from nccl_inspect.util.interruption import PROCESS
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count

_EXAMPLES = """
Examples:
  nccl-inspect watch job.log                        follow the file, even if it is replaced
  nccl-inspect watch job.log /shared/dumps/         read flight recorder dumps on a stall and at the end
  kubectl logs -f -l job-name=llama --prefix --max-log-requests=64 | nccl-inspect watch
  tail -F rank*.log | nccl-inspect watch --stall 120
  torchrun train.py 2>&1 | tee job.log | nccl-inspect watch --fail-on error
  nccl-inspect watch job.log --exit-on error --exit-on stall --on-exit 'scancel 4711'
  nccl-inspect watch job.log --exit-on action=drain-host
  nccl-inspect watch job.log --ras localhost:28028  on a host of the job: who lags while it runs
  nccl-inspect watch job.log --metrics 9400         for Prometheus: http://localhost:9400/metrics

Exit status: 1 --exit-on or --fail-on matched, or the job failed and one of them was given.
"""
_Command = TypeVar("_Command", bound=Callable[..., Any])
_TICK = 0.25  # seconds between updates of the status line


def _seconds(name: str, default: float, words: str) -> Callable[[_Command], _Command]:
    kind = click.FloatRange(min=0, min_open=True)
    return click.option(name, type=kind, default=default, show_default=True, metavar="SECONDS", help=words)


@click.command(epilog=_EXAMPLES, short_help="Print the verdict as soon as a job is up, then each new finding.")
@click.argument("log", required=False, metavar="[LOG]", type=shared.FILE)
@click.argument("evidence", nargs=-1, metavar="[EVIDENCE]...", type=shared.FILE)
@click.option("--until-end", is_flag=True, help="Stop at the current end of LOG instead of following it.")
@_seconds(
    "--interval", 10, "Time between status lines if stderr is not a terminal; the job is judged 4 times as often."
)
@_seconds("--settle", 5, "Stop waiting for connections after this much idle time.")
@_seconds("--stall", 60, "Warn when a communicator makes no progress for this time; again after 2, 4, 8 times as long.")
@click.option(
    "--exit-on",
    "exit_on",
    type=click.Choice(watching.CONDITIONS),
    multiple=True,
    metavar="CONDITION",
    help="End with status 1 as soon as a finding of this severity or higher is reported or the job fails (error, "
    "warning), a communicator stalls (stall), or a finding needs an action (action=drain-host, action=restart, …). "
    "May be repeated.",
)
@click.option(
    "--on-exit",
    metavar="COMMAND",
    help="Run COMMAND once with 'sh -c' when --exit-on ends the watch. "
    f"Its environment has {watching.PREFIX}VERDICT, …_REASON, …_RULE, …_RANKS, …",
)
@click.option(
    "--ras",
    metavar="HOST:PORT",
    help="Ask NCCL's RAS (2.24 and later) at this address every --interval, and name the ranks that lag. It listens in "
    "each process of the job: NCCL_RAS_ADDR, by default localhost:28028.",
)
@click.option(
    "--metrics",
    metavar="PORT|FILE",
    type=shared.FILE,
    help="Publish Prometheus metrics: over HTTP on a port of localhost or on ADDRESS:PORT, or in FILE.",
)
@shared.gate_options
@shared.platform_options
@shared.color_option
def command(
    log: str | None,
    evidence: tuple[str, ...],
    until_end: bool,
    interval: float,
    settle: float,
    stall: float,
    exit_on: tuple[str, ...],
    on_exit: str | None,
    ras: str | None,
    metrics: str | None,
    fail_on: str,
    options: reading.Options,
    no_color: bool,
) -> int:
    """Watch a job start: print the verdict as soon as its communicators are up, then each new finding.

    LOG is a file, which is followed until Ctrl-C; without it, or with -, standard input is read to its end. A
    status line on stderr shows how far the job got. If ranks wait for others, the missing ranks are named.
    The final verdict is printed at the end; Ctrl-C ends with status 130. --exit-on makes it a guard that ends a bad
    job. EVIDENCE are folders and files, such as flight recorder dumps: they are read when the job makes no progress
    and at the end, and need not exist before.
    """
    if on_exit is not None and not exit_on:
        raise click.UsageError("--on-exit needs --exit-on: choose what ends the watch")
    if ras and not ras.rpartition(":")[2].isdecimal():
        raise click.UsageError(f"--ras {ras}: needs HOST:PORT, such as localhost:28028")
    if metrics and log and os.path.realpath(metrics) == os.path.realpath(log):
        raise NcclInspectError(f"{metrics}: is the log, which would be lost", "choose another name for --metrics")
    options = shared.with_settings_file(options)
    judge = reading.Judge(options)
    (name,) = shared.inputs_or_stdin((log,) if log else ())
    source = STDIN if name == "-" else name
    place = _Beside(evidence, name) if evidence else None
    beside, timing = place.read if place else None, watching.Timing(interval, settle, stall)
    watch = watching.Watch(judge, timing, source, beside=beside, asks=bool(ras))
    output: int | None = None
    with suppress(AttributeError, OSError, ValueError):
        output = sys.stdout.fileno()
    waiter = watching.Waiter(min(_TICK, interval / 4), output)
    pieces = watching.stream(0, waiter) if name == "-" else watching.follow(Path(name), waiter, until_end)
    screen = _Screen(shared.choose_style(no_color, "-"), interval)
    alarm: watching.Alarm | None = None
    job: Job | None = None
    try:
        with Meter(metrics, interval) as meter, PROCESS as interruption, watching.Asker(ras or "", interval) as asker:
            meter.update(watch)
            for piece in interruption.until(pieces):
                resumed = [event for answer in asker.take_found() for event in watch.take(answer)]
                if isinstance(piece, watching.Note):
                    screen.note(piece.text)
                    if piece.begins:
                        watch.begin()
                elif piece is not None:
                    watch.feed(piece)
                news = [*resumed, *watch.look()]
                problem = meter.update(watch, is_news=bool(news))  # first: whoever reads the news may ask for them
                screen.print_news(news)
                screen.status(watch)
                screen.note(problem)
                if alarm := watching.find_alarm(news, exit_on):
                    break
            else:
                news, job = watch.end(interruption.happened)
                screen.print_news(news)
                alarm = None if interruption.happened else watching.find_alarm(news, exit_on)
            screen.note(meter.update(watch, runs=False))
    except BrokenPipeError:
        shared.exit_quietly()
    finally:
        screen.clear()
    for words in place.problems(job) if place else ():
        print_stderr(words)
    if alarm:
        _end_on_alarm(alarm, on_exit)
    return shared.status(job, fail_on) if job and not alarm else FOUND


class _Beside:
    """The evidence beside the watched log, which must not be a second log."""

    def __init__(self, names: tuple[str, ...], log: str) -> None:
        self._names, self._log = list(names), log
        self._inventory = artifacts.NOTHING
        files = [name for name in names if Path(name).is_file()]
        logs = artifacts.beside(files).logs if files else []
        if logs:
            several = f"tail -F {log} {logs[0].name} | nccl-inspect watch" if log != "-" else "tail -F LOG LOG | …"
            raise click.UsageError(f"{logs[0].name} is a log, and only one log can be watched; for several: {several}")

    def read(self) -> artifacts.Inventory:
        self._inventory = artifacts.beside(self._names)
        return self._inventory

    def problems(self, job: Job | None) -> Iterator[str]:
        yield from digest.list_unused_evidence(job.artifacts if job else self._inventory.evidence)
        logs, watched = self._inventory.logs, os.path.realpath(self._log)
        yield from (f"{log.name}: {log.problem.what}" for log in logs if log.problem)
        others = [log.name for log in logs if not log.problem and os.path.realpath(log.name) != watched]
        if others:
            hint = f"nccl-inspect summarize {' '.join(self._names)}"
            yield f"{count(len(others), 'log')} beside it ({others[0]}) not read; read all when the job is over: {hint}"


def _end_on_alarm(alarm: watching.Alarm, command: str | None) -> None:
    print_stderr(f"stopped by --exit-on: {f'{alarm.condition} {alarm.rule}'.rstrip()}: {alarm.reason}")
    try:
        if command and (status := watching.run_command(command, alarm)):
            print_stderr(f"the command of --on-exit ended with status {status}")
    except OSError as error:
        print_stderr(f"the command of --on-exit was not run: {error.strerror or error}")


# Metrics

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]*):)?(?P<port>\d{1,5})")
_OPTION = "--metrics"
_REBUILT = 1.0  # seconds between two sets of metrics that are served: those of a large job take some time to make


class Meter:
    """Publishes the metrics of a watch: on a port, on ``ADDRESS:PORT``, or else in a file that is whole at any moment.

    A server answers with what is known now; no request waits for the job to be judged. A file is written when there are
    news, and else after an interval.
    """

    def __init__(self, target: str | None, seconds: float) -> None:
        self._target, self._seconds, self._next = target, seconds, 0.0
        self._problem: str | None = None  # that of the last writing; None before the first
        self._server: WSGIServer | None = None
        if match := _ADDRESS.fullmatch(target or ""):
            self._seconds = _REBUILT
            host = "127.0.0.1" if match["host"] is None else match["host"].strip("[]") or "0.0.0.0"  # noqa: S104 - :9400
            try:
                self._server, _ = start_http_server(int(match["port"]), host, prometheus.Metrics().registry)
            except (OSError, OverflowError) as error:
                why = getattr(error, "strerror", None) or error
                raise NcclInspectError(f"{_OPTION} {target}: {why}", "choose another port or address") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def update(self, watch: watching.Watch, is_news: bool = False, runs: bool = True) -> str:
        """Take the metrics of a watch when it is time for that, when there are news, and when it runs no longer.

        Return what is wrong since the last time, for a watch is worth more than its metrics; but the first ones must be
        written.
        """
        now = time.monotonic()
        if self._target is None or (not is_news and runs and now < self._next):
            return ""
        self._next = now + self._seconds
        metrics, before = collect_metrics(watch, runs), self._problem
        if self._server:
            self._server.set_app(make_wsgi_app(metrics.registry))
            return ""
        try:
            atomic_files.write_lines(self._target, _OPTION, metrics.text().splitlines())
            self._problem = ""
        except NcclInspectError as error:
            if before is None:
                raise
            self._problem = str(error)
        return self._problem if self._problem != before else ""


def collect_metrics(watch: watching.Watch, runs: bool) -> prometheus.Metrics:
    """Return the metrics of a watch: those of the job since its first verdict, and how the watch goes."""
    job, known = watch.reported, watch.job
    if job:
        made = prometheus.collect_metrics(job)
    else:  # what is known of a job that begins: its findings may be those of a moment
        made = prometheus.Metrics()
        made.verdict("unknown")
        if known and known.world_size is not None:
            made.add("world_size", known.world_size)
        made.add("ranks_seen", len(known.ranks_seen) if known else 0)
    made.add("watch_running", runs)
    made.add("watch_told", bool(job))
    made.add("watch_seconds", time.monotonic() - watch.begun)
    made.add("watch_stalled", watch.is_stalled)
    (lines, nccl_lines), (complete, number) = watch.count_lines(), watch.communicators
    made.add("watch_lines", {("all",): lines, ("nccl",): nccl_lines})
    made.add("watch_communicators", {("complete",): complete, ("incomplete",): number - complete})
    fed, now = watch.fed, time.monotonic()
    quiet = Gauge("nccl_inspect_watch_quiet_seconds", "Seconds since the last line.", registry=made.registry)
    quiet.set_function(lambda: (time.monotonic() if runs else now) - fed)  # of the moment when it is asked for
    return made


class _Screen:
    """Writes news to stdout and the status to stderr: in place on a terminal, else a line per interval."""

    def __init__(self, style: Style, interval: float) -> None:
        self._style = style
        self._in_place = sys.stderr is not None and sys.stderr.isatty()
        self._pause = _TICK if self._in_place else interval
        self._next = time.monotonic() + (0 if self._in_place else interval)
        self._shown = self._progress = ""

    def print_news(self, news: Iterable[watching.News]) -> None:
        lines = [line for event in news for line in _words(event, self._style)]
        if lines:
            self.clear()
            shared.Output().write_lines(lines)

    def note(self, words: str) -> None:
        """Write a note about the input, if there is any."""
        if words:
            self.clear()
            self._write(f"nccl-inspect: {escape_controls(words)}\n")

    def status(self, watch: watching.Watch) -> None:
        """Write the status if it is due and, off a terminal, if it changed."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._pause
        begin, progress = _progress(watch)
        if self._in_place:
            words = cut(f"{begin}, {progress}", max(self._style.width - 1, 20))
            self._write("\r" + words.ljust(len(self._shown)))
            self._shown = words
        elif progress != self._progress:
            self._progress = progress
            self._write(f"nccl-inspect: {begin}, {progress}\n")

    def clear(self) -> None:
        if self._shown:
            self._write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _write(self, words: str) -> None:
        try:
            click.echo(words, err=True, nl=False)
        except BrokenPipeError:  # the verdict may still be wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _progress(watch: watching.Watch) -> tuple[str, str]:
    (lines, nccl_lines), (complete, number), job = watch.count_lines(), watch.communicators, watch.job
    begin = f"{time.monotonic() - watch.begun:.0f} s, {lines:,} line{'' if lines == 1 else 's'}"
    if not nccl_lines:
        return begin, "none of NCCL yet"
    ranks = f"ranks {len(job.ranks_seen) if job else 0}/{(job and job.world_size) or '?'}"
    last = f"last: {watch.last}" if watch.last else ""
    verdict = watch.reported.verdict.upper() if watch.reported else ""
    return begin, ", ".join(
        filter(None, (ranks, f"communicators {complete}/{number} complete", last, watch.ras, verdict))
    )


def _words(news: watching.News, style: Style) -> Iterator[str]:
    match news:
        case watching.Verdict(job):
            yield from report.load("text").render(job, style).splitlines()
        case watching.End(job):
            yield from text.headline(job, style)
            for label, words in digest.evidence_rows(job):
                yield from block(label, escape_controls(words), style)
        case watching.Turn(before, job):
            now = paint(job.verdict.upper(), verdict_color(job.verdict), style)
            yield f"the verdict is {now} now (it was {before.upper()})"
        case watching.Change("new", finding, job):
            yield from text.brief(finding, job, style)
        case watching.Change(how, finding, _, before):
            severity = paint(finding.severity.upper(), finding.severity, style)
            named = paint(finding.rule, "bold", style)
            is_now = {"gone": "is gone", "back": "is back"}.get(how, f"is {severity} now (it was {before.upper()})")
            yield f"{named} {is_now}" if how == "severity" else f"{severity} {named} {is_now}"
            if how != "gone":
                yield from block("what", escape_controls(finding.summary), style)
        case watching.Stall(what, rows):
            first, *rest = block("", escape_controls(f"STALLED: {what}"), style, indent=0, hang=0)
            yield from (first.replace("STALLED", paint("STALLED", "warning", style), 1), *rest)
            for label, words in rows:
                yield from block(label, escape_controls(words), style)
        case watching.Resumed(seconds):
            yield f"progress resumed after {seconds:.0f} s"
