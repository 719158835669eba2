"""Settings files: found upwards, checked key by key; the command line wins; what they suppress is still told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sample_data
from command_line import execute
from few_examples import every
from repository import TESTS
from terminals import HEALTHY, SLOW

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.util.discovery import SETTINGS

COMMANDS = tomllib.loads((TESTS / "cli" / "commands.toml").read_text(encoding="utf-8"))
LOGS = {"LOG": HEALTHY, "SLOW": SLOW, "SOCKET": str(sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log")}
SHM, P2P = "shm-instead-of-p2p", "p2p-disabled-by-env"
SUPPRESSION = '[[suppress]]\nrule = "{rule}"\nreason = "known, see the wiki"\n{more}\n'


def document(*args: str, cwd: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(execute("summarize", *args, "--format", "json", cwd=cwd).stdout)
    return loaded


def write_settings(folder: Path, text: str) -> Path:
    path = folder / SETTINGS
    path.write_text(text, encoding="utf-8")
    return path


def test_the_nearest_file_upwards_is_taken_and_told_on_stderr(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    write_settings(tmp_path, 'ignore = ["shm-*"]')
    near = write_settings(tmp_path / "a", 'ignore = ["p2p-*"]')
    done = execute("summarize", SLOW, "--format", "json", cwd=below)
    found = json.loads(done.stdout)
    assert [finding["rule"] for finding in found["findings"]] == [SHM]
    assert found["config"] == str(near)
    assert done.stderr.decode() == f"nccl-inspect: settings from {near} (--no-config ignores them)\n"


@every(5)
def test_what_settings_leave_of_the_findings(step: int, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('ignore = ["p2p-*"]')
    wrong: list[object] = []
    for case in COMMANDS["found"][::step]:
        write_settings(tmp_path, case.get("settings", ""))
        args = [LOGS[case.get("log", "SLOW")], *case.get("args", "").split()]
        text, data = (execute("summarize", *args, *form, cwd=tmp_path) for form in ([], ["--format", "json"]))
        found = json.loads(data.stdout)
        got = {
            "rules": [finding["rule"] for finding in found["findings"]],
            "severities": {finding["rule"]: finding["severity"] for finding in found["findings"]},
            "verdict": found["verdict"],
            "status": data.returncode,
            "paths": sorted({f"{path['transport']} {path['verdict']}" for path in found["paths"]}),
            "suppressed": [entry["finding"]["rule"] for entry in found["suppressed"]],
        }
        wrong += [(case, key, got[key]) for key in got if case.get(key, got[key]) != got[key]]
        shown = " ".join(text.stdout.decode().split())
        wrong += [(case, shown) for words in case.get("shows", ()) if words not in shown]
        wrong += [(case, shown) for words in case.get("lacks", ()) if words in shown]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_other_commands_that_judge_take_it_too(tmp_path: Path) -> None:
    write_settings(tmp_path, 'platform = "nothing"')
    for args in (["paths", HEALTHY, "--matrix"], ["watch", HEALTHY, "--until-end"]):
        done = execute(*args, cwd=tmp_path)
        assert (done.returncode, b"no platform 'nothing'" in done.stderr) == (2, True)
        assert execute(*args, "--no-config", cwd=tmp_path).returncode == 0


def test_platform_and_topology_are_defaults(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text((TESTS / "data" / "g6e.nvidia-smi-topo.txt").read_text())
    write_settings(tmp_path, 'platform = "p5.48xlarge"\ntopology = "topo.txt"\nignore = "p2p-disabled-by-env"')
    (tmp_path / "below").mkdir()
    found = document(SLOW, cwd=tmp_path / "below")
    assert found["job"]["platform"] == "p5.48xlarge"
    assert {finding["severity"] for finding in found["findings"]} == {"info"}, "the topology says that SHM is right"
    assert document(SLOW, "--platform", "g5.48xlarge", cwd=tmp_path)["job"]["platform"] == "g5.48xlarge"


def test_the_effect_of_what_is_not_told_stands_behind_what_nothing_explains(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    algorithm = "vm:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n"
    log.write_text(Path(SLOW).read_text(encoding="utf-8") + algorithm, encoding="utf-8")
    for settings, args in ((SUPPRESSION.format(rule=P2P, more=""), []), ("", ["--ignore", P2P])):
        write_settings(tmp_path, f'{settings}\n[severity]\n"algo-proto-forced" = "warning"')
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
        write_settings(tmp_path, SUPPRESSION.format(rule=P2P, more=more))
        shown = [finding["rule"] for finding in document(SLOW, cwd=tmp_path)["findings"]]
        assert (P2P not in shown) == is_covered, more


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
    done = execute("summarize", SLOW, "--config", "mine.toml", "--no-config", cwd=tmp_path)
    wrong += [] if (done.returncode, done.stderr.count(b"\n")) == (2, 1) else [done]
    (tmp_path / "latin.toml").write_bytes(b'platform = "\xe9"')
    for name, says in (("gone.toml", "No such file"), (".", "Is a directory"), ("latin.toml", "not UTF-8")):
        done = execute("summarize", SLOW, "--config", name, cwd=tmp_path)
        if (done.returncode, done.stderr.count(b"\n"), says in done.stderr.decode()) != (2, 1, True):
            wrong.append((name, done))
    assert not wrong


def test_the_python_interface_looks_for_a_file_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_settings(tmp_path, 'ignore = ["p2p-*"]')
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
