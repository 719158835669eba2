"""Settings files: found upwards, checked key by key; the command line wins; what they suppress is still told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sample_data
from command_line import execute
from repository import TESTS
from terminals import HEALTHY, SLOW

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.util.discovery import SETTINGS

COMMANDS = tomllib.loads((TESTS / "cli" / "commands.toml").read_text(encoding="utf-8"))
SOCKET = str(sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log")
SHM, P2P = "shm-instead-of-p2p", "p2p-disabled-by-env"
SUPPRESSION = '[[suppress]]\nrule = "{rule}"\nreason = "known, see the wiki"\n{more}\n'


def document(*args: str, cwd: Path) -> dict[str, Any]:
    """What a summary says as JSON."""
    loaded: dict[str, Any] = json.loads(execute("summarize", *args, "--format", "json", cwd=cwd).stdout)
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
    done = execute("summarize", SLOW, "--format", "json", cwd=below)
    found = json.loads(done.stdout)
    assert rules(found) == {SHM}
    assert found["config"] == str(near)
    assert done.stderr.decode() == f"nccl-inspect: settings from {near} (--no-config ignores them)\n"


def test_a_named_file_is_taken_and_no_config_leaves_all_out(tmp_path: Path) -> None:
    written(tmp_path, 'ignore = ["shm-*"]')
    other = tmp_path / "other.toml"
    other.write_text('ignore = ["p2p-*"]')
    assert rules(document(SLOW, "--config", "other.toml", cwd=tmp_path)) == {SHM}
    plain = document(SLOW, "--no-config", cwd=tmp_path)
    assert rules(plain) == {SHM, P2P}
    assert plain["config"] is None
    done = execute("summarize", SLOW, "--config", "other.toml", "--no-config", cwd=tmp_path)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_the_other_commands_that_judge_take_it_too(tmp_path: Path) -> None:
    written(tmp_path, 'platform = "nothing"')
    for args in (["paths", HEALTHY, "--matrix"], ["watch", HEALTHY, "--until-end"]):
        done = execute(*args, cwd=tmp_path)
        assert (done.returncode, b"no platform 'nothing'" in done.stderr) == (2, True)
        assert execute(*args, "--no-config", cwd=tmp_path).returncode == 0


def test_the_command_line_wins(tmp_path: Path) -> None:
    for text, args, expected in (
        ('select = ["shm-*"]', [], {SHM}),
        ('select = ["network"]', [], set()),
        ('select = "intra-node path"', [], {SHM, P2P}),
        ('select = ["shm-*"]', ["--select", "p2p-*"], {P2P}),
        ('ignore = ["p2p-*"]', ["--select", "p2p-*"], {P2P}),
        ('ignore = ["p2p-*"]', ["--ignore", "shm-*"], set()),
        ('select = ["shm-*"]', ["--ignore", "shm-*"], set()),
    ):
        written(tmp_path, text)
        assert rules(document(SLOW, *args, cwd=tmp_path)) == expected, (text, args)


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
        P2P: "error",
        SHM: "info",
    }
    assert execute("summarize", SLOW, "--fail-on", "error", cwd=tmp_path).returncode == 1
    written(tmp_path, '[severity]\n"intra-node path" = "info"')
    assert execute("summarize", SLOW, "--fail-on", "warning", cwd=tmp_path).returncode == 0


def test_a_suppressed_finding_is_told_and_does_not_count(tmp_path: Path) -> None:
    written(tmp_path, SUPPRESSION.format(rule=P2P, more="") + SUPPRESSION.format(rule="shm-*", more=""))
    found = document(SLOW, cwd=tmp_path)
    assert found["findings"] == []
    assert found["verdict"] == "ok"
    assert [(entry["finding"]["rule"], entry["reason"]) for entry in found["suppressed"]] == [
        (P2P, "known, see the wiki"),
        (SHM, "known, see the wiki"),
    ]
    assert all(SHM in path["rules"] and path["verdict"] == "ok" for path in found["paths"])
    done = execute("summarize", SLOW, "--fail-on", "info", cwd=tmp_path)
    assert done.returncode == 0
    words = " ".join(done.stdout.decode().split())
    assert "suppressed p2p-disabled-by-env (warning): NCCL_P2P_DISABLE=1 keeps" in words
    assert "accepted: known, see the wiki" in words


def test_the_effect_of_a_suppressed_cause_stands_for_itself(tmp_path: Path) -> None:
    written(tmp_path, SUPPRESSION.format(rule=P2P, more=""))
    (finding,) = document(SLOW, cwd=tmp_path)["findings"]
    assert (finding["rule"], finding["root"]) == (SHM, True)
    assert finding["because"] == [P2P], "what is accepted is still the cause"
    shown = execute("summarize", SLOW, cwd=tmp_path).stdout.decode()
    assert "WARNING shm-instead-of-p2p" in shown
    assert "because   p2p-disabled-by-env (accepted: known, see the wiki): NCCL_P2P_DISABLE=1 keeps" in shown
    for form in ("markdown", "html"):
        assert (
            b"p2p-disabled-by-env (accepted: known" in execute("summarize", SLOW, "--format", form, cwd=tmp_path).stdout
        )


def test_a_cause_that_the_user_makes_less_severe_does_not_hide_its_effect(tmp_path: Path) -> None:
    written(tmp_path, '[severity]\n"p2p-disabled-by-env" = "info"')
    effect, cause = document(SLOW, cwd=tmp_path)["findings"]
    assert (effect["rule"], effect["root"], effect["because"]) == (SHM, True, [P2P])
    assert (cause["rule"], cause["severity"]) == (P2P, "info")
    shown = execute("summarize", SLOW, cwd=tmp_path).stdout.decode()
    assert shown.startswith(f"DEGRADED: {effect['summary']}")
    assert "because   p2p-disabled-by-env (certain): NCCL_P2P_DISABLE=1 keeps" in shown


def test_the_effect_of_what_is_not_told_stands_behind_what_nothing_explains(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    algorithm = "vm:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n"
    log.write_text(Path(SLOW).read_text(encoding="utf-8") + algorithm, encoding="utf-8")
    for settings, args in ((SUPPRESSION.format(rule=P2P, more=""), []), ("", ["--ignore", P2P])):
        written(tmp_path, f'{settings}\n[severity]\n"algo-proto-forced" = "warning"')
        found = document(str(log), *args, cwd=tmp_path)["findings"]
        assert [finding["rule"] for finding in found] == ["algo-proto-forced", SHM]


def test_a_suppression_holds_for_findings_about_no_other_rank_and_host(tmp_path: Path) -> None:
    for more, is_covered in {
        'ranks = "0-3"': True,
        "ranks = [0, 1, 2, 3, 9]": True,
        'ranks = "0-2"': False,
        'hosts = ["v*"]': True,
        'hosts = ["other", "vm"]': True,
        'hosts = "other"': False,
        'hosts = "vm"\nranks = 0': False,
    }.items():
        written(tmp_path, SUPPRESSION.format(rule=P2P, more=more))
        assert (P2P not in rules(document(SLOW, cwd=tmp_path))) == is_covered, more


def test_what_is_left_out_keeps_a_job_from_being_called_good_only_while_it_finds_fault(tmp_path: Path) -> None:
    written(tmp_path, 'ignore = ["intra-node path"]')
    assert document(HEALTHY, cwd=tmp_path)["verdict"] == "ok"
    assert document(SLOW, cwd=tmp_path)["verdict"] == "unknown"


def test_a_rule_that_is_left_out_leaves_only_paths_unjudged_that_it_finds_fault_with(tmp_path: Path) -> None:
    found = document(SOCKET, "--ignore", "socket-*", cwd=tmp_path)
    assert found["verdict"] == "unknown"
    judged = {(path["transport"], path["verdict"]) for path in found["paths"]}
    assert judged == {("P2P", "ok"), ("NET", "unknown")}
    shown = execute("summarize", SOCKET, "--ignore", "socket-*", cwd=tmp_path).stdout.decode()
    assert shown.startswith("UNKNOWN: 32 of 56 paths not judged: a rule that is left out has findings there\n")
    dead = execute("summarize", SLOW, "--ignore", "shm-*", "--ignore", "p2p-*", cwd=tmp_path).stdout.decode()
    assert "could not be judged" not in dead.partition("\n")[0]


def test_a_finding_that_the_user_calls_an_info_does_not_make_its_paths_good(tmp_path: Path) -> None:
    written(tmp_path, '[severity]\n"socket-instead-of-rdma" = "info"')
    found = document(SOCKET, cwd=tmp_path)
    assert found["verdict"] == "ok", "as the user says"
    judged = {(path["transport"], path["verdict"]) for path in found["paths"]}
    assert judged == {("P2P", "ok"), ("NET", "fallback")}
    done = execute("summarize", SOCKET, "--fail-on", "warning", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(b"OK: 32 of 56 paths could be better; your settings lower this to info\n")


def test_a_mistake_is_one_line_that_says_where_and_what_to_do(tmp_path: Path) -> None:
    wrong: list[object] = []
    for text, says in COMMANDS["settings"].items():
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        done = execute("summarize", SLOW, "--config", "mine.toml", cwd=tmp_path)
        message = done.stderr.decode()
        start = f"nccl-inspect: {'gone.txt' if 'gone' in text else 'mine.toml'}: "
        if (done.returncode, done.stdout, message.count("\n")) != (2, b"", 1) or says not in message:
            wrong.append((text, done))
        wrong += [] if message.startswith(start) else [message]
    (tmp_path / "latin.toml").write_bytes(b'platform = "\xe9"')
    for name, says in (("gone.toml", "No such file"), (".", "Is a directory"), ("latin.toml", "not UTF-8")):
        done = execute("summarize", SLOW, "--config", name, cwd=tmp_path)
        if (done.returncode, done.stderr.count(b"\n"), says in done.stderr.decode()) != (2, 1, True):
            wrong.append((name, done))
    assert not wrong


def test_the_python_interface_looks_for_a_file_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, 'ignore = ["p2p-*"]')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert nccl_inspect.read(SLOW).config is None
    for config in (path, str(path), ".", tmp_path / "below"):
        job = nccl_inspect.read(SLOW, config=config)
        assert {finding.rule for finding in job.findings} == {SHM}
        assert Path(job.config or "").name == SETTINGS
    assert nccl_inspect.read(SLOW, config="/").config is None
    with pytest.raises(NcclInspectError, match="unknown key"):
        path.write_text("wrong = 1")
        nccl_inspect.read(SLOW, config=path)
