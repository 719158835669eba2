"""What all tests share: neither the speed of the machine nor how they were started must matter."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import stub_cluster
from chromium import BROWSER, QUIET
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# What asserts fail with is told as in tests.
_HELPERS = {file.stem for file in (Path(__file__).parent / "helpers").glob("*.py")}
pytest.register_assert_rewrite(*sorted(_HELPERS - sys.modules.keys()))

# `make test` asks few examples, `make test-all` many (--hypothesis-profile=thorough), both the same everywhere;
# `make fuzz` searches for others.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("quick", _PATIENT, max_examples=16, derandomize=True)
settings.register_profile("thorough", _PATIENT, max_examples=100, derandomize=True)
settings.load_profile("quick")

# pytest-xdist tells its workers a width; without it output is what a pipe or file gets.
# Colors are for terminals, whatever the machine that runs the tests asks for.
for _variable in ("COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(_variable, None)

# Shells start what is to run in the background with SIGINT ignored, and all programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests of the assistant, all slow, where these are not run: to import its SDK takes seconds."""
    return True if collection_path.name == "assistant" and config.getoption("markexpr") == "not slow" else None


def pytest_collection_finish() -> None:
    """Leave what was collected out of each garbage collection: looking through it takes a tenth of the tests' time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of programs that answer what stands in ``answers.json``; nothing else is on the path."""
    folder = tmp_path / "bin"
    stub_cluster.programs(folder)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("NCCL_RAS_ADDR", "localhost:9")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield the browser; tests that need it are skipped where it is missing."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=QUIET)
        yield browser
        browser.close()
