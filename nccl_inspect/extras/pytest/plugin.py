"""Pytest plugin: jobs as fixtures, and assertions that fail with the finding and the lines that prove it.

nccl-inspect is not loaded before a test needs it.  PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nccl_inspect.extras.pytest.acceptance import TestedJob
    from nccl_inspect.ingest.sources.files import Input

_MARK = "nccl_log"
_HELP = (
    "nccl_log(*paths, platform=None, topology=(), select=(), ignore=(), config=None): "
    "the log for the fixture nccl_log; options as for nccl_inspect.read. "
    "Default: the log of --nccl-log."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--nccl-log``."""
    group = parser.getgroup("nccl-inspect")
    group.addoption(
        "--nccl-log",
        action="append",
        default=[],
        metavar="PATH",
        help="NCCL log (file, folder or glob) for tests that use nccl_log. May be repeated: one job.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _HELP)


@pytest.fixture(scope="session")
def nccl_job() -> Callable[..., TestedJob]:
    """Return a loader: ``nccl_job("job.log")`` reads and judges a log and returns a job with assertions."""
    return _load


@pytest.fixture(scope="session")
def _nccl_jobs() -> dict[str, TestedJob]:
    """Return the jobs of ``nccl_log``: a log is read once for all its tests."""
    return {}


@pytest.fixture
def nccl_log(request: pytest.FixtureRequest, _nccl_jobs: dict[str, TestedJob]) -> TestedJob:
    """Return the job of the log that the marker ``nccl_log`` or the option ``--nccl-log`` names, with assertions."""
    marker = request.node.get_closest_marker(_MARK)
    here, start, paths = request.path.parent, request.config.invocation_params.dir, []
    for path in marker.args if marker else ():  # relative to the test file, else to where pytest was started
        is_pattern = any(mark in str(path) for mark in "*?[") and not Path(path).is_absolute()
        is_beside = (here / path).exists() or (is_pattern and any(here.glob(str(path))))
        paths.append(str((here if is_beside else start) / path))
    paths = paths or [str(start / path) for path in request.config.getoption("--nccl-log")]
    if not paths:
        pytest.fail(
            f"{request.node.name} has no log: run pytest with --nccl-log PATH, or mark it @pytest.mark.{_MARK}(PATH)",
            pytrace=False,
        )
    options = dict(marker.kwargs) if marker else {}
    key = repr((paths, sorted(options.items())))
    if key not in _nccl_jobs:
        from nccl_inspect.errors import NcclInspectError

        try:
            _nccl_jobs[key] = _load(paths, **options)
        except NcclInspectError as error:
            pytest.fail(str(error), pytrace=False)
    return _nccl_jobs[key]


def _load(inputs: Input | Sequence[Input], **options: Any) -> TestedJob:
    import nccl_inspect
    from nccl_inspect.extras.pytest.acceptance import TestedJob

    read: Callable[..., Any] = nccl_inspect.read
    return TestedJob.from_job(read(inputs, **options))
