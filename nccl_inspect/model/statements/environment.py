"""Settings by rank: which variable has which value where, and who put it there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import EnvSetting
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.job import Setting
from nccl_inspect.model.statements.index import Line, StatementLine, Statements, by_process
from nccl_inspect.model.versions import find_related, order
from nccl_inspect.util import secrets

MAX_EVIDENCE = 8  # lines kept to support one statement, however many processes made it


def is_echoed(name: str, releases: Iterable[str]) -> bool:
    """Return whether NCCL prints a variable when it uses it, so that its absence from a log says something."""
    if name == "NCCL_P2P_DISABLE":
        return all(order(release) >= (2, 23) for release in releases)
    return not name.startswith("NCCL_DEBUG")


def settings(
    processes: Sequence[ProcessMembers],
    statements: Statements,
    ranks: dict[Process, list[int]],
    line: Line,
    releases: list[str],
) -> list[Setting]:
    """Return the settings of a job, ordered by name and value."""
    by_value: dict[tuple[str, str], list[StatementLine]] = {}
    """The first line of each process: what a plugin put into the environment is echoed later as if the user set it."""
    stated = by_process(statements.find_kind(EnvSetting))
    for process in (entry.log.process for entry in processes):
        values: dict[tuple[str, str], StatementLine] = {}
        for statement in stated.get(process, ()):
            if isinstance(statement.event, EnvSetting):
                values.setdefault((statement.event.name, statement.event.value), statement)
        for key, statement in values.items():
            by_value.setdefault(key, []).append(statement)
    found = []
    for (name, value), lines in sorted(by_value.items()):
        owners = [line.statement.processes[line.row] for line in lines]
        first = lines[0].event
        quoted = sorted(lines, key=lambda statement: statement.place)[:MAX_EVIDENCE]
        found.append(
            Setting(
                name=name,
                value=secrets.mask_value(name, value),
                source=first.origin if isinstance(first, EnvSetting) else "",
                ranks=sorted({rank for one in owners for rank in ranks[one]}) if len(lines) < len(processes) else None,
                hosts=list(dict.fromkeys(owner.host for owner in owners)),
                processes=owners,
                evidence=[statement.line(line) for statement in quoted],
                alike=find_related(name, secrets.mask_value(name, value), releases),
            )
        )
    return found
