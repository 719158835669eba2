"""Builds ``nccl-inspect.pyz``: the command in one file that any Python from 3.11 on runs, without installing anything.

``python tools/pyz.py [FILE]``; ``--needs`` only lists what goes into it. pandas and pyarrow are left out, because only
exports need them, and so is numpy, which only makes large logs faster. The first run unpacks the file into a folder of
the user's cache, since compiled parts and data cannot be read from within it. Compiled parts are those of the Python
and machine that built it; on others the pure ones take over, with the same reports.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipapp
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEFT_OUT = ("numpy", "pandas", "pyarrow")
MAIN = '''\
import hashlib, os, shutil, sys, tempfile, zipfile
from pathlib import Path

def unpacked(archive):
    """The folder with what the archive holds; made once for each archive and Python."""
    mark = hashlib.sha256(Path(archive).read_bytes()).hexdigest()[:16]
    name = f"{mark}-{sys.implementation.cache_tag}"
    for base in (os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), None):
        folder = Path(base or tempfile.mkdtemp(), "nccl-inspect", name)
        if folder.is_dir():
            return folder
        try:
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = tempfile.mkdtemp(dir=folder.parent)
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(fresh)
            try:
                os.rename(fresh, folder)
            except OSError:  # another run was faster
                shutil.rmtree(fresh, ignore_errors=True)
            if folder.is_dir():
                return folder
        except OSError:
            continue
    sys.exit("nccl-inspect: nowhere to unpack to; set XDG_CACHE_HOME to a folder that can be written")

if sys.version_info < (3, 11):
    sys.exit("nccl-inspect: Python 3.11 or newer is needed")
sys.path.insert(0, str(unpacked(sys.argv[0])))
from nccl_inspect.cli import main
main()
'''


def build(target: Path) -> None:
    """Install the package and what it needs into a folder, and pack that."""
    with tempfile.TemporaryDirectory() as folder:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder]
        subprocess.run([*install, *list_needs()], check=True)
        subprocess.run([*install, "--no-deps", str(ROOT)], check=True)
        for name in ("bin", "share"):  # of all packages
            shutil.rmtree(Path(folder, name), ignore_errors=True)
        for cache in Path(folder).rglob("__pycache__"):
            shutil.rmtree(cache)
        Path(folder, "__main__.py").write_text(MAIN, encoding="utf-8")
        zipapp.create_archive(folder, target, "/usr/bin/env python3", compressed=True)


def list_needs() -> list[str]:
    """Return what the package depends on, without what is left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [dependency for dependency in project["dependencies"] if not dependency.startswith(LEFT_OUT)]


if __name__ == "__main__":
    if sys.argv[1:] == ["--needs"]:
        print(*list_needs(), sep="\n")
    else:
        build(Path(sys.argv[1] if len(sys.argv) > 1 else "nccl-inspect.pyz"))
