"""What jobs of one input are called: after their pods, their files, or their number."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from nccl_inspect.model.shares import Share
from nccl_inspect.text import printable

_END = re.compile(r"[^A-Za-z0-9]*$")
_SUFFIX = re.compile(r"(?:\.(?:log|txt|out|err|gz|bz2|xz|zst))+$")


def titles(shares: Sequence[Share]) -> list[str]:
    """A name for each job, all different, in the order of the jobs."""
    owners = Counter(number for share in shares for number in share.numbered)
    files = _short({number: source.name for share in shares for number, source in share.numbered.items()})
    found = []
    for index, share in enumerate(shares, 1):
        own = [files[number] for number in share.numbered if owners[number] == 1]
        is_split = len(own) < len(share.numbered) or len(files) == 1
        found.append(_common(_labels(share)) or ("" if is_split else _common(own)) or f"job {index}")
    return _different(found)


def _labels(share: Share) -> list[str]:
    labels = (log.opening.label for log in share.processes.values() if log.process.host)
    return list(dict.fromkeys(printable(label) for label in labels if label))


def _short(names: Mapping[int, str]) -> dict[int, str]:
    """Files without what all of them have in common: their folder, their suffix, or their own name in other folders."""
    folders = {number: name.rpartition("/")[0] for number, name in names.items()}
    folder = os.path.commonpath(list(folders.values())) if len(names) > 1 and all(folders.values()) else ""
    short = {number: printable(name.removeprefix(folder).lstrip("/") if folder else name) for number, name in names.items()}
    bare = {number: name.rpartition("/")[0] for number, name in short.items()}
    if all(bare.values()) and len(set(bare.values())) == len(bare):
        return bare
    plain = {number: _SUFFIX.sub("", name) for number, name in short.items()}
    return plain if all(plain.values()) and len(set(plain.values())) == len(plain) else short


def _common(names: Sequence[str]) -> str:
    """What names begin with; empty where they have next to nothing in common."""
    if len(names) == 1:
        return names[0]
    begin = _END.sub("", os.path.commonprefix(list(names)))
    return begin if len(begin) > 1 else ""


def _different(names: Sequence[str]) -> list[str]:
    """The same names, numbered where several are alike."""
    several = Counter(names)
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name} ({seen[name]})" if several[name] > 1 else name)
    return found
