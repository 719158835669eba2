"""What is released: the wheel brings manual pages, completions and entry points; the zipapp runs anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import pyz
from repository import ROOT

SAMPLE = ROOT / "sample_logs" / "efa-provider-missing-socket-fallback" / "job.log"
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
pytestmark = pytest.mark.slow


def run(*command: object, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**PLAIN, **settings}
    return subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    if done.returncode:
        pytest.skip(f"no wheel can be built here: {done.stderr.strip().splitlines()[-1]}")
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the wheel, which sees the packages of this one."""
    folder = tmp_path_factory.mktemp("env")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    done = run(sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_has_manual_pages_and_completions(wheel: Path) -> None:
    inside = zipfile.ZipFile(wheel).namelist()
    shared = {name.partition(".data/data/share/")[2] for name in inside if ".data/data/share/" in name}
    assert {"man/man1/nccl-inspect.1", "man/man1/nccl-inspect-summarize.1"} <= shared
    assert {
        "bash-completion/completions/nccl-inspect",
        "zsh/site-functions/_nccl-inspect",
        "fish/vendor_completions.d/nccl-inspect.fish",
    } <= shared
    assert not [name for name in inside if name.startswith(("tests/", "docs/"))]


def test_programs_are_installed(installed_environment: Path) -> None:
    done = run(installed_environment / "bin" / "nccl-inspect", "summarize", SAMPLE)
    assert done.stdout.startswith("DEGRADED: "), done.stderr


@pytest.mark.skipif(shutil.which("man") is None, reason="no man on this machine")
def test_man_finds_the_pages_of_an_environment(installed_environment: Path) -> None:
    bins = f"{installed_environment / 'bin'}{os.pathsep}{PLAIN['PATH']}"
    done = run("man", "--where", "nccl-inspect", PATH=bins)
    assert Path(done.stdout.strip()) == installed_environment / "share" / "man" / "man1" / "nccl-inspect.1", done.stderr


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "nccl-inspect.pyz"
    try:
        pyz.build(target)
    except subprocess.CalledProcessError:
        pytest.skip("what goes into the zipapp cannot be had here")
    return target


def test_the_zipapp_is_small_and_tells_the_same_without_this_environment(zipapp: Path, tmp_path: Path) -> None:
    assert zipapp.stat().st_size < 8 << 20
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    wanted = run(sys.executable, "-m", "nccl_inspect", "summarize", SAMPLE).stdout
    for _ in range(2):  # the first run unpacks
        assert run(base, "-I", zipapp, "summarize", SAMPLE, XDG_CACHE_HOME=str(tmp_path)).stdout == wanted
    compiled = list(tmp_path.rglob("*.so"))
    assert compiled
    for file in compiled:  # as another Python sees them
        file.unlink()
    assert run(base, "-I", zipapp, "summarize", SAMPLE, XDG_CACHE_HOME=str(tmp_path)).stdout == wanted
    target = tmp_path / "events.parquet"
    done = run(base, "-I", zipapp, "events", SAMPLE, "-o", target, XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "needs pyarrow" in done.stderr
    assert not target.exists()
