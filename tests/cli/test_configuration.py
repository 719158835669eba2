"""Settings files: found upwards, checked key by key; the command line wins; what they suppress is still told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sample_data
from repository import TESTS

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.util.discovery import SETTINGS

SLOW = str(sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log")
HEALTHY = str(sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log")
SOCKET = str(sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log")
EXE = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]
SUPPRESSION = '[[suppress]]\nrule = "{rule}"\nreason = "known, see the wiki"\n{more}\n'


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    return subprocess.run([*EXE, *args], cwd=cwd, env=env, capture_output=True, timeout=60, check=False)


def document(*args: str, cwd: Path) -> dict[str, Any]:
    """What a summary says as JSON."""
    loaded: dict[str, Any] = json.loads(run("summarize", *args, "--format", "json", cwd=cwd).stdout)
    return loaded


def rules(found: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in found["findings"]}


def written(folder: Path, text: str) -> Path:
    path = folder / SETTINGS
    path.write_text(text, encoding="utf-8")
    return path


def test_the_nearest_file_upwards_is_taken_and_told_on_stderr(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    written(tmp_path, 'ignore = ["shm-*"]')
    near = written(tmp_path / "a", 'ignore = ["p2p-*"]')
    done = run("summarize", SLOW, "--format", "json", cwd=below)
    found = json.loads(done.stdout)
    assert rules(found) == {"shm-instead-of-p2p"}
    assert found["config"] == str(near)
    assert done.stderr.decode() == f"nccl-inspect: settings from {near} (--no-config ignores them)\n"


def test_a_named_file_is_taken_and_no_config_leaves_all_out(tmp_path: Path) -> None:
    written(tmp_path, 'ignore = ["shm-*"]')
    other = tmp_path / "other.toml"
    other.write_text('ignore = ["p2p-*"]')
    assert rules(document(SLOW, "--config", "other.toml", cwd=tmp_path)) == {"shm-instead-of-p2p"}
    plain = document(SLOW, "--no-config", cwd=tmp_path)
    assert rules(plain) == {"shm-instead-of-p2p", "p2p-disabled-by-env"}
    assert plain["config"] is None
    done = run("summarize", SLOW, "--config", "other.toml", "--no-config", cwd=tmp_path)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


@pytest.mark.parametrize(
    "args", [["paths", HEALTHY, "--matrix"], ["watch", HEALTHY, "--until-end"]], ids=lambda a: a[0]
)
def test_the_other_commands_that_judge_take_it_too(args: list[str], tmp_path: Path) -> None:
    written(tmp_path, 'platform = "nothing"')
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert b"no platform 'nothing'" in done.stderr
    assert run(*args, "--no-config", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ('select = ["shm-*"]', [], {"shm-instead-of-p2p"}),
        ('select = ["network"]', [], set()),
        ('select = "intra-node path"', [], {"shm-instead-of-p2p", "p2p-disabled-by-env"}),
        ('select = ["shm-*"]', ["--select", "p2p-*"], {"p2p-disabled-by-env"}),
        ('ignore = ["p2p-*"]', ["--select", "p2p-*"], {"p2p-disabled-by-env"}),
        ('ignore = ["p2p-*"]', ["--ignore", "shm-*"], set()),
        ('select = ["shm-*"]', ["--ignore", "shm-*"], set()),
    ],
)
def test_the_command_line_wins(text: str, args: list[str], expected: set[str], tmp_path: Path) -> None:
    written(tmp_path, text)
    assert rules(document(SLOW, *args, cwd=tmp_path)) == expected


def test_platform_and_topology_are_defaults(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text((TESTS / "data" / "g6e.nvidia-smi-topo.txt").read_text())
    written(tmp_path, 'platform = "p5.48xlarge"\ntopology = "topo.txt"\nignore = "p2p-disabled-by-env"')
    (tmp_path / "below").mkdir()
    found = document(SLOW, cwd=tmp_path / "below")
    assert found["job"]["platform"] == "p5.48xlarge"
    assert {finding["severity"] for finding in found["findings"]} == {"info"}, "the topology says that SHM is right"
    assert document(SLOW, "--platform", "g5.48xlarge", cwd=tmp_path)["job"]["platform"] == "g5.48xlarge"


def test_a_severity_is_that_of_the_name_before_that_of_a_glob(tmp_path: Path) -> None:
    written(tmp_path, '[severity]\n"p2p-disabled-by-env" = "error"\n"*" = "info"')
    found = document(SLOW, cwd=tmp_path)
    assert {f["rule"]: f["severity"] for f in found["findings"]} == {
        "p2p-disabled-by-env": "error",
        "shm-instead-of-p2p": "info",
    }
    assert run("summarize", SLOW, "--fail-on", "error", cwd=tmp_path).returncode == 1
    written(tmp_path, '[severity]\n"intra-node path" = "info"')
    assert run("summarize", SLOW, "--fail-on", "warning", cwd=tmp_path).returncode == 0


def test_a_suppressed_finding_is_told_and_does_not_count(tmp_path: Path) -> None:
    written(
        tmp_path, SUPPRESSION.format(rule="p2p-disabled-by-env", more="") + SUPPRESSION.format(rule="shm-*", more="")
    )
    found = document(SLOW, cwd=tmp_path)
    assert found["findings"] == []
    assert found["verdict"] == "ok"
    assert [(entry["finding"]["rule"], entry["reason"]) for entry in found["suppressed"]] == [
        ("p2p-disabled-by-env", "known, see the wiki"),
        ("shm-instead-of-p2p", "known, see the wiki"),
    ]
    assert all("shm-instead-of-p2p" in path["rules"] and path["verdict"] == "ok" for path in found["paths"])
    done = run("summarize", SLOW, "--fail-on", "info", cwd=tmp_path)
    assert done.returncode == 0
    words = " ".join(done.stdout.decode().split())
    assert "suppressed p2p-disabled-by-env (warning): NCCL_P2P_DISABLE=1 keeps" in words
    assert "accepted: known, see the wiki" in words


def test_the_effect_of_a_suppressed_cause_stands_for_itself(tmp_path: Path) -> None:
    written(tmp_path, SUPPRESSION.format(rule="p2p-disabled-by-env", more=""))
    (finding,) = document(SLOW, cwd=tmp_path)["findings"]
    assert (finding["rule"], finding["root"]) == ("shm-instead-of-p2p", True)
    assert finding["because"] == ["p2p-disabled-by-env"], "what is accepted is still the cause"
    shown = run("summarize", SLOW, cwd=tmp_path).stdout.decode()
    assert "WARNING shm-instead-of-p2p" in shown
    assert "because   p2p-disabled-by-env (accepted: known, see the wiki): NCCL_P2P_DISABLE=1 keeps" in shown
    for form in ("markdown", "html"):
        assert b"p2p-disabled-by-env (accepted: known" in run("summarize", SLOW, "--format", form, cwd=tmp_path).stdout


def test_a_cause_that_the_user_makes_less_severe_does_not_hide_its_effect(tmp_path: Path) -> None:
    written(tmp_path, '[severity]\n"p2p-disabled-by-env" = "info"')
    effect, cause = document(SLOW, cwd=tmp_path)["findings"]
    assert (effect["rule"], effect["root"], effect["because"]) == ("shm-instead-of-p2p", True, ["p2p-disabled-by-env"])
    assert (cause["rule"], cause["severity"]) == ("p2p-disabled-by-env", "info")
    shown = run("summarize", SLOW, cwd=tmp_path).stdout.decode()
    assert shown.startswith(f"DEGRADED: {effect['summary']}")
    assert "because   p2p-disabled-by-env (certain): NCCL_P2P_DISABLE=1 keeps" in shown


@pytest.mark.parametrize(
    ("settings", "args"),
    [(SUPPRESSION.format(rule="p2p-disabled-by-env", more=""), []), ("", ["--ignore", "p2p-disabled-by-env"])],
)
def test_the_effect_of_what_is_not_told_stands_behind_what_nothing_explains(
    settings: str, args: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    algorithm = "vm:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n"
    log.write_text(Path(SLOW).read_text(encoding="utf-8") + algorithm, encoding="utf-8")
    written(tmp_path, f'{settings}\n[severity]\n"algo-proto-forced" = "warning"')
    rules_told = [finding["rule"] for finding in document(str(log), *args, cwd=tmp_path)["findings"]]
    assert rules_told == ["algo-proto-forced", "shm-instead-of-p2p"]


@pytest.mark.parametrize(
    ("more", "is_covered"),
    [
        ('ranks = "0-3"', True),
        ("ranks = [0, 1, 2, 3, 9]", True),
        ('ranks = "0-2"', False),
        ('hosts = ["v*"]', True),
        ('hosts = ["other", "vm"]', True),
        ('hosts = "other"', False),
        ('hosts = "vm"\nranks = 0', False),
    ],
)
def test_a_suppression_holds_for_findings_about_no_other_rank_and_host(
    more: str, is_covered: bool, tmp_path: Path
) -> None:
    written(tmp_path, SUPPRESSION.format(rule="p2p-disabled-by-env", more=more))
    assert ("p2p-disabled-by-env" not in rules(document(SLOW, cwd=tmp_path))) == is_covered


def test_what_is_left_out_keeps_a_job_from_being_called_good_only_while_it_finds_fault(tmp_path: Path) -> None:
    written(tmp_path, 'ignore = ["intra-node path"]')
    assert document(HEALTHY, cwd=tmp_path)["verdict"] == "ok"
    assert document(SLOW, cwd=tmp_path)["verdict"] == "unknown"


def test_a_rule_that_is_left_out_leaves_only_paths_unjudged_that_it_finds_fault_with(tmp_path: Path) -> None:
    found = document(SOCKET, "--ignore", "socket-*", cwd=tmp_path)
    assert found["verdict"] == "unknown"
    judged = {(path["transport"], path["verdict"]) for path in found["paths"]}
    assert judged == {("P2P", "ok"), ("NET", "unknown")}
    shown = run("summarize", SOCKET, "--ignore", "socket-*", cwd=tmp_path).stdout.decode()
    assert shown.startswith("UNKNOWN: 32 of 56 paths not judged: a rule that is left out has findings there\n")
    dead = run("summarize", SLOW, "--ignore", "shm-*", "--ignore", "p2p-*", cwd=tmp_path).stdout.decode()
    assert "could not be judged" not in dead.partition("\n")[0]


def test_a_finding_that_the_user_calls_an_info_does_not_make_its_paths_good(tmp_path: Path) -> None:
    written(tmp_path, '[severity]\n"socket-instead-of-rdma" = "info"')
    found = document(SOCKET, cwd=tmp_path)
    assert found["verdict"] == "ok", "as the user says"
    judged = {(path["transport"], path["verdict"]) for path in found["paths"]}
    assert judged == {("P2P", "ok"), ("NET", "fallback")}
    done = run("summarize", SOCKET, "--fail-on", "warning", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(b"OK: 32 of 56 paths could be better; your settings lower this to info\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('selct = ["shm-*"]', "unknown key 'selct'; did you mean select?"),
        ("zzz = 1", "unknown key 'zzz'; known are platform, topology, select, ignore, severity, suppress"),
        ('ignore = ["zzzzzz"]', "no rule 'zzzzzz'; see 'nccl-inspect rules'"),
        ("ignore = [1]", 'ignore holds something else than strings; write ignore = ["…", "…"]'),
        ("ignore = 1", "ignore is of the wrong kind; write"),
        ('platform = "p5.48xlarg"', "no platform 'p5.48xlarg'; did you mean p5.48xlarge"),
        ('[severity]\n"shm-*" = "warn"', "[severity] shm-* is 'warn'; did you mean warning?"),
        ('[severity]\n"no-such" = "info"', "[severity] no rule 'no-such'; see"),
        ('severity = "info"', "severity is of the wrong kind; write a table: [severity]"),
        ('[[suppress]]\nrule = "log-flood"', '[suppress 1] no reason for log-flood; write reason = "why'),
        ('[[suppress]]\nrule = "log-flood"\nreason = " "', "[suppress 1] no reason for log-flood; write"),
        ('[[suppress]]\nreason = "so"', '[suppress 1] no rule; write rule = "name"'),
        ('[[suppress]]\nrule = "log-flood"\nreson = "so"', "[suppress 1] unknown key 'reson'; did you mean reason?"),
        ('[[suppress]]\nrule = "x"\nreason = "so"', "[suppress 1] no rule 'x'; see"),
        ('[[suppress]]\nrule = "log-flood"\nranks = "all"\nreason = "so"', "ranks has 'all', which is not a rank"),
        ('[suppress]\nrule = "log-flood"', "suppress is of the wrong kind; write [[suppress]]"),
        ("ignore = [shm]", "(at line 1, column 11); mend that line"),
        ('topology = "gone.txt"', "gone.txt: No such file or directory; check"),
    ],
)
def test_a_mistake_is_one_line_that_says_where_and_what_to_do(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    done = run("summarize", SLOW, "--config", "mine.toml", cwd=tmp_path)
    message = done.stderr.decode()
    assert (done.returncode, done.stdout, message.count("\n")) == (2, b"", 1), message
    assert says in message
    assert message.startswith("nccl-inspect: gone.txt" if "gone" in text else "nccl-inspect: mine.toml: ")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'platform = "\xe9"')
    for name, says in (("gone.toml", "No such file"), (".", "Is a directory"), ("latin.toml", "not UTF-8")):
        done = run("summarize", SLOW, "--config", name, cwd=tmp_path)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert says in done.stderr.decode()


def test_the_python_interface_looks_for_a_file_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, 'ignore = ["p2p-*"]')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert nccl_inspect.read(SLOW).config is None
    for config in (path, str(path), ".", tmp_path / "below"):
        job = nccl_inspect.read(SLOW, config=config)
        assert {finding.rule for finding in job.findings} == {"shm-instead-of-p2p"}
        assert Path(job.config or "").name == SETTINGS
    assert nccl_inspect.read(SLOW, config="/").config is None
    with pytest.raises(NcclInspectError, match="unknown key"):
        path.write_text("wrong = 1")
        nccl_inspect.read(SLOW, config=path)


def test_without_a_file_nothing_is_loaded_for_one(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom nccl_inspect.cli import cli\n"
        f"cli.main(['summarize', {SLOW!r}], standalone_mode=False)\n"
        "parts = ('tomllib', 'nccl_inspect.util.toml', 'nccl_inspect.pipeline.configuration', "
        "'nccl_inspect.judging.accepted')\n"
        "print(*(name for name in parts if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert done.stderr.strip() == b""
