"""Signals of Linux as programs print them: by number, by name, or in the words of ``strsignal()``."""

from __future__ import annotations

_TABLE = (
    *((1, "SIGHUP", "Hangup"), (2, "SIGINT", "Interrupt"), (3, "SIGQUIT", "Quit")),
    *((4, "SIGILL", "Illegal instruction"), (5, "SIGTRAP", "Trace/breakpoint trap"), (6, "SIGABRT", "Aborted")),
    *((7, "SIGBUS", "Bus error"), (8, "SIGFPE", "Floating point exception"), (9, "SIGKILL", "Killed")),
    *((10, "SIGUSR1", "User defined signal 1"), (11, "SIGSEGV", "Segmentation fault")),
    *((12, "SIGUSR2", "User defined signal 2"), (13, "SIGPIPE", "Broken pipe"), (14, "SIGALRM", "Alarm clock")),
    *((15, "SIGTERM", "Terminated"), (24, "SIGXCPU", "CPU time limit exceeded")),
)
WORDS = tuple(words for _, _, words in _TABLE)  # as `strsignal()` describes signals
_NAMES = {number: name for number, name, _ in _TABLE}
_NUMBERS = {key: number for number, name, words in _TABLE for key in (name, words)}
_IN_STATUS = 128  # what shells and containers add to a signal to make an exit status of it


def number(text: str) -> int | None:
    """Return the number of a signal: of ``9``, ``SIGKILL``, ``Signals.SIGKILL`` or ``Killed``; None for other words."""
    return int(text) if text.isdecimal() else _NUMBERS.get(text.removeprefix("Signals."))


def name(number: int) -> str:
    """Return the name of a signal; its number where it has none."""
    return _NAMES.get(number, str(number))


def exit_code(status: int) -> int:
    """Return the exit code of the status of a shell or container, which has signals as 128 + number: negative then."""
    return _IN_STATUS - status if status > _IN_STATUS else status


def status_words(status: int) -> str:
    """Return an exit status, with the signal that it stands for: ``137 (SIGKILL)``."""
    signal = _NAMES.get(-exit_code(status))
    return f"{status} ({signal})" if signal else str(status)
