"""What all tests share: neither the speed of the machine nor how they were started must matter."""

import os
import signal
from pathlib import Path

import pytest
import stub_cluster
from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

# pytest-xdist tells its workers a width; without it output is what a pipe or file gets.
os.environ.pop("COLUMNS", None)

# Shells start what is to run in the background with SIGINT ignored, and all programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester"]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that answer what stands in ``answers.json``; nothing else is on the path."""
    folder = tmp_path / "bin"
    stub_cluster.programs(folder)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("NCCL_RAS_ADDR", "localhost:9")
    monkeypatch.chdir(tmp_path)
    return folder
