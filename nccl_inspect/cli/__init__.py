"""The command line: parses options, calls the library, prints. Commands are found by their files."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from nccl_inspect._version import __version__
from nccl_inspect.errors import NcclInspectError, NoInputError, suggestion
from nccl_inspect.util import interruption
from nccl_inspect.util.discovery import modules
from nccl_inspect.util.text import PLAIN, escape_controls

_SEVERAL = {  # modules with several commands, each a function of its name
    "questions": ("hosts", "nics", "env", "ranks", "bandwidth", "timings", "memory", "traffic"),
    "about": ("rules", "completion", "help"),
}
_PARTS = ("manual", "shared", *_SEVERAL)
COMPLETE_VARIABLE = "_NCCLINSPECT_COMPLETE"
"""The variable with which shells ask for completions; the default name would look like a variable of NCCL."""
EXITS_AFTERWARDS = object()  # the object of the context if the process exits after the command
_KEPT = 6 << 20  # bytes: more than a block of a log and its lines take; twice as many would fragment the memory
_DEFAULT = "summarize"  # the command for a log without a command
_SPELLINGS = {"summarise": "summarize", "anonymise": "anonymize"}
_PATH = frozenset("./*?[")  # no command has these characters, so a name with one of them is that of a log
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_MIN_COLUMNS = 40
_MAX_COLUMNS = 100


class _Help(click.HelpFormatter):
    """Help that fits 40 columns: option names get less room on narrow terminals."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(list(rows), min(col_max, self.width // 3), col_spacing)


class _Context(click.Context):
    formatter_class = _Help

    def get_help(self) -> str:
        from nccl_inspect.cli import manual  # only for help

        return manual.page(self)

    def invoke(self, callback: Any, /, *args: Any, **values: Any) -> Any:
        if self.params.get("output"):
            from nccl_inspect.cli import shared  # imports this module

            interruption.PROCESS.unwritten = shared.check_target(self)
        return super().invoke(callback, *args, **values)


class _Commands(click.Group):
    """Commands, found by their files and loaded on use, so that short runs stay short."""

    context_class = _Context

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        is_piped = False  # nothing is read from a terminal or from the null device
        with suppress(OSError, ValueError, AttributeError):
            mode = os.fstat(sys.stdin.fileno()).st_mode
            is_piped = stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
        first = args[0] if args else "-" if is_piped else "--help"
        own = [name for option in self.params for name in option.opts] + ["-h", "--help"]
        is_command = first in self.list_commands(click.Context(self)) or first in _SPELLINGS
        is_input = first.startswith("-") or not _PATH.isdisjoint(first) or Path(first).exists()
        if first not in own and not is_command and is_input:  # a log, also one that is piped in, or an option for logs
            args = [_DEFAULT, *args]
        return super().make_context(info_name, args, parent, **{"terminal_width": _width(), **extra})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _SPELLINGS.get(cmd_name, cmd_name)
        if cmd_name not in self.list_commands(ctx):
            if ctx.resilient_parsing:  # the shell asks for completions
                return None
            hint = suggestion(cmd_name, self.list_commands(ctx)) or "run 'nccl-inspect --help' to list the commands"
            raise NcclInspectError(f"no command '{cmd_name}'", hint)
        module, function = _modules()[cmd_name]
        command: click.Command = getattr(import_module(module), function)
        return prepare_command(command)


@cache
def _modules() -> dict[str, tuple[str, str]]:
    """Return module and function of each command: those of this package, and ``cli_NAME.py`` of each extra."""
    package = Path(__file__).parents[1]
    extras = {file.stem.removeprefix("cli_"): file.parent.name for file in package.glob("extras/*/cli_*.py")}
    own = {name: (f"{__name__}.{name}", "command") for name in modules(__file__, *_PARTS)}
    own |= {name: (f"{__name__}.{module}", name) for module, names in _SEVERAL.items() for name in names}
    return own | {name: (f"nccl_inspect.extras.{extra}.cli_{name}", "command") for name, extra in extras.items()}


def prepare_command(command: click.Command) -> click.Command:
    """Return a command with the help pages and the output checks of this program."""
    command.context_class = _Context
    return command


def _width() -> int:
    columns = shutil.get_terminal_size((_MAX_COLUMNS, 24)).columns
    return max(min(columns, _MAX_COLUMNS) - 2, _MIN_COLUMNS - 2)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="nccl-inspect")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Read NCCL_DEBUG=INFO logs: show the path of each rank pair, whether it is the best one, and if not, why.

    Without COMMAND, the arguments are those of summarize.

    Not to be confused with NVIDIA's "NCCL Inspector", which is a profiler plugin.

    Exit status: 0 done; 1 findings at or above --fail-on, a failed
    job when --fail-on is given, or a broken policy; 2 usage error;
    3 no readable input (a gate: or not all readable), or no NCCL line in it;
    130 interrupted, 143 after SIGTERM (what was read so far is reported);
    141 the reader of the output closed it.

    Examples:
      nccl-inspect job.log                            verdict, paths, findings: short for summarize
      kubectl logs job/llama | nccl-inspect
      nccl-inspect summarize job.log --format json --fail-on error
      nccl-inspect diff yesterday.log today.log       what changed, and why
      nccl-inspect check job.log --policy good.toml   a gate for CI pipelines
      nccl-inspect paths job.log --verdict fallback   pairs that are slower than they should be
      nccl-inspect hosts job.log                      hosts, worst first
      nccl-inspect rules                              the list of rules
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main() -> NoReturn:
    """Run the program: errors become one line on stderr, a closed pipe ends in silence."""
    interruption.guard()
    # glibc keeps memory of a size that was freed once: else it would request each block from the system again.
    bytes(_KEPT)
    # OpenBLAS, which numpy loads, would start a thread for each processor, and nothing here multiplies matrices. Not in
    # os.environ: programs that a command starts get only that.
    if _BLAS_THREADS not in os.environ:
        os.putenv(_BLAS_THREADS, "1")
    for stream_name in ("stdout", "stderr"):
        if getattr(sys, stream_name) is None:  # it is closed: >&-
            setattr(sys, stream_name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN)
    # Generators that end because memory ran out fail once more: the error itself is reported.
    sys.unraisablehook = lambda what: None if issubclass(what.exc_type, MemoryError) else sys.__unraisablehook__(what)
    # All output is written: freeing a job of ten thousand ranks would take a tenth of the run time.
    os._exit(execute(EXITS_AFTERWARDS))


def execute(then: object = None) -> int:
    """Run the command that the arguments of the process name; return its exit status."""
    settings: dict[str, Any] = {"complete_var": COMPLETE_VARIABLE, "standalone_mode": False, "obj": then}
    try:
        status = cli.main(prog_name="nccl-inspect", terminal_width=_width(), **settings)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Abort:
        print_stderr(interruption.PROCESS.words())
        return interruption.PROCESS.status
    except click.ClickException as error:
        is_version = isinstance(error, click.NoSuchOption) and error.option_name == "--version"
        print_stderr(
            "--version goes without a command: nccl-inspect --version" if is_version else error.format_message()
        )
        return 2
    except NcclInspectError as error:
        print_stderr(str(error))
        return error.exit_code
    except MemoryError as error:
        error.__context__ = error.__traceback__ = None  # their frames hold what fills the memory
        redirect_to_devnull(sys.stdout)
        print_stderr("out of memory; give fewer logs at once, those of one job or of some hosts, or allow more memory")
        return NoInputError.exit_code
    except OSError as error:
        redirect_to_devnull(sys.stdout)
        print_stderr(
            f"{error.filename or 'standard output'}: {error.strerror or error}; free space there, or write elsewhere"
        )
        return 2


def redirect_to_devnull(stream: TextIO) -> None:
    """Redirect a stream that cannot be written, so that the interpreter does not fail when it flushes the rest."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_stderr(message: str) -> None:
    """Print one line on stderr; if that fails, the exit status must suffice."""
    with suppress(OSError):
        click.echo(f"nccl-inspect: {join_lines(message)}", err=True)


def join_lines(message: str) -> str:
    """Return a message on one line, with control characters from files and options escaped."""
    return escape_controls(" ".join(message.split()))
