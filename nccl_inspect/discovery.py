"""Finds files by where they are: commands, formats, rules and readers exist by having one, and so do settings."""

import os
from pathlib import Path

SETTINGS = "nccl-inspect.toml"
"""The name of settings files."""


def settings_file(folder: Path) -> Path | None:
    """The settings file of a folder: there, or in the nearest folder above."""
    return next((path for above in (folder, *folder.parents) if (path := above / SETTINGS).is_file()), None)


def modules(package_file: str, *parts: str) -> list[str]:
    """The names of the modules beside a package's ``__init__.py``, in order.

    Args:
        package_file: the ``__file__`` of the package.
        parts: modules that are shared by the others and none of them.
    """
    names = (entry.name[:-3] for entry in os.scandir(Path(package_file).parent) if entry.name.endswith(".py"))
    return sorted(name for name in names if name != "__init__" and name not in parts)
