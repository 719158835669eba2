"""Settings by rank: which variable has which value where, and who put it there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import EnvSetting
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.job import Setting
from nccl_inspect.model.statements.index import Line, StatementLine, Statements, by_process
from nccl_inspect.model.versions import find_related, order
from nccl_inspect.util import secrets
from nccl_inspect.util.records import Record, record

MAX_EVIDENCE = 8
"""Lines kept to support one statement, however many processes made it."""


@record
class _Value(Record):
    source: str
    processes: list[Process] = field(default_factory=list)
    lines: list[StatementLine] = field(default_factory=list)


def is_echoed(name: str, releases: Iterable[str]) -> bool:
    """Return whether NCCL prints a variable when it uses it, so that its absence from a log says something.

    Args:
        name: of the variable.
        releases: that wrote the log, as it states them.
    """
    if name == "NCCL_P2P_DISABLE":
        return all(order(release) >= (2, 23) for release in releases)
    return not name.startswith("NCCL_DEBUG")


def settings(
    processes: Iterable[ProcessMembers],
    statements: Statements,
    ranks: dict[Process, list[int]],
    line: Line,
    releases: list[str],
) -> list[Setting]:
    """Return the settings of a job, ordered by name and value.

    Args:
        processes: of the job.
        statements: that they made.
        ranks: the global ranks of each process.
        line: makes evidence of lines.
        releases: of NCCL that wrote the log, as it states them.
    """
    by_value: dict[tuple[str, str], _Value] = {}
    total = 0
    stated = by_process(statements.find_kind(EnvSetting))
    for process in (entry.log.process for entry in processes):
        total += 1
        for (name, value), (source, statement) in _values(stated.get(process, ())).items():
            entry = by_value.setdefault((name, value), _Value(source))
            entry.processes.append(process)
            entry.lines.append(statement)
    settings_list = [
        _setting(name, value, entry, total, ranks, line) for (name, value), entry in sorted(by_value.items())
    ]
    for setting in settings_list:
        setting.alike = find_related(setting.name, setting.value, releases)
    return settings_list


def _values(lines: Iterable[StatementLine]) -> dict[tuple[str, str], tuple[str, StatementLine]]:
    """Return what a process says of its settings."""
    values: dict[tuple[str, str], tuple[str, StatementLine]] = {}
    for statement in lines:
        event = statement.event
        assert isinstance(event, EnvSetting)
        # What a plugin put into the environment is echoed later as if the user had set it: the first line counts.
        values.setdefault((event.name, event.value), (event.origin, statement))
    return values


def _setting(
    name: str,
    value: str,
    entry: _Value,
    total: int,
    ranks: dict[Process, list[int]],
    line: Line,
) -> Setting:
    everywhere = len(entry.processes) == total
    own = sorted({rank for process in entry.processes for rank in ranks[process]})
    lines = sorted(entry.lines, key=lambda statement: statement.place)
    return Setting(
        name=name,
        value=secrets.mask_value(name, value),
        source=entry.source,
        ranks=None if everywhere else own,
        hosts=list(dict.fromkeys(process[0] for process in entry.processes)),
        processes=list(entry.processes),
        evidence=[statement.line(line) for statement in lines[:MAX_EVIDENCE]],
    )
