"""Two runs compared: every run is the same as itself, the document fits its schema, and the page asks for nothing.

What is told of which change, and what is none, is in `tests/answers/commands.txt` (`diff/pairs`).
"""

from __future__ import annotations

import json
from pathlib import Path

import command_line
import pytest
import sample_data
from click.testing import Result
from schemas import close_schema

from nccl_inspect.extras.gate.differences import compare

HEALTHY = "p2p-nvlink-8gpu"
SHM = "v2.30.7-shm-4gpu"
SOCKET = "socket-2node-tp4-dp2"
OFI = "v2.28.9-libfabric-2node"


def log(name: str) -> str:
    return str(sample_data.FOLDER / name / "job.log")


def text(name: str) -> str:
    return Path(log(name)).read_text(encoding="utf-8")


def invoke(*args: str, data: bytes | None = None) -> Result:
    return command_line.invoke("diff", *args, data=data)


def test_the_document_fits_its_schema_and_the_page_says_the_same() -> None:
    for before, after in ((HEALTHY, SHM), (SOCKET, "timestamps"), (OFI, OFI)):
        document = json.loads(invoke(log(before), log(after), "--format", "json").stdout)
        close_schema("nccl-inspect-diff-1").validate(document)
    page = invoke(log(HEALTHY), log(SHM)).stdout
    for words in ("NCCL_P2P_DISABLE=1", "shm-instead-of-p2p", "unset NCCL_P2P_DISABLE", "set by environment to 1"):
        assert words in page, words


@pytest.mark.slow
def test_every_run_is_the_same_as_itself() -> None:
    for name in sample_data.names():
        difference = compare(sample_data.job(name), sample_data.job(name))
        assert not (difference.changes or difference.explanations or difference.renamed), name


def test_a_log_may_be_piped_in_and_settings_are_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = invoke(log(HEALTHY), "-", "--exit-code", "--fail-on", "info", data=text(HEALTHY).encode())
    assert same.return_value == 0
    assert same.stdout.startswith("SAME: no difference in versions, network,")
    (tmp_path / "nccl-inspect.toml").write_text('ignore = ["intra-node path"]')
    monkeypatch.chdir(tmp_path)
    result = invoke(log(HEALTHY), log(SHM), "--fail-on", "info")
    assert (result.return_value, result.stderr.count("settings from")) == (0, 1)
