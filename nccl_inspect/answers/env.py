"""The variables of the job by value: which ranks have it, and what set it."""

from __future__ import annotations

from collections.abc import Mapping

from nccl_inspect.answers import Column, place
from nccl_inspect.model.job import Job, Setting
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import ranges


@frozen
class SettingRow(Frozen):
    """A variable with one of its values."""

    name: str
    value: str
    set_by: str
    """``environment``, ``config``, ``plugin`` or ``unknown``."""
    ranks: list[int]
    hosts: list[str]
    everywhere: bool
    """Every process shows it."""
    differs: bool
    """There are several values of this variable, or only some processes show it."""
    note: str | None
    """``outlier`` (far fewer processes have this value than another one), ``differs``, or None where all agree."""
    source: str | None
    line: int | None


RECORD = SettingRow
COLUMNS = (
    Column("name", "variable"),
    Column("value", "value", least=12),
    Column("set_by", "set by", goes=2),
    Column("ranks", "ranks", least=8, text=lambda row: "all" if row.everywhere else ranges(row.ranks)),
    Column("note", "note", goes=3),
    Column("line", "line", goes=1, text=lambda row: place(row.source, row.line)),
)


def is_bad(row: SettingRow) -> bool:
    """Whether few processes have this value."""
    return row.note == "outlier"


def rows(job: Job) -> list[SettingRow]:
    """One for each variable and value, by name."""
    sizes: dict[str, dict[str, int]] = {}
    for setting in job.environment:
        sizes.setdefault(setting.name, {})[setting.value] = len(setting.processes)
    notes = {name: unusual(values) for name, values in sizes.items()}
    return [_row(setting, notes[setting.name], job) for setting in job.environment]


def _row(setting: Setting, notes: Mapping[str, str], job: Job) -> SettingRow:
    first = setting.evidence[0] if setting.evidence else None
    everywhere = setting.ranks is None
    differs = len(notes) > 1 or not everywhere
    return SettingRow(
        name=setting.name,
        value=setting.value,
        set_by=setting.source,
        ranks=list(job.ranks_seen) if setting.ranks is None else setting.ranks,
        hosts=setting.hosts,
        everywhere=everywhere,
        differs=differs,
        note=notes[setting.value] or ("differs" if differs else None),
        source=first.source if first else None,
        line=first.line if first else None,
    )


def unusual(sizes: Mapping[str, int]) -> dict[str, str]:
    """Return what is unusual about each value: ``outlier``, ``differs`` or nothing."""
    if len(sizes) == 1:
        return dict.fromkeys(sizes, "")
    most = max(sizes.values(), default=0)
    return {value: "outlier" if size * 2 < most else "differs" for value, size in sizes.items()}
