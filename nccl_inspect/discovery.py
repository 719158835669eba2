"""Finds the modules of a folder: commands, formats, rules, envelopes and readers exist by having a file."""

from pathlib import Path


def modules(package_file: str, *parts: str) -> list[str]:
    """The names of the modules beside a package's ``__init__.py``, in order.

    Args:
        package_file: the ``__file__`` of the package.
        parts: modules that are shared by the others and none of them.
    """
    names = (path.stem for path in Path(package_file).parent.glob("*.py"))
    return sorted(name for name in names if name != "__init__" and name not in parts)
