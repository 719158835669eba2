"""Settings by rank: which variable has which value where, and who put it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import EnvSetting
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model import setting_names
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Note
from nccl_inspect.model.job import Setting
from nccl_inspect.model.versions import order
from nccl_inspect.util import secrets
from nccl_inspect.util.records import Record, record
from nccl_inspect.util.text import decode

MAX_EVIDENCE = 8
"""Lines kept to support one statement, however many processes made it."""


@record
class _Value(Record):
    source: str
    processes: list[Process] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def is_echoed(name: str, releases: Iterable[str]) -> bool:
    """Whether NCCL prints a variable when it uses it, so that its absence from a log says something.

    Args:
        name: of the variable.
        releases: that wrote the log, as it states them.
    """
    if name == "NCCL_P2P_DISABLE":
        return all(order(release) >= (2, 23) for release in releases)
    return not name.startswith("NCCL_DEBUG")


def settings(
    processes: Iterable[ProcessMembers],
    ranks: dict[Process, list[int]],
    evidence: Callable[[int, Origin, str, str], Evidence],
    releases: list[str],
) -> list[Setting]:
    """The settings of a job, ordered by name and value.

    Args:
        processes: with the statements that they made.
        ranks: the global ranks of each process.
        evidence: makes evidence of (place, origin, level, message).
        releases: of NCCL that wrote the log, as it states them.
    """
    by_value: dict[tuple[str, str], _Value] = {}
    total = 0
    for process in processes:
        total += 1
        for (name, value), (source, note) in _of_process(process).items():
            entry = by_value.setdefault((name, value), _Value(source))
            entry.processes.append(process.log.process)
            entry.notes.append(note)
    settings_list = [
        _setting(name, value, entry, total, ranks, evidence) for (name, value), entry in sorted(by_value.items())
    ]
    for setting in settings_list:
        setting.alike = setting_names.of(setting.name, setting.value, releases)
    return settings_list


def _of_process(process: ProcessMembers) -> dict[tuple[str, str], tuple[str, Note]]:
    values: dict[tuple[str, str], tuple[str, Note]] = {}
    notes = [note for note in process.log.notes.values() if isinstance(note.event, EnvSetting)]
    for note in sorted(notes, key=lambda note: note.place):
        assert isinstance(note.event, EnvSetting)
        # What a plugin put into the environment is echoed later as if the user had set it: the first line counts.
        values.setdefault((note.event.name, note.event.value), (note.event.origin, note))
    return values


def _setting(
    name: str,
    value: str,
    entry: _Value,
    total: int,
    ranks: dict[Process, list[int]],
    evidence: Callable[[int, Origin, str, str], Evidence],
) -> Setting:
    everywhere = len(entry.processes) == total
    own = sorted({rank for process in entry.processes for rank in ranks[process]})
    notes = sorted(entry.notes, key=lambda note: note.place)
    return Setting(
        name=name,
        value=secrets.value_of(name, value),
        source=entry.source,
        ranks=None if everywhere else own,
        hosts=list(dict.fromkeys(process[0] for process in entry.processes)),
        processes=list(entry.processes),
        evidence=[evidence(note.place, note.origin, note.level, decode(note.message)) for note in notes[:MAX_EVIDENCE]],
    )
