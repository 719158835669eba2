"""The rows of a report about the evidence beside the log, and about skipped files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nccl_inspect.ingest.sources.log_detection import HARMLESS, OTHER, UNKNOWN
from nccl_inspect.model.inventory import Artifact, PassedOver
from nccl_inspect.model.job import Job
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.wording import count

_MAX_UNUSED = 3
_MAX_PASSED = 3
_PLAIN = (UNKNOWN, OTHER)
"""Reasons that need no mention."""


def rows(job: Job) -> Iterator[tuple[str, str]]:
    """The evidence in use by kind, the unused evidence, and the skipped files, if any."""
    used = Counter(entry.kind for entry in job.artifacts if not entry.problem)
    if used:
        yield "evidence", ", ".join(count(number, kind) for kind, number in used.items())
    unused = list(problems(job.artifacts, short=True))
    for place, words in enumerate(unused[:_MAX_UNUSED]):
        yield "" if place else "not used", words
    if len(unused) > _MAX_UNUSED:
        yield "", f"… and {len(unused) - _MAX_UNUSED} more"
    if job.passed_over:
        yield "passed over", _passed(job.passed_over)


def problems(artifacts: Iterable[Artifact], short: bool = False) -> Iterator[str]:
    """Unused evidence and the reasons; files of the same kind and reason together.

    Args:
        artifacts: used or not.
        short: without folders and without "not used", which the label of the row says.
    """
    groups = grouped(((entry.kind, entry.problem), entry.name) for entry in artifacts if entry.problem)
    for (kind, problem), names in groups.items():
        name = _base(names[0]) if short else names[0]
        if len(names) > 1:
            what = f"{count(len(names), kind)} ({name}, …)"
            yield f"{what}: {problem}" if short else f"{what} not used: {problem}"
        else:
            yield f"{name} ({kind}): {problem}" if short else f"{name}: {kind} not used: {problem}"


def _passed(files: list[PassedOver]) -> str:
    """A few skipped files, first those whose name does not explain the reason."""
    ordered = sorted(files, key=lambda file: _weight(file.reason))
    words = (_base(file.name) if file.reason in _PLAIN else f"{_base(file.name)} ({file.reason})" for file in ordered)
    names = list(dict.fromkeys(words))
    number = f"{len(files):,} files: " if len(files) > 1 else ""
    return f"{number}{', '.join(names[:_MAX_PASSED])}{', …' if len(names) > _MAX_PASSED else ''}"


def _weight(reason: str) -> int:
    """The sort key of a skipped file: first those that may have been meant as input."""
    if reason == OTHER:
        return 3
    return 1 if reason == UNKNOWN else 2 if reason in HARMLESS else 0


def _base(name: str) -> str:
    return name.rpartition("/")[2]
