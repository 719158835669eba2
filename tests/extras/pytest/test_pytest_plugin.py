"""The pytest plugin: fixtures, marker, option, and what its assertions say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import sample_data
from repository import ROOT

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.pytest.acceptance import TestedJob
from nccl_inspect.model.job import Job

GOOD = sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log"
SHM = sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log"
NET = sample_data.FOLDER / "v2.28.9-libfabric-2node" / "job.log"
LOST = sample_data.FOLDER / "efa-provider-missing-socket-fallback" / "job.log"
DEAD = sample_data.FOLDER / "peer-killed" / "job.log"


def job_of(log: Path | bytes, **options: str) -> TestedJob:
    return TestedJob.from_job(nccl_inspect.read(str(log) if isinstance(log, Path) else log, **options))


def failure(call: object, *words: object, **options: object) -> str:
    with pytest.raises(AssertionError) as caught:
        call(*words, **options)  # type: ignore[operator]
    return str(caught.value)


def test_a_tested_job_is_a_job() -> None:
    job = job_of(GOOD)
    assert isinstance(job, Job)
    assert job.to_dict() == nccl_inspect.read(str(GOOD)).to_dict()
    job.assert_ok()
    job.assert_no_findings("info")
    job.assert_transport("P2P")
    job.assert_transport("P2P/CUMEM", scope="intra")
    assert job.assert_path(0, 1, "P2P").detail == "P2P/CUMEM"
    job.assert_policy(world_size=8, hosts=1, paths={"intra": {"transport": "P2P"}}, environment={"forbidden": "X_*"})


def test_assertions_say_what_is_wrong() -> None:
    shm, net, dead = job_of(SHM), job_of(NET), job_of(DEAD)
    text = failure(shm.assert_ok)
    assert text.startswith("the verdict is degraded, not ok\n\nwarning p2p-disabled-by-env (certain")
    assert f"{SHM}:117: " in text
    text = failure(shm.assert_transport, "P2P", scope="intra")
    assert "4 pairs (0->1, 1->2, 2->3 and 1 more) use SHM/direct, wanted: transport P2P" in text
    assert "via SHM/direct" in text
    assert "NCCL_P2P_DISABLE set by environment to 1" in text
    text = failure(shm.assert_path, 0, 1, "P2P/*")
    assert text.startswith("0 -> 1 uses SHM/direct, wanted: P2P/*\n")
    assert "no connection line from rank 0 to rank 9" in failure(shm.assert_path, 0, 9, "P2P")
    assert "no network path in the log" in failure(shm.assert_gdr)
    assert "have no GPUDirect RDMA" in failure(net.assert_gdr)
    assert "error" in failure(dead.assert_no_findings, "error")
    assert dead.assert_finding(dead.findings[0].rule) is dead.findings[0]
    assert "no finding gdr-disabled; found: " in failure(dead.assert_finding, "gdr-disabled")
    shm.assert_no_findings("error")
    shm.assert_no_findings(ignore=["p2p-*", "shm-instead-of-p2p"])
    assert repr(shm) == f"<NCCL job {SHM}: degraded, 2 findings>"


def test_what_the_log_does_not_show_is_no_proof() -> None:
    job = job_of(b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000\n")
    assert "the verdict is unknown" in failure(job.assert_ok)
    assert "no connection" in failure(job.assert_transport, "P2P", scope="intra")
    assert "no network path" in failure(job.assert_gdr)
    job.assert_policy(world_size=2)
    assert "no communicator of all ranks" in failure(job.assert_policy, world_size=2, strict=True)
    job = job_of(GOOD)
    job.assert_policy(paths={"inter": {"transport": "NET"}})
    for expected in ({"transport": "NET"}, {"gdr": True}, {"min_channels": 2}):
        assert "all ranks are on one host" in failure(job.assert_policy, paths={"inter": expected}, strict=True)
    assert "all ranks are on one host" in failure(job.assert_transport, "NET", scope="inter")


def test_what_does_not_exist_is_refused_and_not_passed_over() -> None:
    job = job_of(GOOD)
    for call, says in (
        (lambda: job.assert_no_findings("fatal"), "no severity 'fatal'; choose from info, warning, error"),
        (lambda: job.assert_no_findings("eror"), "no severity 'eror'; did you mean error?"),
        (lambda: job.assert_no_findings(ignore="log-flod"), "no rule 'log-flod'; did you mean log-flood"),
        (lambda: job.assert_no_findings(ignore=["log-flood", "zzzz"]), "no rule 'zzzz'"),
        (lambda: job.assert_finding("log-flod"), "no rule 'log-flod'"),
        (lambda: job.assert_transport("RDMA"), "no transport 'RDMA'"),
        (lambda: job.assert_transport(), "no transport; name the allowed ones"),
        (lambda: job.assert_transport("P2P", scope="within"), "no scope 'within'; choose from intra, inter"),
        (lambda: job.assert_path(0, 1, "PP2/*"), "no transport 'PP2/*'; did you mean P2P?"),
    ):
        with pytest.raises(NcclInspectError) as caught:
            call()
        assert says in str(caught.value)
    job.assert_no_findings("info", ignore="log-flood")
    job_of(SHM).assert_no_findings(ignore="intra-node path")


def test_a_policy_is_that_of_check(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[paths.intra]\ntransport = ["P2P"]\n')
    job_of(GOOD).assert_policy(str(policy))
    assert f"1 expectation of {policy} not kept" in failure(job_of(SHM).assert_policy, str(policy))
    assert "world_size: 8 ranks, wanted: 16" in failure(job_of(GOOD).assert_policy, str(policy), world_size=16)
    with pytest.raises(NcclInspectError, match="world_sise"):
        job_of(GOOD).assert_policy(world_sise=16)
    with pytest.raises(NcclInspectError, match="no expectation"):
        job_of(GOOD).assert_policy()


def test_messages_are_safe_to_show() -> None:
    log = b"a:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\x1b[31m\n" + SHM.read_bytes()
    assert "\x1b" not in failure(job_of(log).assert_ok)


# --- in a pytest of its own


@pytest.fixture
def plugged_pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a pytest that finds the plugin by the entry point of pyproject.toml, as when the package is installed."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["pytest11"]
    site = pytester.mkdir("site")
    info = site / "plugged-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    return pytester


def outcome(plugged_pytester: pytest.Pytester, code: str, *options: object) -> pytest.RunResult:
    plugged_pytester.makepyfile(code)
    return plugged_pytester.runpytest_subprocess("--strict-markers", *map(str, options))


@pytest.mark.slow
def test_loader_marker_and_option_give_jobs(plugged_pytester: pytest.Pytester) -> None:
    plugged_pytester.path.joinpath("beside.log").write_bytes(SHM.read_bytes())
    result = outcome(
        plugged_pytester,
        f"""
        import pytest

        def test_loader(nccl_job):
            job = nccl_job({str(GOOD)!r})
            assert job.verdict == "ok"
            job.assert_ok()

        @pytest.mark.nccl_log({str(NET)!r})
        def test_marker(nccl_log):
            assert nccl_log.world_size == 4

        @pytest.mark.nccl_log("beside.log", platform="g6e.12xlarge")
        class TestBeside:
            def test_one(self, nccl_log):
                nccl_log.assert_transport("SHM")

            def test_two(self, nccl_log):
                assert nccl_log.platform == "g6e.12xlarge"

        seen = []

        def test_option(nccl_log):
            seen.append(nccl_log)
            assert nccl_log.world_size == 8

        def test_it_is_read_once(nccl_log):
            assert nccl_log is seen[0]
        """,
        "--nccl-log",
        GOOD,
    )
    result.assert_outcomes(passed=6)


@pytest.mark.slow
def test_without_a_log_a_test_fails_and_is_not_passed_over(plugged_pytester: pytest.Pytester) -> None:
    result = outcome(plugged_pytester, "def test_it(nccl_log):\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_it has no log: run pytest with --nccl-log PATH*"])
    result = outcome(plugged_pytester, "def test_it(nccl_log):\n    pass\n", "--nccl-log", "missing.log")
    result.stdout.fnmatch_lines(["*missing.log: no such file*"])


@pytest.mark.slow
def test_it_is_told_in_the_help(plugged_pytester: pytest.Pytester) -> None:
    plugged_pytester.runpytest_subprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.nccl_log(*"])
    plugged_pytester.runpytest_subprocess("--help").stdout.fnmatch_lines(["*--nccl-log=PATH*"])
    plugged_pytester.runpytest_subprocess("--fixtures").stdout.fnmatch_lines(["nccl_job *", "nccl_log *"])


@pytest.mark.slow
def test_unused_it_loads_nothing(plugged_pytester: pytest.Pytester) -> None:
    result = outcome(
        plugged_pytester,
        """
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.startswith("nccl_inspect")}
            package = {"nccl_inspect", "nccl_inspect._version", "nccl_inspect.extras", "nccl_inspect.extras.pytest"}
            assert loaded == package | {"nccl_inspect.extras.pytest.plugin"}
            assert not {"pandas", "pyarrow", "click", "regex"} & set(sys.modules)
        """,
    )
    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_page_shows_what_a_failure_says(plugged_pytester: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "howto" / "pytest.md").read_text(encoding="utf-8")
    code, shown = (
        re.findall(rf"^```{name}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0] for name in ("python", "text")
    )
    plugged_pytester.path.joinpath("job.log").write_bytes(LOST.read_bytes())
    result = outcome(plugged_pytester, code, "--nccl-log", "job.log")
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.no_fnmatch_line("*acceptance.py*")
    printed = [line.replace(f"{plugged_pytester.path}/", "").removeprefix("E").strip() for line in result.outlines]
    missing = [line for line in shown.splitlines() if line != "…" and line.removeprefix("E").strip() not in printed]
    assert not missing
