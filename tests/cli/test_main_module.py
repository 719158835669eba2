"""``python -m nccl_inspect`` where the script is not on the path."""

from __future__ import annotations

import subprocess
import sys

from nccl_inspect import __version__


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nccl_inspect", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"nccl-inspect, version {__version__}\n"
