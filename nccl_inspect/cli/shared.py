"""Options and steps that commands share."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from functools import wraps
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource

from nccl_inspect.cli import EXITS_AFTERWARDS, print_stderr, redirect_to_devnull
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.ingest.sources import compression, files
from nccl_inspect.pipeline.options import Options
from nccl_inspect.report import Style
from nccl_inspect.util import atomic_files
from nccl_inspect.util.discovery import settings_file
from nccl_inspect.util.interruption import PROCESS
from nccl_inspect.util.memory import pause_collector
from nccl_inspect.util.progress import Bar
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from nccl_inspect.model.job import Job

_FORCED = ("FORCE_COLOR", "CLICOLOR_FORCE")  # variables with which pipes get colors, too; NO_COLOR outweighs them
_CLOSED = 141  # the exit status of a shell for a program that SIGPIPE ended


def choose_style(no_color: bool, target: str, verbose: bool = False) -> Style:
    """Return the style of a report; only terminals get indented documents, and colors unless these are forced."""
    is_seen = target == "-" and sys.stdout.isatty()
    is_wanted = target == "-" and any(os.environ.get(name, "0") != "0" for name in _FORCED)
    is_able = is_seen and os.environ.get("TERM") != "dumb"
    color = (is_able or is_wanted) and not no_color and "NO_COLOR" not in os.environ
    return Style(width=output_width(target, 100), color=color, verbose=verbose, indent=is_seen)


def output_width(target: str, usual: int) -> int:
    """Return the width of the output: that of the terminal, else the usual one."""
    return shutil.get_terminal_size((usual, 24)).columns if target in atomic_files.STDOUT else usual


def exit_quietly() -> NoReturn:
    """Exit because the reader of standard output has closed it (| head), with the status that other programs have."""
    redirect_to_devnull(sys.stdout)
    sys.exit(_CLOSED)


class Output(Frozen):
    """Holds where a report goes, and how it looks."""

    target: str = "-"
    style: Style = field(default_factory=Style)

    def write(self, text: str) -> None:
        """Write a report."""
        self.write_lines(text.removesuffix("\n").split("\n"))

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines as they come, to a file or to standard output."""
        if self.target not in atomic_files.STDOUT:
            atomic_files.write_lines(self.target, "-o", lines)
            return
        try:
            stream, encoding, errors = (
                atomic_files.standard_output(),
                sys.stdout.encoding,
                sys.stdout.errors or "strict",
            )
            for line in lines:
                stream.write(f"{line}\n".encode(encoding, errors))
            stream.flush()
        except BrokenPipeError:
            exit_quietly()
        except OSError as error:
            redirect_to_devnull(sys.stdout)
            hint = "free space there, or name a file with -o"
            raise NcclInspectError(f"standard output: {error.strerror}", hint) from None


_Command = TypeVar("_Command", bound=Callable[..., Any])
FILE = click.Path(path_type=str, readable=False)
"""The type of file names: shells complete it. Whether a file can be read is left to its reader, who skips it if not."""
_MAX_PROBLEMS = 20
_PROGRESS = "Show progress on stderr. Default: long inputs on a terminal."


def together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds several options, in their order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _pack_options(into: str, pack: Callable[..., object], **parts: object) -> Callable[[_Command], _Command]:
    """Return a decorator that makes one argument of options, which have defaults for commands without them."""

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def call_with_parts(**options: Any) -> object:
            own = {name: options.pop(name, default) for name, default in parts.items()}
            return command(**options, **{into: pack(**own)})

        return cast(_Command, call_with_parts)

    return decorate


def _limit(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        compression.parse_size(value)
        before = {compression.VARIABLE: os.environ.get(compression.VARIABLE, "")}
        os.environ[compression.VARIABLE] = value
        ctx.call_on_close(lambda: os.environ.update(before))


inputs = together(
    click.option(
        "--max-unpacked",
        metavar="SIZE",
        expose_value=False,
        callback=_limit,
        help="Limit on decompressed size, such as 200G. Default: 64G, and 2,000 times the compressed size.",
    ),
    click.argument("logs", nargs=-1, metavar="[LOG]...", type=FILE),
)


def complete_rules(_ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions of a rule name, for the shell."""
    from click.shell_completion import CompletionItem  # only when a shell asks

    from nccl_inspect.judging.engine import rules_by_name

    rules = rules_by_name().items()
    return [CompletionItem(name, help=rule.title) for name, rule in rules if name.startswith(incomplete)]


def _complete_platforms(_ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    from nccl_inspect import platforms

    return [name for name in sorted(platforms.load_platforms()) if name.startswith(incomplete.lower())]


def rules_option(name: str, *target: str, **about: Any) -> Callable[[_Command], _Command]:
    """Return an option that takes rules and may be repeated; shells complete them."""
    return click.option(name, *target, multiple=True, metavar="RULE", shell_complete=complete_rules, **about)


rule_options = together(
    rules_option("--select", help="Run only these rules: name, glob or category. May be repeated."),
    rules_option("--ignore", help="Skip these rules. May be repeated."),
)


def fail_on_option(words: str) -> Callable[[_Command], _Command]:
    """Add --fail-on."""
    levels = click.Choice(("error", "warning", "info", "never"))
    return click.option("--fail-on", type=levels, default="never", show_default=True, help=words)


gate_options = together(
    fail_on_option("Exit with status 1 if there is a finding of this severity or higher, or the job failed."),
    rule_options,
)


def status(job: Job, fail_on: str = "never") -> int:
    """Return the exit status of a report: see :func:`gate`; 0 if findings do not matter."""
    if fail_on == "never":
        return PROCESS.status if job.partial else 0
    from nccl_inspect.judging.engine import SEVERITIES  # a missing log is said before this is loaded

    found = {finding.severity for finding in job.findings} | {standing.severity for standing in job.jobs}
    return gate(job.verdict == "failed" or not found.isdisjoint(SEVERITIES[SEVERITIES.index(fail_on) :]), job)


def gate(closed: bool, *jobs: Job) -> int:
    """Return the exit status of a gate: that of the signal after an interruption, 1 if something is wrong.

    Otherwise it is 3 if part of the input could not be read: the fault may be there.
    """
    if any(job.partial for job in jobs):
        return PROCESS.status
    unread = any(source.problem for job in jobs for source in job.sources)
    return 1 if closed else NoInputError.exit_code if unread else 0


def _remembered_option(name: str, **about: Any) -> Callable[[_Command], _Command]:
    """Return an option that is kept for later, so that commands need not pass it on."""
    return click.option(
        name,
        expose_value=False,
        callback=lambda ctx, option, value: ctx.meta.update({f"{__name__}.{option.name}": value}),
        **about,
    )


platform_options = together(
    click.option(
        "--topology",
        "topologies",
        multiple=True,
        metavar="FILE",
        type=FILE,
        help="Topology file: output of 'nvidia-smi topo -m', or the XML that NCCL writes to "
        "NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE. May be repeated.",
    ),
    click.option(
        "--platform",
        metavar="NAME",
        shell_complete=_complete_platforms,
        help="Machine type, such as p5.48xlarge, if the log does not name it.",
    ),
    _remembered_option(
        "--config",
        metavar="FILE",
        type=FILE,
        help="Settings file. Default: nccl-inspect.toml here, or in the nearest parent folder.",
    ),
    _remembered_option("--no-config", is_flag=True, help="Ignore settings files."),
    _pack_options("options", Options, platform=None, topologies=(), select=(), ignore=(), job=None, run=None),
)
"""Those for settings: :func:`with_settings_file`. The others become, with those for rules, the argument ``options``."""


def with_settings_file(options: Options) -> Options:
    """Return the options of the current command, completed by the settings file, which is named on stderr."""
    meta = click.get_current_context().meta
    named, unwanted = meta.get(f"{__name__}.config"), meta.get(f"{__name__}.no_config")
    if named and unwanted:
        raise click.UsageError("--config and --no-config exclude each other; omit one")
    if options.config or unwanted or not (path := Path(named) if named else settings_file(Path.cwd())):
        return options
    if not named:
        print_stderr(f"settings from {path} (--no-config ignores them)")
    from nccl_inspect.pipeline import configuration  # only if there is a file

    return configuration.complete_options(options, path)


job_options = together(  # they become part of the argument `options`
    click.option(
        "--job",
        metavar="N|NAME",
        help="Judge this job of an input that holds several: number or name in the table of summarize. "
        "Default: the worst.",
    ),
    click.option(
        "--run",
        type=click.IntRange(1),
        metavar="N",
        help="Judge run N of a restarted job; 1 is the first. Default: the latest.",
    ),
)
read_options = together(
    _remembered_option(
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Read files in N processes. Default: one per processor if logs are large.",
    ),
    _remembered_option("--progress/--no-progress", default=None, help=_PROGRESS),
    job_options,
    platform_options,
)
progress_option = click.option("--progress/--no-progress", default=None, help=_PROGRESS)
"""For a command that reads in its own way."""
color_option = click.option(
    "--no-color",
    is_flag=True,
    help="Disable colors (same as the variable NO_COLOR; FORCE_COLOR enables them in pipes).",
)


def target_option(words: str, default: str = "-") -> Callable[[_Command], _Command]:
    """Add --output; it is parsed first, since its suffix may imply the format."""
    return click.option("-o", "--output", metavar="FILE", type=FILE, default=default, is_eager=True, help=words)


output_options = together(
    color_option,
    target_option("Write to FILE instead of standard output; FILE.gz is compressed."),
    _pack_options(
        "out",
        lambda output, no_color, verbose: Output(output, choose_style(no_color, output, verbose)),
        output="-",
        no_color=False,
        verbose=False,
    ),
)


def verbose_option(words: str) -> Callable[[_Command], _Command]:
    """Add --verbose."""
    return click.option("-v", "--verbose", is_flag=True, help=words)


def inputs_or_stdin(logs: tuple[str, ...]) -> list[str]:
    """Return the inputs, or standard input if something is piped in."""
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
    tells_all: bool = False,
    is_last: bool = True,
    is_one_of_two: bool = False,
    visit: Callable[[Job], None] | None = None,
) -> Job:
    """Read and judge the inputs, with a progress bar and read errors on stderr.

    Ctrl-C ends the reading: the job is then partial, and the exit status is that of the signal.

    Args:
        tells_all: the report mentions other jobs in the input and earlier runs; otherwise stderr does.
        is_last: only the report remains to be done, and an interruption lets it finish.
        is_one_of_two: another input is read as well, which may be the one with the job that the options name.
        visit: called with each job of the input.
    """
    options = with_settings_file(options)
    meta = click.get_current_context().meta
    may_be_wrong = options.select or options.ignore or options.platform or options.topologies
    if not may_be_wrong and len(logs) == 1 and not compression.given_limit():
        files.require_path(logs[0])
    from nccl_inspect import artifacts  # most of the program, which nobody waits for to learn of a typing error
    from nccl_inspect.pipeline import reading
    from nccl_inspect.report import digest

    judge = reading.Judge(options)  # what is wrong with the options is said before a long log is read
    with Bar(meta.get(f"{__name__}.progress"), "reading evidence") as bar:
        inputs = artifacts.inventory(inputs_or_stdin(logs), bar.update if bar.wanted else None)
    jobs = meta.get(f"{__name__}.jobs")
    with pause_collector(for_good=click.get_current_context().find_root().obj is EXITS_AFTERWARDS):
        PROCESS.is_last = is_last
        with Bar(meta.get(f"{__name__}.progress")) as bar, PROCESS as interruption:
            fold = reading.fold(inputs.logs, bar.update if bar.wanted else None, interruption, jobs)
        if fold.partial and is_last:
            print_stderr("reading stopped: reporting what was read; Ctrl-C again to stop")
        job = judge.find_job(fold, visit, is_one_of_two, inputs)
    for misfit in judge.misfits(job):
        print_stderr(f"warning: {misfit}")
    problems = [*digest.list_unused_evidence(job.artifacts), *filter(None, (source.problem for source in job.sources))]
    print_problems(problems)
    if job.jobs and not tells_all:
        worst = f"the worst of {count(len(job.jobs), 'job')}: {job.name}"
        print_stderr(f"{worst}; --job selects another, 'summarize' lists all")
    if job.earlier_runs and not tells_all:
        runs = count(len(job.earlier_runs), "earlier run")
        print_stderr(f"{runs} in the log skipped, the last one: {job.earlier_runs[-1]}; --run 1 selects the first")
    return job


def print_problems(problems: Sequence[str], more: str = "more input", what: str = "could not be read") -> None:
    """Print what is wrong with some files, the first of many."""
    for problem in problems[:_MAX_PROBLEMS]:
        print_stderr(problem)
    if len(problems) > _MAX_PROBLEMS:
        print_stderr(f"{count(len(problems) - _MAX_PROBLEMS, more)} {what}")


_KNOWN_SUFFIXES = (  # suffixes that state a file's format: plain text under such a name is a mistake
    *("csv", "tsv", "xls", "xlsx", "ods", "parquet", "htm", "html", "md", "pdf", "svg", "png", "dot", "gv"),
    *("json", "jsonl", "ndjson", "yaml", "yml", "xml", "sarif", "prom"),
)


def format_option(names: Iterable[str], load: Callable[[str], object] | None = None) -> Callable[[_Command], _Command]:
    """Add --format; the default is the format of the suffix of FILE, or of one of its ``SUFFIXES``, else the first."""
    choices = tuple(names)

    def choose_format(ctx: click.Context, option: click.Parameter, value: str) -> str:
        if ctx.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
            return value
        output = ctx.params.get("output", "-")
        suffix = PurePath(atomic_files.strip_compression(output)).suffix.lower().removeprefix(".")
        others = choices if suffix and suffix not in choices else ()
        name = next((one for one in others if load and suffix in getattr(load(one), "SUFFIXES", ())), suffix)
        if suffix in _KNOWN_SUFFIXES and name not in choices and not ctx.resilient_parsing:
            raise click.UsageError(
                f"{output}: {ctx.info_name} cannot write {suffix}, only {', '.join(choices)}; "
                "change the suffix, or choose one of these with --format"
            )
        return name if name in choices else value

    return click.option(
        "--format",
        "form",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        metavar="FORMAT",
        callback=choose_format,
        help=f"Output format: {', '.join(choices)}. Without it, the suffix of FILE decides.",
    )


def communicator_option(default: str = "") -> Callable[[_Command], _Command]:
    """Add --communicator."""
    words = f"Only these communicators: name or glob. May be repeated. {default}".rstrip()
    return click.option("--communicator", "names", multiple=True, metavar="NAME", help=words)


def finding_option(words: str) -> Callable[[_Command], _Command]:
    """Add --finding; it becomes the argument ``rules``, the names of all rules that match."""

    def find_selected(ctx: click.Context, _option: click.Parameter, patterns: tuple[str, ...]) -> frozenset[str]:
        from nccl_inspect.answers import selection  # most of the program

        return frozenset(() if ctx.resilient_parsing else selection.match_rules(patterns))

    return rules_option("--finding", "rules", callback=find_selected, help=f"{words}: name or glob.")


def rank_and_host_options(of_ranks: str, on_hosts: str) -> Callable[[_Command], _Command]:
    """Add --rank and --host with their helps; they become the argument ``places``."""

    named = f"{on_hosts}: name, glob or node-[01-16]."
    return together(
        click.option("--rank", "wanted_ranks", multiple=True, metavar="R", help=f"{of_ranks}: 3, 0-7 or 0-56:8."),
        click.option("--host", "wanted_hosts", multiple=True, metavar="NAME", help=named),
        _pack_options("places", _make_place_filter, wanted_ranks=(), wanted_hosts=()),
    )


def _make_place_filter(wanted_ranks: tuple[str, ...], wanted_hosts: tuple[str, ...]) -> object:
    from nccl_inspect.answers import selection

    return selection.PlaceFilter(selection.parse_ranges("rank", wanted_ranks), wanted_hosts)


_OTHER_COMPRESSIONS = (".7z", ".bz2", ".lz4", ".xz", ".zip", ".zst")
"""Suffixes of other compressions than gzip: what is written to such a file would be no such thing."""


def check_target(ctx: click.Context) -> str:
    """Return the file of ``-o``, empty for standard output; refuse an input, and compressions but gzip."""
    target = str(ctx.params["output"])
    path = PurePath(target)
    if path.suffix.lower() in _OTHER_COMPRESSIONS:
        raise NcclInspectError(
            f"{target}: cannot write {path.suffix}, only .gz",
            f"use -o {path.stem}.gz, or -o {path.stem} and compress that file",
        )
    if target in atomic_files.STDOUT:
        return ""
    try:
        status = Path(target).stat()
    except OSError:  # nothing can be lost
        return target
    is_file, is_folder = stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode)
    for parameter in ctx.command.params if is_file or is_folder else ():
        if parameter.type is not FILE or parameter.name in (None, "output"):
            continue
        value: Any = ctx.params.get(parameter.name or "", ctx.meta.get(f"{__name__}.{parameter.name}"))
        names = value if isinstance(value, list | tuple) else [value]
        for name in (*filter(None, names), *(["-"] if parameter.name == "logs" and not names else [])):
            if lost := _find_lost(name, target, status):
                what = "is one of the inputs" if is_file else f"holds one of the inputs, {lost}"
                raise NcclInspectError(f"{target}: {what}, which would be lost", "choose another name for -o")
    return target


def _find_lost(name: str, target: str, status: os.stat_result) -> str:
    if name == "-":
        with suppress(OSError, ValueError, AttributeError):  # no standard input, or something that only looks like it
            return "standard input" if os.path.samestat(os.fstat(sys.stdin.fileno()), status) else ""
        return ""
    for file in files.find(name):
        if file.place and stat.S_ISDIR(status.st_mode):
            if file.place.resolve().is_relative_to(Path(target).resolve()):
                return file.name
        elif file.place:
            with suppress(OSError):
                if os.path.samestat(file.place.stat(), status):
                    return file.name
    return ""
