"""Settings by rank: which variable has which value where, and who put it there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import EnvSetting
from nccl_inspect.model.communicators.communicator import ProcessMembers
from nccl_inspect.model.fold import PLACE, Note
from nccl_inspect.model.job import Setting
from nccl_inspect.model.statements.index import Quotes, Statement, by_process
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
    statements: Iterable[Statement],
    ranks: dict[Process, list[int]],
    quotes: Quotes,
    releases: list[str],
) -> list[Setting]:
    """Return the settings of a job, ordered by name and value."""
    by_value: dict[tuple[str, str], list[tuple[Process, Note]]] = {}
    """The first line of each process: what a plugin put into the environment is echoed later as if the user set it."""
    stated = by_process(statement for statement in statements if isinstance(statement.event, EnvSetting))
    for process in (entry.log.process for entry in processes):
        values: dict[tuple[str, str], Note] = {}
        for note in stated.get(process, ()):
            if isinstance(note.event, EnvSetting):
                values.setdefault((note.event.name, note.event.value), note)
        for key, note in values.items():
            by_value.setdefault(key, []).append((process, note))
    found = []
    for (name, value), lines in sorted(by_value.items()):
        owners = [process for process, _ in lines]
        first = lines[0][1].event
        quoted = sorted((note for _, note in lines), key=PLACE)[:MAX_EVIDENCE]
        found.append(
            Setting(
                name=name,
                value=secrets.mask_value(name, value),
                source=first.origin if isinstance(first, EnvSetting) else "",
                ranks=sorted({rank for one in owners for rank in ranks[one]}) if len(lines) < len(processes) else None,
                hosts=list(dict.fromkeys(owner.host for owner in owners)),
                processes=owners,
                evidence=list(map(quotes.note, quoted)),
                alike=find_related(name, secrets.mask_value(name, value), releases),
            )
        )
    return found
