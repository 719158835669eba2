"""``nccl-inspect run``: a job with the settings that a full report needs, from its command to its report."""

from __future__ import annotations

import errno
import fcntl
import glob
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tomllib
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.extras.collect import host
from nccl_inspect.extras.collect.collection import Collection
from nccl_inspect.util import signals as signal_names
from nccl_inspect.util.interruption import hold_signals

# The job: its streams, its signals, its exit status

_BLOCK = 1 << 16
_PIPE = 1 << 20  # bytes that a pipe may hold: the job waits less often for the terminal
_MAX_PARTIAL = 1 << 16


class JobLog:
    """The file: whole lines of each stream, as far as possible."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._partial: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self.last = time.time()
        self.problem: str | None = None

    def add(self, stream: int, data: bytes) -> None:
        """Take in what a stream printed."""
        self.last = time.time()
        with self._lock:
            data = self._partial.pop(stream, b"") + data
            end = data.rfind(b"\n") + 1
            if len(data) - end <= _MAX_PARTIAL:
                data, self._partial[stream] = data[:end], data[end:]
            self._write(data)

    def flush(self) -> None:
        """Write what has no end of line yet."""
        with self._lock:
            self._write(b"".join(self._partial.values()))
            self._partial.clear()

    def _write(self, data: bytes) -> None:
        if self.problem is None and (number := _write_all(self._file.fileno(), data)):
            self.problem = os.strerror(number)


class Channel:
    """One or several streams of the job on their way: a pipe, or a terminal where the stream is one."""

    def __init__(self, streams: list[int]) -> None:
        self.streams = streams
        self.is_terminal = os.isatty(streams[0])
        if self.is_terminal:
            self.source, self.inside = os.openpty()
            tty.setraw(self.inside, termios.TCSANOW)  # the terminal itself does what is to be done, once
            self.resize()
        else:
            self.source, self.inside = os.pipe()
            with suppress(OSError, AttributeError):  # there is a limit for each user
                fcntl.fcntl(self.source, fcntl.F_SETPIPE_SZ, _PIPE)

    def resize(self) -> None:
        """Give the terminal of the job the size of the one here."""
        if self.is_terminal:
            with suppress(OSError, termios.error):
                size = os.get_terminal_size(self.streams[0])
                termios.tcsetwinsize(self.source, (size.lines, size.columns))

    def pump(self, log: JobLog) -> None:
        """Pass all on until the job has closed its end; or until nobody reads it, which the job then learns.

        What cannot be written elsewhere, on a disk that is full, is kept in the log all the same.
        """
        target, problem = self.streams[0], 0
        while True:
            try:
                data = os.read(self.source, _BLOCK)
            except OSError as error:  # a terminal that nobody has open any more
                if error.errno != errno.EIO:
                    raise
                break
            if not data:
                break
            log.add(target, data)
            problem = problem or _write_all(target, data)
            if problem == errno.EPIPE:
                break
        os.close(self.source)


def _write_all(target: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select([], [target], [])
        except OSError as error:
            return error.errno or errno.EIO
    return 0


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that the job gets, and that end what is done after it."""
_WAITED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGWINCH)
_TICK = 1.0  # seconds between looks at the job while no signal comes
_DRAIN = 2.0  # seconds to wait, after the end of the job, for those that still hold its streams


class NotStartedError(NcclInspectError):
    """The command cannot be started; the exit status is that of a shell."""

    def __init__(self, command: str, error: OSError) -> None:
        is_missing = isinstance(error, FileNotFoundError)
        what = "command not found" if is_missing and "/" not in command else error.strerror or str(error)
        super().__init__(f"{command}: {what}")
        self.exit_code = 127 if is_missing else 126


def _start(work: Callable[..., None], *values: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=values, daemon=True)
    thread.start()
    return thread


def _wait_for_end(seconds: float) -> bool:
    came = signal.sigtimedwait(_WAITED, seconds)
    return came is not None and came.si_signo in _ENDING


def _signal_group(leader: int, number: int) -> None:
    """Pass a signal on as a terminal does: to the command and to what it started in the same process group.

    What has a group of its own, such as the workers of torchrun, is left to who started it. The command shares the
    group of this process, which a terminal needs, so that a signal to the group would reach others, too.
    """
    below: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, parent, group = path.read_bytes().rpartition(b")")[2].split()[:3]
            below.setdefault(int(parent), []).append(int(path.parent.name))
            groups[int(path.parent.name)] = int(group)
    family = [leader]
    for pid in family:  # grows
        family += below.get(pid, [])
    for pid in family:
        if groups.get(pid) == groups.get(leader):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


# Variables

DEBUG_FILE = "NCCL_DEBUG_FILE"
_TABLES = tomllib.loads(Path(__file__).with_name("variables.toml").read_text(encoding="utf-8"))
SETTINGS: dict[str, list[str]] = _TABLES["settings"]
PROCESSES: dict[str, Any] = _TABLES["processes"]
_MAX_NAME = 60


def choose_variables(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return what is to be added to the environment of a job."""
    names = set(environment)
    for path in filter(None, (environment.get("NCCL_CONF_FILE"), *PROCESSES["configurations"])):
        with suppress(OSError, RuntimeError):
            text = Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
            names.update(re.findall(r"^\s*(\w+)\s*=", text, re.MULTILINE))
    variables = {}
    for name, (value, *unless) in SETTINGS.items():
        if names.isdisjoint((name, *unless)):  # only in the name of the log file does % stand for something
            path = str(folder).replace("%", "%%") if name == DEBUG_FILE else str(folder)
            variables[name] = value.replace("{folder}", path)
    return variables


def launcher_ranks(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return rank and local rank that a launcher gave this process; None where it gave none."""
    launchers = PROCESSES["launchers"]
    _, *names = next((names for names in launchers if names[0] in environment), launchers[-1])
    values = (environment.get(name, "") for name in names)
    rank, local_rank = (int(value) if value.isascii() and value.isdecimal() else None for value in values)
    return rank, local_rank


def nccl_log_pattern(environment: Mapping[str, str]) -> str:
    """Return the pattern of the files that NCCL writes; empty where it writes none."""
    escaped = environment.get(DEBUG_FILE, "").replace("%%", "\0")
    return re.sub(r"%[hp]", "*", escaped).replace("\0", "%")


# The folder

_MAX_RUNS = 1000


def open_run_log(wanted: str, environment: Mapping[str, str], say: Callable[[str], None]) -> BinaryIO | None:
    """Open the log in the folder of this run; None where nothing can be written, which is no reason not to run.

    What an earlier run left is kept: this one then goes to ``DIR-2``. All processes of a job share a folder.
    """
    rank, _ = launcher_ranks(environment)
    log = "job.log" if rank is None else f"job.{rank}.log"
    job = next((environment[variable] for variable in PROCESSES["jobs"] if environment.get(variable)), "")
    if job and (step := environment.get(PROCESSES["step"])):
        job += f"-{step}"
    job = re.sub(r"[^\w.-]", "_", job)[:_MAX_NAME]
    name = wanted or f"nccl-run-{job or time.strftime('%Y%m%d-%H%M%S')}"
    first = Path(os.path.abspath(name))  # noqa: PTH100 - links stay
    problem = f"{name}: too many runs"
    for number in range(1, _MAX_RUNS + 1):
        folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            opened = _open_log(folder, log)
        except FileExistsError:
            continue
        except OSError as error:
            problem = f"{error.filename or folder}: {error.strerror}"
            break
        if wanted and number > 1:
            say(f"{wanted} holds an earlier run; this one goes to {folder}")
        return opened
    with suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="nccl-run-"))
        opened = _open_log(folder, log)
        say(f"{problem}; the files go to {folder}")
        return opened
    say(f"{problem}; the job runs without a report")
    return None


def _open_log(folder: Path, log: str) -> BinaryIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(20, "Not a directory", str(folder)) from None
    return (folder / log).open("xb", buffering=0)


# The stand-still


def look_for_silence(
    seconds: float, log: JobLog, patterns: Sequence[str], now: Callable[[], float] = time.time
) -> Iterator[bool]:
    """Yield at each look whether nothing was printed to the log or to files for so long; True once for each silence."""
    next_look, seen = log.last + seconds, 0.0  # seen: when the last thing came before the silence that counted
    while True:
        if not seconds or now() < next_look:
            yield False
            continue
        newest = log.last
        for name in itertools.chain(*map(glob.iglob, patterns)):
            with suppress(OSError):
                newest = max(newest, Path(name).stat().st_mtime)
        is_silent = newest + seconds <= now()
        next_look = (now() if is_silent else newest) + seconds
        yield is_silent and newest > seen
        seen = newest if is_silent else seen


# What is gathered

_COMMAND_SECONDS = 15.0
_RAS_SECONDS = 10.0
_BETWEEN = 5.0
_SLACK = 60.0  # seconds by which the times of the kernel may be off
_STAMP = re.compile(rb"(?:<\d+>)?\[([A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4})\] ")
_PROCESS = re.compile(rb"oom-kill|[Oo]ut of memory: |\]: segfault at ")
"""A process was killed or crashed. What happened to a GPU or switch is of interest whenever it was: it may be lost."""


class Gathering:
    """Gathers what settles findings, beside the job: what RAS answers while it stands, and the state of this machine.

    NCCL stands still only where no operation was launched ``between`` two questions.
    """

    def __init__(self, folder: Path, between: float = _BETWEEN) -> None:
        self._host, self._between, self._began = folder / host.folder(), between, time.time()
        self._collection = partial(Collection, folder, lambda _: None, _COMMAND_SECONDS)
        self.ended = threading.Event()  # set when the job has ended: nobody waits for an answer any more

    def ask_ras(self) -> bool:
        """Ask RAS twice; whether something is kept: not where operations continue, since then nothing is stuck."""
        self.forget_answers()
        first = self._ask()
        second = self._ask() if first and not self.ended.wait(self._between) else {}
        if first.keys() & second.keys() and first != second:
            self.forget_answers()
        return any(self._host.glob("ras.*"))

    def gather_machine(self) -> None:
        """Gather what commands say of this machine; processes that the kernel ended before this run are none of it."""
        collection = self._collection()
        host.gather_machine(collection)
        with suppress(OSError, ValueError):  # there is none, or it has other times
            log, kept, is_kept = self._host / host.KERNEL_LOG, [], True
            for line in log.read_bytes().splitlines(keepends=True):
                if stamp := _STAMP.match(line):
                    when = time.mktime(time.strptime(stamp[1].decode("ascii"), "%a %b %d %H:%M:%S %Y"))
                    is_kept = when >= self._began - _SLACK or _PROCESS.search(line) is None
                if is_kept:
                    kept.append(line)
            log.write_bytes(b"".join(kept))
        collection.write_index(host.folder())

    def forget_answers(self) -> None:
        """Take the answers of RAS away: they are of a time when the job did not stand still."""
        for answer in list(self._host.glob("ras.*")):
            answer.unlink(missing_ok=True)

    def _ask(self) -> dict[str, Any]:
        """Return the operations that each rank has launched; none of text, and where 2.28 breaks its JSON."""
        host.ask_ras(self._collection(), _RAS_SECONDS)
        with suppress(OSError, ValueError, AttributeError, TypeError):
            data = json.loads((self._host / "ras.json").read_bytes())
            return {
                str(comm.get("hash")): [rank.get("collective_counts") for rank in comm.get("ranks") or ()]
                for comm in data.get("communicators") or ()
            }
        return {}


# The run

_STDERR = 2
_STUCK = (b"FAILED", b"WAITING")  # first words of a report on a job that is stuck
_REPORT_SECONDS = 120
_LEAVE = 5.0  # seconds to wait at the end for what a stand-still began
_GATHER_TICK = 0.1  # seconds between two looks at what is gathered
_STALE = 1800.0
"""Seconds for which a job prints on after a stand-still before its answers are of no use: the time-outs of PyTorch, and
what it writes before it gives up, take less."""


class Session:
    """One run, with its log in the folder of the run; the report goes to a file, or to stderr."""

    def __init__(
        self,
        log: BinaryIO,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        stall: float,
        report: str,
        quiet: bool,
    ) -> None:
        self._log_name = Path(log.name)
        self.folder = self._log_name.parent
        self._stall, self._target, self._quiet = stall, report, quiet
        self._say: Callable[[str], None] = (lambda _: None) if quiet else say
        self._environment = {**environment, **choose_variables(environment, self.folder)}
        self._rank, local = launcher_ranks(environment)
        self._gathers = not local
        self.is_first = self._gathers and not self._rank  # whether this is the process that reports on the job
        self._gathering = Gathering(self.folder)
        self._kept_at = 0.0
        self._work: threading.Thread | None = None
        # One channel where both streams lead to the same file, to keep the order.
        first, second = ((status.st_dev, status.st_ino, status.st_rdev) for status in map(os.fstat, (1, 2)))
        self._channels = [Channel([1, 2])] if first == second else [Channel([1]), Channel([2])]
        self._log = JobLog(log)

    def run(self, argv: Sequence[str]) -> int:
        """Run the job and report on it; return its exit status."""
        if not hasattr(signal, "sigtimedwait"):  # a system without it has no GPU either
            raise NcclInspectError("run needs Linux", "run the command alone, and give its log to summarize")
        with hold_signals(_WAITED):  # until somebody waits for them: none is lost, and none interrupts anything
            status = self._run_job(argv)
            self._log.flush()
            self._gathering.ended.set()
            if self._work:
                self._work.join(_LEAVE)
            if status == 0:
                self._gathering.forget_answers()
            if self._log.problem:
                self._say(f"{self._log_name} is incomplete: {self._log.problem}")
            ending = "the command succeeded"
            if status != 0:  # and its host, where a launcher started several
                on = f" on {socket.gethostname().partition('.')[0]}" if self._rank is not None else ""
                ending = f"the command ended with status {signal_names.status_words(status)}{on}"
            with suppress(OSError):  # beside the log, so that a later report says how the command ended
                name = self._log_name.name.replace("job", "exit-status", 1)
                self._log_name.with_name(name).write_text(f"nccl-inspect: {ending}\n", encoding="utf-8")
            if self._gathers:
                work = _start(self._gathering.gather_machine)
                while work.is_alive():
                    if _wait_for_end(_GATHER_TICK):
                        return status
                if self.is_first:
                    self._report(ending)
        return status

    def _run_job(self, argv: Sequence[str]) -> int:
        ends = {stream: channel.inside for channel in self._channels for stream in channel.streams}
        try:
            # The job has all signals; there are no threads yet, so that code between fork and exec does no harm.
            unblock = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _WAITED)
            job = subprocess.Popen(argv, env=self._environment, stdout=ends[1], stderr=ends[2], preexec_fn=unblock)
        except OSError as error:
            with suppress(OSError):  # nothing is in the folder
                self._log_name.unlink()
                self.folder.rmdir()
            raise NotStartedError(argv[0], error) from None
        finally:
            for channel in self._channels:
                os.close(channel.inside)
        own = [str(Path(glob.escape(str(self.folder)), name)) for name in ("nccl.*", "job*.log")]
        patterns = list(filter(None, [*own, nccl_log_pattern(self._environment)]))
        silences = look_for_silence(self._stall if self.is_first else 0, self._log, patterns)
        pumps = [_start(channel.pump, self._log) for channel in self._channels]
        while (status := job.poll()) is None:
            came = signal.sigtimedwait(_WAITED, _TICK)
            if came is None:
                if self._kept_at and self._log.last - self._kept_at > _STALE:
                    self._gathering.forget_answers()
                    self._kept_at = 0.0
                if next(silences) and not (self._work and self._work.is_alive()):
                    self._log.flush()
                    self._work = _start(self._gather_standstill)
            elif came.si_signo == signal.SIGWINCH:
                for channel in self._channels:
                    channel.resize()
            elif came.si_signo != signal.SIGCHLD and came.si_code <= 0:  # a terminal sends to all in front of it
                _signal_group(job.pid, came.si_signo)
        for pump in pumps:
            pump.join(_DRAIN)
        while signal.sigtimedwait(_WAITED, 0):  # what came together with the end of the job was meant for it
            pass
        return 128 - status if status < 0 else status

    def _gather_standstill(self) -> None:
        silence = f"nothing printed for {self._stall:g} s"
        if self._gathering.ask_ras():
            self._kept_at = time.time()
            silence += f"; RAS answered, {self.folder}"
        self._gathering.gather_machine()
        if not self._quiet and not self._gathering.ended.is_set():
            # The report, if the job failed or its ranks wait, as far as the log shows.
            command = self._report_command()
            with suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_REPORT_SECONDS)
                if done.stdout.startswith(_STUCK):
                    _write_all(_STDERR, done.stdout)
                    return
        self._say(silence)

    def _report(self, ending: str) -> None:
        self._say(f"{ending}; files of this run: {self.folder}")
        if self._quiet and not self._target:
            return
        with tempfile.TemporaryFile() as errors:
            command = self._report_command(*(("-o", self._target) if self._target else ()))
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=_STDERR, stderr=errors)
            while (status := process.poll()) is None:
                if _wait_for_end(1.0):
                    process.kill()
                    process.wait()
                    return
            errors.seek(0)
            if status != NoInputError.exit_code:
                _write_all(_STDERR, errors.read())
                return
        level = self._environment.get("NCCL_DEBUG", "")
        is_full = level.upper() in ("INFO", "TRACE")
        why = "" if is_full else f" (NCCL_DEBUG={level} was set; leave it out)"
        self._say(f"no report: NCCL printed nothing to {self.folder}{why}")

    def _report_command(self, *options: str) -> list[str]:
        """Return how the report is made: by a process of its own, so that the exit status of the job stays.

        It is of the folder, and of what NCCL wrote elsewhere because somebody said so. Modules in the folder of the job
        are not taken for those of this program.
        """
        elsewhere = sorted(map(Path, glob.glob(nccl_log_pattern(self._environment))))  # noqa: PTH207 - as given
        outside = [path for path in elsewhere if not path.resolve().is_relative_to(self.folder.resolve())]
        inputs = map(str, [self.folder, *outside])
        return [sys.executable, "-P", "-m", "nccl_inspect", "summarize", *inputs, "--no-progress", *options]


# The command

_EXAMPLES = """
Examples:
  nccl-inspect run -- torchrun --nproc-per-node=8 train.py
  nccl-inspect run --out /shared/llama --stall 120 -- torchrun --nnodes=2 --nproc-per-node=8 train.py
  srun nccl-inspect run --out /shared/llama -- python train.py   (one per task; the first one reports)
  mpirun -np 16 nccl-inspect run --out /shared/llama -- ./all_reduce_perf -b 8 -e 1G
  nccl-inspect summarize /shared/llama                           (the report again)

Exit status: 0 that of COMMAND, whatever it is, and 128+N if signal N ended it; 126 COMMAND cannot be
run; 127 COMMAND was not found; 2 usage error
"""


@click.command(
    epilog=_EXAMPLES,
    short_help="Run a job, keep its logs, and report on them.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--out",
    "directory",
    metavar="DIR",
    type=shared.FILE,
    default="",
    help="Log folder, the same for all processes of a job. Default: a new one, nccl-run-JOBID or -TIME.",
)
@click.option(
    "--stall",
    type=click.FloatRange(min=0),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="After this time without output, query RAS, collect the machine's state, and report if ranks wait; 0: never.",
)
@click.option(
    "--report", metavar="FILE", type=shared.FILE, default="", help="Write the report to FILE instead of stderr."
)
@click.option("-q", "--quiet", is_flag=True, help="Keep the files; print only errors.")
@click.argument("argv", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(directory: str, stall: float, report: str, quiet: bool, argv: tuple[str, ...]) -> int:
    """Run COMMAND with the settings that a full report needs, keep its output, and report on stderr when it ends.

    Sets, unless already set: NCCL_DEBUG, NCCL_DEBUG_SUBSYS, NCCL_DEBUG_FILE (only if NCCL_DEBUG was not set, so that
    the output stays as it was), NCCL_TOPO_DUMP_FILE, and PyTorch's flight recorder with dumps on timeout. Input,
    output, signals and the exit status of COMMAND are passed through.
    """
    log = open_run_log(directory, os.environ, print_stderr)
    if log is None:  # nothing can be kept
        try:
            os.execvpe(argv[0], list(argv), os.environ)
        except OSError as error:
            raise NotStartedError(argv[0], error) from None
    return Session(log, os.environ, print_stderr, stall, report, quiet).run(argv)
