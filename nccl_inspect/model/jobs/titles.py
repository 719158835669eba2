"""What jobs of one input are called: after their files, their pods, or their number."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.util.text import printable

if TYPE_CHECKING:
    from nccl_inspect.model.jobs.shares import Share

_END = re.compile(r"[^A-Za-z0-9]*$")
_POD = "pod/"
"""What kubectl puts in front of the name of a pod; that of the container follows it."""
_SUFFIX = re.compile(r"(?:\.(?:log|txt|out|err|gz|bz2|xz|zst))+$")


def titles(shares: Sequence[Share]) -> list[str]:
    """A name for each job, all different, in the order of the jobs."""
    owners = Counter(number for share in shares for number in share.numbered)
    files = _short({number: source.name for share in shares for number, source in share.numbered.items()})
    names = []
    for index, share in enumerate(shares, 1):
        own = [files[number] for number in share.numbered if owners[number] == 1]
        is_split = len(own) < len(share.numbered) or len(files) == 1
        names.append(("" if is_split else _common(own)) or _common(_labels(share)) or f"job {index}")
    return _different(names)


def _labels(share: Share) -> list[str]:
    """The names of pods or nodes; what else collectors print holds pids."""
    labels = (log.opening.label for log in share.processes.values() if log.process.host)
    plain = (label for label in labels if label and not any(map(str.isspace, label)))
    return list(dict.fromkeys(printable(label.removeprefix(_POD).partition("/")[0]) for label in plain))


def _short(names: Mapping[int, str]) -> dict[int, str]:
    """Files without the folder that all of them are in; one that is alone in its folder has the name of that."""
    folders = [name.rpartition("/")[0] for name in names.values()]
    top = os.path.commonpath(folders) if len(names) > 1 and all(folders) else ""
    short = {number: printable(name.removeprefix(top).lstrip("/") if top else name) for number, name in names.items()}
    alone = Counter(name.rpartition("/")[0] for name in short.values())
    return {
        number: folder if (folder := name.rpartition("/")[0]) and alone[folder] == 1 else _SUFFIX.sub("", name) or name
        for number, name in short.items()
    }


def _common(names: Sequence[str]) -> str:
    """Return what names begin with; empty where they have next to nothing in common."""
    if len(names) == 1:
        return names[0]
    begin = _END.sub("", os.path.commonprefix(list(names)))  # noqa: RUF071
    return begin if len(begin) > 1 else ""


def _different(names: Sequence[str]) -> list[str]:
    """Return the same names, numbered where several are alike."""
    several = Counter(names)
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name} ({seen[name]})" if several[name] > 1 else name)
    return numbered
