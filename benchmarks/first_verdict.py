"""From nothing to a verdict, as a newcomer goes: ``python benchmarks/first_verdict.py`` prints how long each step took.

Each way starts in an empty folder, without caches of this project; pip may have files of other packages in its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT / "sample_logs" / "efa-provider-missing-socket-fallback" / "job.log"
PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
WAYS = {
    "pip": (
        f"{PYTHON} -m venv env",
        f"env/bin/pip install --quiet {ROOT}",
        f"env/bin/nccl-inspect summarize {LOG}",
    ),
    "pipe": (
        f"cat {LOG} | {PYTHON} -I nccl-inspect.pyz summarize",
        f"cat {LOG} | {PYTHON} -I nccl-inspect.pyz summarize",
    ),
}
"""The steps of each; of the pipe the first run, which unpacks, and the next."""


def main() -> None:
    """Take both ways; the zipapp stands for the one that a release brings."""
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name, "nccl-inspect.pyz")
        subprocess.run([sys.executable, ROOT / "tools" / "pyz.py", archive], check=True, stderr=subprocess.DEVNULL)
        print(f"zipapp: {archive.stat().st_size / 1e6:.1f} MB")
        for way, steps in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, archive.name).symlink_to(archive)
                take(way, steps, folder)


def take(way: str, steps: tuple[str, ...], folder: str) -> None:
    """Run the steps of a way in a folder, and print how long each took."""
    environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache", "PIP_NO_CACHE_DIR": "1"}
    for step in steps:
        began, used = time.monotonic(), processor()
        done = subprocess.run(step, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{step}\n{done.stderr}")
        words = step.replace(str(ROOT), ".").replace(str(PYTHON), "python3").replace(str(LOG.relative_to(ROOT)), "LOG")
        print(f"{way:5} {time.monotonic() - began:5.1f} s ({processor() - used:4.1f} s of a processor)  {words}")
    print(f"      {done.stdout.splitlines()[0]}")


def processor() -> float:
    """Return seconds of processor time that all programs took so far: they hardly depend on what else runs."""
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    main()
