"""The action for GitHub: its scripts run as a runner would run them, and no input becomes part of a script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from repository import ROOT

BAD = "sample_logs/efa-provider-missing-socket-fallback/job.log"
SHM = "sample_logs/v2.30.7-shm-4gpu/job.log"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """Return the folder of a runner, where the first step has put the program."""
    program = "import sys; sys.path.insert(0, {!r}); from nccl_inspect.__main__ import main; main()\n"
    (tmp_path / "nccl-inspect.pyz").write_text(program.format(str(ROOT)))
    return tmp_path


def gate(runner: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Return the second step, with the inputs that are given and the defaults of the others."""
    values = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    values |= {"python": sys.executable, **{name.replace("_", "-"): value for name, value in inputs.items()}}
    expressions = STEPS[1]["env"]
    env = {name: values[re.fullmatch(r"\$\{\{ inputs\.(\S+) \}\}", text)[1]] for name, text in expressions.items()}  # type: ignore[index]
    files = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary"}
    env |= {name: str(runner / file) for name, file in files.items()}
    env |= {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(runner), "GITHUB_ACTION_PATH": str(ROOT)}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[1]["run"]]  # as 'shell: bash' is
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def outputs(runner: Path) -> dict[str, str]:
    lines = (runner / "output").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_no_input_is_part_of_a_script() -> None:
    for step in STEPS:
        assert "${{" not in step["run"]
    assert set(STEPS[1]["env"].values()) == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}


@pytest.mark.slow
def test_findings_close_the_gate(runner: Path) -> None:
    done = gate(runner, logs=f"\n{BAD}\r\n", sarif=str(runner / "new" / "x.sarif"), html=str(runner / "x.html"))
    assert done.returncode == 1, done.stderr
    assert outputs(runner) == {"status": "1", "verdict": "degraded"}
    assert (runner / "summary").read_text().startswith("## DEGRADED")
    assert f"::error file={BAD},line=21," in done.stdout
    assert json.loads((runner / "new" / "x.sarif").read_text())["version"] == "2.1.0"
    assert "<html" in (runner / "x.html").read_text()


@pytest.mark.slow
def test_a_policy_closes_the_gate(runner: Path) -> None:
    policy = "docs/howto/policy.toml"
    done = gate(runner, logs=SHM, policy=policy, junit=str(runner / "x.xml"), annotations="false")
    assert done.returncode == 1, done.stderr
    assert "BROKEN: docs/howto/policy.toml" in done.stdout
    assert "\n::error file=" not in done.stdout
    assert "<failure" in (runner / "x.xml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "status"), [(8, 0), (4, 1)])
def test_a_policy_writes_every_format(runner: Path, world_size: int, status: int) -> None:
    policy = runner / "policy.toml"
    policy.write_text(f"world_size = {world_size}\n")
    files = {form: str(runner / f"x.{form}") for form in ("sarif", "junit", "html")}
    done = gate(runner, logs="sample_logs/p2p-nvlink-8gpu/job.log", policy=str(policy), **files)
    assert (done.returncode, outputs(runner)) == (status, {"status": str(status), "verdict": "ok"}), done.stdout
    assert json.loads(Path(files["sarif"]).read_text())["version"] == "2.1.0"
    assert ("<failure" in Path(files["junit"]).read_text()) == bool(status)
    assert "<html" in Path(files["html"]).read_text()


@pytest.mark.slow
def test_a_good_run_passes(runner: Path) -> None:
    done = gate(runner, logs="sample_logs/p2p-nvlink-8gpu/job.log", summary="false")
    assert (done.returncode, outputs(runner)["verdict"]) == (0, "ok"), done.stdout
    assert not (runner / "summary").exists()


@pytest.mark.slow
def test_no_verdict_is_no_pass(runner: Path) -> None:
    for says, status, inputs in (
        ("the input 'logs' is empty", 2, {"logs": " \n"}),
        ("policy and fail-on exclude each other", 2, {"logs": BAD, "policy": "x", "fail_on": "error"}),
        ("no verdict (status 3)", 3, {"logs": "no-such.log"}),
        ("no verdict (status 2)", 2, {"logs": BAD, "fail_on": "often"}),
        ("no verdict (status 3)", 3, {"logs": "--version"}),
    ):
        done = gate(runner, **inputs)
        assert done.returncode == status, inputs
        assert f"::error title=nccl-inspect::{says}" in done.stdout


@pytest.mark.slow
def test_inputs_and_logs_run_nothing(runner: Path) -> None:
    evil = runner / "$(touch ran); touch ran; `touch ran`.log"
    line = "::set-output name=x::y\nhost:1:1 [0] NCCL WARN ::error::injected\n::add-mask::e\n"
    evil.write_bytes(line.encode() + (ROOT / BAD).read_bytes())
    done = gate(runner, logs=str(evil), fail_on="never", annotations="false", platform="$(touch ran)")
    assert not [path for path in (*ROOT.iterdir(), *runner.iterdir()) if path.name == "ran"]
    token = re.match(r"::stop-commands::(\w{32})\n", done.stdout)
    assert token
    _, _, after = done.stdout.partition(f"\n::{token[1]}::\n")
    assert not re.search(r"^\s*::(set-output|add-mask)", after, re.MULTILINE)


@pytest.mark.slow
def test_scripts_are_sound() -> None:
    linter = shutil.which("shellcheck")
    for script in (ROOT / "tools" / "gate.sh", ROOT / "tools" / "image.sh"):
        done = subprocess.run([linter or "bash", *([] if linter else ["-n"]), script], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_name_what_there_is() -> None:
    text = (ROOT / "docs" / "howto" / "ci-gate.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]
    workflow = next(block for block in blocks if "jobs" in block)
    step = next(one for one in workflow["jobs"]["gate"]["steps"] if "nccl-inspect@" in one.get("uses", ""))
    assert step["with"].keys() <= ACTION["inputs"].keys()
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    config = next(block for block in blocks if "repos" in block)
    assert {hook["id"] for hook in config["repos"][0]["hooks"]} <= hooks
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "make dist" in release
    assert "\ndist: " in (ROOT / "Makefile").read_text(encoding="utf-8")
