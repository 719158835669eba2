"""Options and steps that several commands share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from nccl_inspect import artifacts, outputs, platforms, reading
from nccl_inspect.cli import ENDS, lead_nowhere, say
from nccl_inspect.discovery import settings_file
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.garbage import uncollected
from nccl_inspect.ingest import limits
from nccl_inspect.interruption import Interruption
from nccl_inspect.model.job import Job
from nccl_inspect.progress import Bar
from nccl_inspect.records import Record
from nccl_inspect.report import Style
from nccl_inspect.rules.engine import SEVERITIES, registered
from nccl_inspect.rules.facts import count

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Command = TypeVar("_Command", bound=Callable[..., Any])
FILE = click.Path(path_type=str)
"""The type of what names a file: shells complete it."""
_MAX_PROBLEMS = 20
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


def _packed(command: _Command, into: str, pack: Callable[..., object], **parts: object) -> _Command:
    """The command with some of its options as one argument.

    Args:
        command: that takes the argument.
        into: its name.
        pack: makes it of the options.
        parts: names of the options, with what stands for those that the command does not have.
    """

    @wraps(command)
    def packed(**options: Any) -> object:
        own = {name: options.pop(name, default) for name, default in parts.items()}
        return command(**options, **{into: pack(**own)})

    return cast(_Command, packed)


def inputs(command: _Command) -> _Command:
    """The argument LOG…, and how much packed ones may unpack to."""
    limit = click.option(
        "--max-unpacked",
        metavar="SIZE",
        expose_value=False,
        callback=_limit,
        help="Read packed logs until they unpack to this size, such as 200G. Default: 64G, and 2,000 times their size.",
    )
    return limit(click.argument("logs", nargs=-1, metavar="[LOG]...", type=FILE)(command))


def _limit(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    """Set the limit for this command, and for the processes that read for it."""
    if value is None:
        return
    limits.size(value)
    before = {limits.VARIABLE: os.environ.get(limits.VARIABLE, "")}
    os.environ[limits.VARIABLE] = value
    ctx.call_on_close(lambda: os.environ.update(before))


def _rule_names(_ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rules whose names begin like that, for the shell."""
    from click.shell_completion import CompletionItem  # only when a shell asks

    rules = [entry.rule for entry in registered() if entry.rule.name.startswith(incomplete)]
    return [CompletionItem(rule.name, help=rule.title) for rule in rules]


def _platform_names(_ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Machine types whose names begin like that, for the shell."""
    from click.shell_completion import CompletionItem  # only when a shell asks

    return [CompletionItem(name) for name in sorted(platforms.shipped()) if name.startswith(incomplete.lower())]


def rule_or_line(command: _Command) -> _Command:
    """The argument RULE|LINE; shells know the rules."""
    return click.argument("what", metavar="[RULE|LINE]", nargs=-1, shell_complete=_rule_names)(command)


def selecting(command: _Command) -> _Command:
    """The options that say which rules run."""
    for option in (
        click.option(
            "--ignore",
            multiple=True,
            metavar="RULE",
            shell_complete=_rule_names,
            help="Leave these rules out. May be repeated.",
        ),
        click.option(
            "--select",
            multiple=True,
            metavar="RULE",
            shell_complete=_rule_names,
            help="Run only these rules: name, glob or category. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def failing(words: str) -> Callable[[_Command], _Command]:
    """The option that says which findings make the exit status."""
    return click.option(
        "--fail-on",
        type=click.Choice(("error", "warning", "info", "never")),
        default="never",
        show_default=True,
        help=words,
    )


def choosing(command: _Command) -> _Command:
    """The options that say which rules run, and which findings make the exit status."""
    words = "Exit with status 1 when there is a finding of this severity or a higher one, or the job failed."
    return failing(words)(selecting(command))


def status(job: Job, fail_on: str = "never") -> int:
    """The exit status of what was asked for: see :func:`gate`; 0 where findings do not matter."""
    if fail_on == "never":
        return INTERRUPTED if job.partial else 0
    limit = SEVERITIES.index(fail_on)
    severe = any(SEVERITIES.index(finding.severity) >= limit for finding in job.findings)
    return gate(severe or job.verdict == "failed", job)


def gate(closed: bool, *jobs: Job) -> int:
    """The exit status where somebody relies on it: 130 after an interruption, 1 when something is wrong.

    Where nothing is, it is 3 while a part of the input could not be read: what is wrong may stand there.
    """
    if any(job.partial for job in jobs):
        return INTERRUPTED
    unread = any(source.problem for job in jobs for source in job.sources)
    return 1 if closed else NoInputError.exit_code if unread else 0


def machine(command: _Command) -> _Command:
    """The options that say what the job ran on, and where settings for all jobs stand (:func:`settled`).

    Together with those that say which rules run they become the argument ``options``.
    """
    command = _packed(command, "options", reading.Options, platform=None, topologies=(), select=(), ignore=())
    for option in (
        click.option(
            "--no-config", is_flag=True, expose_value=False, callback=_remember, help="Take no settings from a file."
        ),
        click.option(
            "--config",
            metavar="FILE",
            type=FILE,
            expose_value=False,
            callback=_remember,
            help="Settings. Default: nccl-inspect.toml here, or in the nearest folder above.",
        ),
        click.option(
            "--platform",
            metavar="NAME",
            shell_complete=_platform_names,
            help="Machine type, such as p5.48xlarge, where the log does not name it.",
        ),
        click.option(
            "--topology",
            "topologies",
            multiple=True,
            metavar="FILE",
            type=FILE,
            help="What joins GPUs and NICs: output of 'nvidia-smi topo -m', or the XML that NCCL writes to "
            "NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def _remember(ctx: click.Context, option: click.Parameter, value: object) -> None:
    """Keep an option for :func:`settled`, so that commands need not hand it on."""
    ctx.meta[f"{__name__}.{option.name}"] = value


def settled(options: reading.Options) -> reading.Options:
    """The options of the present command, completed once by the settings file; one that was found is told on stderr.

    Raises:
        NcclInspectError: there is something wrong with the file.
    """
    meta = click.get_current_context().meta
    named, unwanted = meta.get(f"{__name__}.config"), meta.get(f"{__name__}.no_config")
    if named and unwanted:
        raise click.UsageError("--config and --no-config exclude each other; leave one out")
    if options.config or unwanted or not (path := Path(named) if named else settings_file(Path.cwd())):
        return options
    if not named:
        say(f"settings from {path} (--no-config leaves them out)")
    from nccl_inspect import configuration  # only where there is a file

    return configuration.completed(options, path)


def judging(command: _Command) -> _Command:
    """The options that say how a job is read and judged."""
    jobs = click.option(
        "--jobs",
        type=click.IntRange(1),
        expose_value=False,
        callback=_remember,
        metavar="N",
        help="Read files in N processes. Default: one for each processor where logs are large.",
    )
    cluster = click.option(
        "--cluster",
        metavar="ADDRESS",
        expose_value=False,
        callback=_remember,
        help="Read files and URLs with the workers of this Dask cluster: tcp://HOST:8786, or its scheduler file.",
    )
    progress = click.option(
        "--progress/--no-progress",
        default=None,
        expose_value=False,
        callback=_remember,
        help="Show progress on stderr. Default: long inputs on a terminal.",
    )
    return jobs(cluster(progress(machine(command))))


def looks(command: _Command) -> _Command:
    """The option that says how a report looks."""
    return click.option(
        "--no-color", is_flag=True, help="No colours, also on a terminal (as does the variable NO_COLOR)."
    )(command)


def output(command: _Command) -> _Command:
    """The options that say where a report goes and how it looks; they become the argument ``out``."""
    words = "Write to FILE instead of standard output."
    # It is read first: its suffix may name the format.
    target = click.option("-o", "--output", metavar="FILE", type=FILE, default="-", is_eager=True, help=words)
    return looks(target(_packed(command, "out", _output, output="-", no_color=False, verbose=False)))


def verbose(words: str) -> Callable[[_Command], _Command]:
    """The option that makes a report tell more."""
    return click.option("-v", "--verbose", is_flag=True, help=words)


def given(logs: tuple[str, ...]) -> list[str]:
    """The inputs, or standard input when something is piped in.

    Raises:
        NcclInspectError: nothing is given and standard input is a terminal.
    """
    if logs:
        return list(logs)
    if sys.stdin is None or sys.stdin.isatty():
        name = click.get_current_context().info_name
        raise NcclInspectError("no input", f"name a log file, or pipe one in: kubectl logs POD | nccl-inspect {name}")
    return ["-"]


def read(logs: tuple[str, ...], options: reading.Options, *, tells_runs: bool = False) -> Job:
    """Read and judge the inputs, with a progress bar on stderr where that helps; say there what could not be read.

    Ctrl-C ends the reading: the job is then partial, and :data:`INTERRUPTED` is the exit status.

    Args:
        logs: as they were given.
        options: likewise.
        tells_runs: the report tells itself of earlier runs in the log; else they are told on stderr.
    """
    judge = reading.Judge(settled(options))  # what is wrong with the options is said before a long log is read
    names, beside = artifacts.parted(given(logs))
    meta = click.get_current_context().meta
    jobs, cluster = meta.get(f"{__name__}.jobs"), meta.get(f"{__name__}.cluster")
    if jobs and cluster:
        raise click.UsageError("--jobs and --cluster exclude each other; leave one out")
    with uncollected(for_good=click.get_current_context().find_root().obj is ENDS):
        with Bar(meta.get(f"{__name__}.progress")) as bar, Interruption() as interruption:
            fold = reading.fold(names, bar.update if bar.wanted else None, interruption, jobs, cluster)
        job = judge(fold, beside=beside)
    for misfit in judge.misfits(job):
        say(f"warning: {misfit}")
    for problem in artifacts.problems(job.artifacts):
        say(problem)
    problems = [source.problem for source in job.sources if source.problem]
    for problem in problems[:_MAX_PROBLEMS]:
        say(problem)
    if len(problems) > _MAX_PROBLEMS:
        say(f"{len(problems) - _MAX_PROBLEMS} more inputs could not be read")
    if job.earlier_runs and not tells_runs:
        runs = count(len(job.earlier_runs), "earlier run")
        say(f"{runs} in the log left out, the last of them: {job.earlier_runs[-1]}; give the log of one to see it")
    return job


def style(no_color: bool, target: str, verbose: bool = False) -> Style:
    """The style of a report: colours on a terminal only."""
    terminal = target == "-" and sys.stdout.isatty()
    color = terminal and not no_color and "NO_COLOR" not in os.environ
    return Style(width=columns(target, 100), color=color, verbose=verbose)


def columns(target: str, usual: int) -> int:
    """The width of what is written: that of the terminal, the usual one in a file and where no terminal is known."""
    return shutil.get_terminal_size((usual, 24)).columns if target in outputs.STDOUT else usual


def end_in_silence() -> NoReturn:
    """End: the reader of standard output has enough (| head)."""
    lead_nowhere(sys.stdout)
    sys.exit(0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Output(Record):
    """Where a report goes, and how it looks."""

    target: str
    style: Style

    def write(self, text: str) -> None:
        """Write a report to a file or to standard output.

        Raises:
            NcclInspectError: it cannot be written.
        """
        write_lines(text.removesuffix("\n").split("\n"), self.target)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines as they come.

        Raises:
            NcclInspectError: they cannot be written.
        """
        write_lines(lines, self.target)


def _output(output: str, no_color: bool, verbose: bool) -> Output:
    return Output(output, style(no_color, output, verbose))


def write_lines(lines: Iterable[str], target: str) -> None:
    """Write lines as they come, to a file or to standard output.

    Raises:
        NcclInspectError: they cannot be written.
    """
    if target not in outputs.STDOUT:
        outputs.lines(target, "-o", lines)
        return
    try:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
    except BrokenPipeError:
        end_in_silence()
    except OSError as error:
        lead_nowhere(sys.stdout)
        raise NcclInspectError(
            f"standard output: {error.strerror}", "make room there, or name a file with -o"
        ) from None
