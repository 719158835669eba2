"""Finds files by where they are: commands, formats, rules and readers exist by having one, and so do settings."""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from nccl_inspect.util.grouping import group_values

SETTINGS = "nccl-inspect.toml"  # the name of settings files
_MOST_NAMES = 20_000  # entries of a folder that are compared with a name
_NEAR = 0.6  # how alike names are that one may be typed for the other, of 1


def settings_file(folder: Path) -> Path | None:
    """Return the settings file of a folder: there, or in the nearest folder above."""
    return next((path for above in (folder, *folder.parents) if (path := above / SETTINGS).is_file()), None)


def modules(package_file: str, *parts: str) -> list[str]:
    """Return the names of the modules beside a package's ``__init__.py``, in order, without those that others share."""
    names = (entry.name[:-3] for entry in os.scandir(Path(package_file).parent) if entry.name.endswith(".py"))
    return sorted(name for name in names if not name.startswith(("__init__", "cli_")) and name not in parts)


def package(
    name: str, file: str, *parts: str, first: str = ""
) -> tuple[Callable[[], tuple[str, ...]], Callable[[str], Any]]:
    """Return what lists the modules of a package that do the same for different things, and what loads one of them.

    The first one is that of the default; parts are as for :func:`modules`.
    """
    return (
        lambda: tuple(sorted(modules(file, *parts), key=lambda one: one != first)),
        lambda one: import_module(f"{name}.{one}"),
    )


def suggest_path(path: Path, otherwise: str) -> str:
    """Return what to do about a path that leads nowhere: a question that names similar ones, if there are any."""
    if os.access(path, os.F_OK):  # unlike Path.exists, it gives no error where a folder above may not be read
        return otherwise
    place, rest = path, Path()
    while not os.access(place.parent, os.F_OK):
        place, rest = place.parent, place.name / rest
    from difflib import get_close_matches  # only for the error

    names: list[str] = []
    with suppress(OSError), os.scandir(place.parent) as entries:  # no folder, or none that may be read
        names = sorted(entry.name for entry in islice(entries, _MOST_NAMES))
    # The same file packed, or unpacked, or a name with a slip.
    same = [name for name in names if name.startswith(f"{place.name}.") or place.name.startswith(f"{name}.")]
    stems = group_values((Path(name).stem.lower(), name) for name in names)
    near = [name for stem in get_close_matches(place.stem.lower(), stems, cutoff=_NEAR) for name in stems[stem]]
    found = same[:3] or get_close_matches(place.name, near, cutoff=_NEAR) or near[:3]
    similar = [str(place.parent / name / rest) for name in found if os.access(place.parent / name / rest, os.F_OK)]
    return f"did you mean {' or '.join(similar)}?" if similar else otherwise
