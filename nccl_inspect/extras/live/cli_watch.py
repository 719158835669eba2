"""``nccl-inspect watch``: the verdict as soon as a running job is up, then each new finding."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from nccl_inspect import artifacts, report
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.cli.manual import FOUND
from nccl_inspect.extras.live import watch as watching
from nccl_inspect.ingest.sources.files import STDIN
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.report import Style, digest, text
from nccl_inspect.report.words import block, paint, verdict_color
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
        with PROCESS as interruption, watching.Asker(ras or "", interval) as asker:
            for piece in interruption.until(pieces):
                resumed = [event for answer in asker.take_found() for event in watch.take(answer)]
                if isinstance(piece, watching.Note):
                    screen.note(piece.text)
                    if piece.begins:
                        watch.begin()
                elif piece is not None:
                    watch.feed(piece)
                news = [*resumed, *watch.look()]
                screen.print_news(news)
                screen.status(watch)
                if alarm := watching.find_alarm(news, exit_on):
                    break
            else:
                news, job = watch.end(interruption.happened)
                screen.print_news(news)
                alarm = None if interruption.happened else watching.find_alarm(news, exit_on)
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
