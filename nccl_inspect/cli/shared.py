"""Options and steps that commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from nccl_inspect.cli import EXITS_AFTERWARDS, print_stderr, several, writing
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.ingest.sources import files, limits
from nccl_inspect.pipeline.options import Options
from nccl_inspect.util.discovery import settings_file
from nccl_inspect.util.gc_pause import uncollected
from nccl_inspect.util.interruption import PROCESS
from nccl_inspect.util.progress import Bar

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from nccl_inspect.model.job import Job

_Command = TypeVar("_Command", bound=Callable[..., Any])
FILE = click.Path(path_type=str, readable=False)
"""The type of file names: shells complete it. Whether a file can be read is left to its reader, who skips it if not."""
_MAX_PROBLEMS = 20
_PROGRESS = "Show progress on stderr. Default: long inputs on a terminal."


def _packed(command: _Command, into: str, pack: Callable[..., object], **parts: object) -> _Command:
    """The command with some of its options packed into one argument.

    Args:
        command: that takes the argument.
        into: the name of the argument.
        pack: makes the argument from the options.
        parts: names of the options, with defaults for those that the command lacks.
    """

    @wraps(command)
    def packed(**options: Any) -> object:
        own = {name: options.pop(name, default) for name, default in parts.items()}
        return command(**options, **{into: pack(**own)})

    return cast(_Command, packed)


def inputs(command: _Command) -> _Command:
    """Add LOG… and --max-unpacked."""
    limit = click.option(
        "--max-unpacked",
        metavar="SIZE",
        expose_value=False,
        callback=_limit,
        help="Limit on decompressed size, such as 200G. Default: 64G, and 2,000 times the compressed size.",
    )
    return limit(click.argument("logs", nargs=-1, metavar="[LOG]...", type=FILE)(command))


def _limit(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    """Set the limit for this command and its worker processes."""
    if value is None:
        return
    limits.size(value)
    before = {limits.VARIABLE: os.environ.get(limits.VARIABLE, "")}
    os.environ[limits.VARIABLE] = value
    ctx.call_on_close(lambda: os.environ.update(before))


def _rule_names(_ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions of a rule name, for the shell."""
    from click.shell_completion import CompletionItem  # only when a shell asks

    from nccl_inspect.judging.engine import registered

    rules = [entry.rule for entry in registered() if entry.rule.name.startswith(incomplete)]
    return [CompletionItem(rule.name, help=rule.title) for rule in rules]


def _platform_names(_ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions of a machine type, for the shell."""
    from click.shell_completion import CompletionItem  # only when a shell asks

    from nccl_inspect import platforms

    return [CompletionItem(name) for name in sorted(platforms.shipped()) if name.startswith(incomplete.lower())]


def rule_or_line(command: _Command) -> _Command:
    """Add RULE|LINE; shells complete the rules."""
    return click.argument("what", metavar="[RULE|LINE]", nargs=-1, shell_complete=_rule_names)(command)


def rules_option(name: str, *target: str, **about: Any) -> Callable[[_Command], _Command]:
    """An option that takes rules and may be repeated; shells complete them."""
    return click.option(name, *target, multiple=True, metavar="RULE", shell_complete=_rule_names, **about)


def rule_options(command: _Command) -> _Command:
    """Add --select and --ignore."""
    select = rules_option("--select", help="Run only these rules: name, glob or category. May be repeated.")
    return select(rules_option("--ignore", help="Skip these rules. May be repeated.")(command))


def fail_on_option(words: str) -> Callable[[_Command], _Command]:
    """Add --fail-on."""
    return click.option(
        "--fail-on",
        type=click.Choice(("error", "warning", "info", "never")),
        default="never",
        show_default=True,
        help=words,
    )


def gate_options(command: _Command) -> _Command:
    """Add --fail-on, --select and --ignore."""
    words = "Exit with status 1 if there is a finding of this severity or higher, or the job failed."
    return fail_on_option(words)(rule_options(command))


def status(job: Job, fail_on: str = "never") -> int:
    """The exit status of a report: see :func:`gate`; 0 if findings do not matter."""
    if fail_on == "never":
        return PROCESS.status if job.partial else 0
    from nccl_inspect.judging.engine import SEVERITIES  # a missing log is said before this is loaded

    limit = SEVERITIES.index(fail_on)
    severities = (
        *(finding.severity for finding in job.findings),
        *(standing.severity for standing in job.jobs if standing.severity),
    )
    severe = any(SEVERITIES.index(severity) >= limit for severity in severities)
    return gate(severe or job.verdict == "failed", job)


def gate(closed: bool, *jobs: Job) -> int:
    """The exit status of a gate: that of the signal after an interruption, 1 if something is wrong.

    Otherwise it is 3 if part of the input could not be read: the fault may be there.
    """
    if any(job.partial for job in jobs):
        return PROCESS.status
    unread = any(source.problem for job in jobs for source in job.sources)
    return 1 if closed else NoInputError.exit_code if unread else 0


def platform_options(command: _Command) -> _Command:
    """Add --platform, --topology, --config and --no-config (:func:`with_settings_file`).

    Together with the options for rules they become the argument ``options``.
    """
    command = _packed(
        command, "options", Options, platform=None, topologies=(), select=(), ignore=(), job=None, run=None
    )
    for option in (
        _kept("--no-config", is_flag=True, help="Ignore settings files."),
        _kept(
            "--config",
            metavar="FILE",
            type=FILE,
            help="Settings file. Default: nccl-inspect.toml here, or in the nearest parent folder.",
        ),
        click.option(
            "--platform",
            metavar="NAME",
            shell_complete=_platform_names,
            help="Machine type, such as p5.48xlarge, if the log does not name it.",
        ),
        click.option(
            "--topology",
            "topologies",
            multiple=True,
            metavar="FILE",
            type=FILE,
            help="Topology file: output of 'nvidia-smi topo -m', or the XML that NCCL writes to "
            "NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def _kept(name: str, **about: Any) -> Callable[[_Command], _Command]:
    """An option that is kept for later, so that commands need not pass it on."""
    return click.option(name, expose_value=False, callback=_remember, **about)


def _remember(ctx: click.Context, option: click.Parameter, value: object) -> None:
    ctx.meta[f"{__name__}.{option.name}"] = value


def with_settings_file(options: Options) -> Options:
    """The options of the current command, completed by the settings file, which is named on stderr.

    Raises:
        NcclInspectError: the file is invalid.
    """
    meta = click.get_current_context().meta
    named, unwanted = meta.get(f"{__name__}.config"), meta.get(f"{__name__}.no_config")
    if named and unwanted:
        raise click.UsageError("--config and --no-config exclude each other; omit one")
    if options.config or unwanted or not (path := Path(named) if named else settings_file(Path.cwd())):
        return options
    if not named:
        print_stderr(f"settings from {path} (--no-config ignores them)")
    from nccl_inspect.pipeline import configuration  # only if there is a file

    return configuration.completed(options, path)


def read_options(command: _Command) -> _Command:
    """Add the options for reading and judging a job."""
    jobs = _kept(
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Read files in N processes. Default: one per processor if logs are large.",
    )
    progress = _kept("--progress/--no-progress", default=None, help=_PROGRESS)
    return jobs(progress(several.job_options(platform_options(command))))


def progress_option(command: _Command) -> _Command:
    """Add --progress for a command that reads in its own way."""
    return click.option("--progress/--no-progress", default=None, help=_PROGRESS)(command)


def color_option(command: _Command) -> _Command:
    """Add --no-color."""
    return click.option(
        "--no-color",
        is_flag=True,
        help="Disable colors (same as the variable NO_COLOR; FORCE_COLOR enables them in pipes).",
    )(command)


def output_options(command: _Command) -> _Command:
    """Add --output and --no-color; they become the argument ``out``."""
    words = "Write to FILE instead of standard output; FILE.gz is compressed."
    # It is parsed first: its suffix may imply the format.
    target = click.option("-o", "--output", metavar="FILE", type=FILE, default="-", is_eager=True, help=words)
    return color_option(target(_packed(command, "out", writing.Output.of, output="-", no_color=False, verbose=False)))


def append_option(command: _Command) -> _Command:
    """Add --store to a command that follows a job to its end."""
    words = "When the job is over, append it to this store of 'nccl-inspect fleet'."
    return click.option("--store", metavar="DIR|URL", type=FILE, default="", help=words)(command)


def verbose_option(words: str) -> Callable[[_Command], _Command]:
    """Add --verbose."""
    return click.option("-v", "--verbose", is_flag=True, help=words)


def inputs_or_stdin(logs: tuple[str, ...]) -> list[str]:
    """The inputs, or standard input if something is piped in.

    Raises:
        NcclInspectError: there is no input, and standard input is a terminal.
    """
    if logs:
        return list(logs)
    if sys.stdin is None or sys.stdin.isatty():
        name = click.get_current_context().info_name
        raise NcclInspectError("no input", f"name a log file, or pipe one in: kubectl logs POD | nccl-inspect {name}")
    return ["-"]


def read(
    logs: tuple[str, ...],
    options: Options,
    *,
    tells_runs: bool = False,
    tells_jobs: bool = False,
    is_last: bool = True,
    is_one_of_two: bool = False,
    visit: Callable[[Job], None] | None = None,
    in_haste: Callable[[Job], None] | None = None,
) -> Job:
    """Read and judge the inputs, with a progress bar and read errors on stderr.

    Ctrl-C ends the reading: the job is then partial, and the exit status is that of the signal.

    Args:
        logs: as given.
        options: as given.
        tells_runs: the report mentions earlier runs in the log; otherwise stderr does.
        tells_jobs: the report mentions other jobs in the input; otherwise stderr does.
        is_last: only the report remains to be done, and an interruption lets it finish.
        is_one_of_two: another input is read as well, which may be the one with the job that the options name.
        visit: called with each job of the input.
        in_haste: called with an unjudged job where a signal leaves no time for more.
    """
    options = with_settings_file(options)
    meta = click.get_current_context().meta
    if options.names_nothing and len(logs) == 1 and not limits.given():
        files.require_path(logs[0])
    from nccl_inspect import artifacts  # most of the program, which nobody waits for to learn of a typing error
    from nccl_inspect.pipeline import reading
    from nccl_inspect.report import beside

    judge = reading.Judge(options)  # what is wrong with the options is said before a long log is read
    with Bar(meta.get(f"{__name__}.progress"), "reading evidence") as bar:
        inputs = artifacts.inventory(inputs_or_stdin(logs), bar.update if bar.wanted else None)
    jobs = meta.get(f"{__name__}.jobs")
    with uncollected(for_good=click.get_current_context().find_root().obj is EXITS_AFTERWARDS):
        PROCESS.is_last = is_last
        PROCESS.last_words = in_haste and (lambda: in_haste(judge.unjudged(PROCESS.read)))
        with Bar(meta.get(f"{__name__}.progress")) as bar, PROCESS as interruption:
            fold = reading.fold(inputs.logs, bar.update if bar.wanted else None, interruption, jobs)
        if fold.partial and is_last:
            print_stderr("reading stopped: reporting what was read; Ctrl-C again to stop")
        job = judge.worst(fold, visit, is_one_of_two, inputs)
    for misfit in judge.misfits(job):
        print_stderr(f"warning: {misfit}")
    problems = [*beside.problems(job.artifacts), *filter(None, (source.problem for source in job.sources))]
    for problem in problems[:_MAX_PROBLEMS]:
        print_stderr(problem)
    if len(problems) > _MAX_PROBLEMS:
        print_stderr(f"{len(problems) - _MAX_PROBLEMS} more inputs could not be read")
    several.mention_others(job, tells_runs, tells_jobs)
    return job
