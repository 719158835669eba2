"""Two runs compared: by ranks, not by names; what a log does not show is no change; causes are proved by lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import command_line
import pytest
import sample_data
from click.testing import Result
from schemas import closed

import nccl_inspect
from nccl_inspect.differences import Difference, formats
from nccl_inspect.differences.compare import compare

VALIDATOR = closed("nccl-inspect-diff-1")
HEALTHY = "p2p-nvlink-8gpu"
SHM = "v2.30.7-shm-4gpu"
SOCKET = "socket-2node-tp4-dp2"
OFI = "v2.28.9-libfabric-2node"
EFA_MISSING = "efa-provider-missing-socket-fallback"


def log(name: str) -> str:
    return str(sample_data.FOLDER / name / "job.log")


def text(name: str) -> str:
    return Path(log(name)).read_text(encoding="utf-8")


def line(rank: int, message: str, host: str = "vm") -> str:
    return f"{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {message}\n"


def way(src: int, dst: int, via: str, channels: int = 1, host: str = "vm") -> str:
    return "".join(
        line(src, f"Channel {channel:02d}/0 : {src}[{src}] -> {dst}[{dst}] {via}", host) for channel in range(channels)
    )


P2P, SHM_WAY, IB = "via P2P/CUMEM", "via SHM/direct/direct", "[send] via NET/IB/0"
P2P_OFF = line(0, "NCCL_P2P_DISABLE set by environment to 1") + line(1, "NCCL_P2P_DISABLE set by environment to 1")
VERSION = line(0, "NCCL version 2.27.3+cuda12.9")


def ring(name: str) -> str:
    return line(0, f"NCCL_ALGO set by environment to {name}")


def invoke(*args: str, data: bytes | None = None) -> Result:
    return command_line.invoke("diff", *args, data=data)


def documented(*args: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(invoke(*args, "--format", "json").stdout)
    VALIDATOR.validate(document)
    return document


def compared(before: str, after: str) -> Difference:
    return compare(nccl_inspect.read(before.encode()), nccl_inspect.read(after.encode()))


def changes(difference: Difference) -> list[tuple[str, str, str | None, str | None]]:
    return [(change.area, change.what, change.before, change.after) for change in difference.changes]


@pytest.mark.slow
def test_every_run_is_the_same_as_itself() -> None:
    for name in sample_data.names():
        difference = compare(sample_data.job(name), sample_data.job(name))
        assert not (difference.changes or difference.explanations or difference.renamed), name


def test_names_of_hosts_process_ids_and_the_order_of_lines_do_not_count(tmp_path: Path) -> None:
    """Pods get other names with each run, and their names stand in variables, too."""
    other = re.sub(r"llama-3-8b-node-0-(\d)", r"mistral-\1-xk2", text(SOCKET))
    other = re.sub(r":(\d+):(\d+) \[", lambda found: f":{int(found[1]) + 70000}:{int(found[2]) + 70000} [", other)
    (tmp_path / "b.log").write_text(other, encoding="utf-8")
    document = documented(log(SOCKET), str(tmp_path / "b.log"))
    assert document["is_same"], document["changes"]
    names = [{"a": f"llama-3-8b-node-0-{host}", "b": f"mistral-{host}-xk2"} for host in (0, 1)]
    assert document["renamed_hosts"] == names
    words = " ".join(invoke(log(SOCKET), str(tmp_path / "b.log")).stdout.split())
    assert "compared by rank: llama-3-8b-node-0-0 is mistral-0-xk2, " in words
    lines = text(HEALTHY).splitlines(keepends=True)
    by_process = sorted(lines, key=lambda line: line.partition(" ")[0].rpartition(":")[0], reverse=True)
    assert not compared("".join(lines), "".join(by_process)).changes


CHANGES: list[tuple[str, str, tuple[str, str, str | None, str | None]]] = [
    (way(0, 1, P2P), way(0, 1, SHM_WAY), ("paths", "intra", "P2P/CUMEM", "SHM/direct/direct")),
    (way(0, 1, P2P, 4), way(0, 1, P2P, 2), ("paths", "intra", "4 channels", "2 channels")),
    (way(0, 1, P2P), way(0, 1, P2P) + way(1, 0, P2P), ("paths", "intra", None, "P2P/CUMEM")),
    (way(0, 1, P2P) + way(1, 0, P2P), way(0, 1, P2P), ("paths", "intra", "P2P/CUMEM", None)),
    (way(0, 9, IB), way(0, 9, IB + "/GDRDMA"), ("paths", "unknown", "NET/IB", "NET/IB with GPUDirect")),
    (
        way(0, 9, IB + "/GDRDMA", 2),
        way(0, 9, IB + "/GDRDMA") + line(0, "Channel 01/0 : 0[0] -> 9[9] [send] via NET/IB/0"),
        ("paths", "unknown", "NET/IB with GPUDirect", "NET/IB with GPUDirect on some channels"),
    ),
    (VERSION, VERSION.replace("27.3", "28.9"), ("versions", "NCCL", "2.27.3+cuda12.9", "2.28.9+cuda12.9")),
    (
        VERSION + line(0, "cudaDriverVersion 12090"),
        VERSION + line(0, "cudaDriverVersion 13000"),
        ("versions", "CUDA driver", "12.9", "13.0"),
    ),
    (VERSION + ring("Ring"), VERSION + ring("Tree"), ("environment", "NCCL_ALGO", "Ring", "Tree")),
    (VERSION, VERSION + ring("Tree"), ("environment", "NCCL_ALGO", None, "Tree")),
    (
        VERSION + P2P_OFF + way(0, 1, SHM_WAY),
        VERSION + P2P_OFF + way(0, 1, SHM_WAY) + way(1, 2, SHM_WAY),
        ("findings", "shm-instead-of-p2p", "ranks 0-1", "ranks 0-2"),
    ),
]
SAME = [
    # in the words of two releases
    (way(0, 1, "via SHM/direct/direct"), way(0, 1, "via SHM/direct")),
    (way(0, 1, "via direct shared memory"), way(0, 1, "via SHM/direct/direct")),
    (way(0, 9, "[send] via NET/AWS Libfabric/0"), way(0, 9, "[send] via NET/Libfabric/0")),
]


def test_changes_in_both_directions() -> None:
    wrong: list[object] = []
    for before, after, (area, what, old, new) in CHANGES:
        for there, back, change in ((before, after, (old, new)), (after, before, (new, old))):
            if (area, what, *change) not in (found := changes(compared(there, back))):
                wrong.append((area, what, change, found))
    wrong += [pair for pair in SAME if compared(*pair).of("paths")]
    assert not wrong, "\n".join(map(str, wrong))


def test_pairs_that_changed_alike_are_one_change() -> None:
    before = "".join(way(rank, (rank + 1) % 8, P2P) for rank in range(8))
    after = "".join(way(rank, (rank + 1) % 8, SHM_WAY if rank < 4 else P2P) for rank in range(8))
    (change,) = compared(before, after).of("paths")
    assert change.pairs == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert change.ranks == [0, 1, 2, 3, 4]
    assert change.evidence


def test_a_setting_explains_the_finding_that_stands_on_its_line_and_that_one_the_paths() -> None:
    before = VERSION + way(0, 1, P2P) + way(1, 0, P2P)
    after = VERSION + P2P_OFF + way(0, 1, SHM_WAY) + way(1, 0, SHM_WAY)
    (chain,) = compared(before, after).explanations
    assert [change.what for change in chain.causes] == ["NCCL_P2P_DISABLE"]
    assert [change.what for change in chain.findings] == ["p2p-disabled-by-env", "shm-instead-of-p2p"]
    assert [(change.before, change.after) for change in chain.effects] == [("P2P/CUMEM", "SHM/direct/direct")]
    (back,) = compared(after, before).explanations
    assert {change.kind for change in (*back.causes, *back.findings)} == {"gone"}
    forced = line(0, "NCCL_ALGO set by environment to Ring.") + line(0, "NCCL_PROTO set by environment to Simple.")
    (chain,) = compared(VERSION + forced + way(0, 1, P2P), VERSION + way(0, 1, P2P)).explanations
    assert [change.what for change in chain.causes] == ["NCCL_ALGO", "NCCL_PROTO"], "what explains it together"
    assert [(change.kind, change.what) for change in chain.findings] == [("gone", "algo-proto-forced")]


def test_a_chain_says_what_mends_b_and_what_takes_its_cause_back() -> None:
    paths = way(0, 1, SHM_WAY) + way(1, 0, SHM_WAY)
    (chain,) = compared(VERSION + paths, VERSION + P2P_OFF + paths).explanations
    assert [step.split("   #")[0] for step in chain.fix] == ["unset NCCL_P2P_DISABLE"]
    level = ["".join(line(r, f"NCCL_P2P_LEVEL set by environment to {v}") for r in (0, 1)) for v in ("NVL", "LOC")]
    good = VERSION + level[0] + way(0, 1, P2P) + way(1, 0, P2P)
    changed = compared(good, VERSION + level[1] + paths)
    fixes = [step for chain in changed.explanations for step in chain.fix]
    assert "NCCL_P2P_LEVEL=NVL   # as in A" in fixes
    assert not [step for chain in compared(VERSION + P2P_OFF + paths, good).explanations for step in chain.fix]


def test_what_explains_nothing_is_no_cause() -> None:
    rails = "".join(
        line(src, f"Channel 0{nic}/0 : {src}[{src}] -> {dst}[{dst}] [send] via NET/IB/{nic}/GDRDMA", host)
        + line(dst, f"Channel 0{nic}/0 : {src}[{src}] -> {dst}[{dst}] [receive] via NET/IB/{1 - nic}/GDRDMA", other)
        for nic, src, dst, host, other in ((0, 0, 2, "a", "b"), (1, 1, 3, "a", "b"))
    )
    local = way(0, 1, P2P, host="a") + way(1, 0, P2P, host="a") + way(2, 3, P2P, host="b") + way(3, 2, P2P, host="b")
    difference = compared(VERSION + local + rails, VERSION + local)
    assert [change.kind for change in difference.of("paths")] == ["gone"]
    assert not difference.explanations, "an info does not explain that paths are missing"
    size = line(0, "NCCL_BUFFSIZE set by environment to 8388608.")
    difference = compared(way(0, 1, P2P), size + way(0, 1, SHM_WAY))
    assert difference.of("environment")
    assert not any(chain.causes and chain.effects for chain in difference.explanations), "its finding is on the buffer"


def test_what_a_log_does_not_say_is_no_change() -> None:
    whole, ofi = text(HEALTHY), text(OFI)
    (pid,) = set(re.findall(r"^(vm:\d+):\d+ \[3\] .* rank 3 nranks", whole, re.MULTILINE))
    without_rank = "".join(each for each in whole.splitlines(keepends=True) if not each.startswith(f"{pid}:"))
    without_paths = "".join(one for one in ofi.splitlines(keepends=True) if " via " not in one)
    old = VERSION.replace("2.27.3", "2.21.5") + way(0, 1, P2P)
    wrong: list[object] = []
    for before, after, areas, reason in (
        (whole, without_rank, ["paths"], "rank 3: not in both logs, so its paths are not compared"),
        (whole, "".join(whole.splitlines(keepends=True)[:60]), ["versions", "paths"], "B has no connection line"),
        (
            old,
            VERSION + P2P_OFF + way(0, 1, P2P),
            ["environment"],
            "NCCL_P2P_DISABLE=1: NCCL of run A does not echo it",
        ),
        (ofi, without_paths, [], "gdr-disabled: found in A; the log of B does not show it"),
    ):
        difference = compared(before, after)
        wrong += [(reason, change) for area in areas for change in difference.of(area)]
        wrong += [] if any(reason in each for each in difference.open) else [(reason, difference.open)]
        wrong += [
            change for change in difference.of("findings") if (change.kind, change.what) == ("gone", "gdr-disabled")
        ]
    assert not wrong


def test_every_format_tells_cause_line_and_fix() -> None:
    for form in formats.names():
        shown = " ".join(invoke(log(HEALTHY), log(SHM), "--format", form).stdout.replace("\\_", "_").split())
        for words in ("NCCL_P2P_DISABLE=1", "shm-instead-of-p2p", "unset NCCL_P2P_DISABLE", "set by environment to 1"):
            assert words in shown, (form, words)


def test_the_page_asks_for_nothing_and_escapes_the_log(tmp_path: Path) -> None:
    bad = VERSION + line(0, "NCCL_NET set by environment to <script>alert(1)</script>") + way(0, 1, P2P)
    (tmp_path / "a.log").write_text(VERSION + way(0, 1, P2P), encoding="utf-8")
    (tmp_path / "b.log").write_text(bad, encoding="utf-8")
    assert invoke(str(tmp_path / "a.log"), str(tmp_path / "b.log"), "-o", str(tmp_path / "d.html")).stdout == ""
    page = (tmp_path / "d.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r'(?:src|href)="(?!#|data:,|https://)', page)


def test_worlds_of_other_sizes_are_compared_by_kind() -> None:
    document = documented(log(HEALTHY), log(SHM))
    found = {(change["area"], change["kind"], change["before"], change["after"]) for change in document["changes"]}
    assert ("world", "changed", "8", "4") in found
    assert ("paths", "gone", "P2P/CUMEM", None) in found
    assert ("paths", "new", None, "SHM/direct/direct") in found
    assert any("not comparable" in reason for reason in document["not_compared"])
    (chain,) = document["explanations"]
    findings = [document["changes"][number]["what"] for number in chain["findings"]]
    assert findings == ["p2p-disabled-by-env", "shm-instead-of-p2p"]
    difference = compare(sample_data.job(HEALTHY), sample_data.job("torn-p2p-8gpu"))
    sizes = [(change.kind, change.what) for change in difference.of("communicators")]
    assert sizes == [("new", "of 2 ranks"), ("new", "of 4 ranks")], "those of the same ranks are the same"


STATUSES = [
    (HEALTHY, SHM, [], 0),
    (HEALTHY, SHM, ["--exit-code"], 1),
    (HEALTHY, SHM, ["--fail-on", "warning"], 1),
    (HEALTHY, SHM, ["--fail-on", "error"], 0),
    (SHM, HEALTHY, ["--fail-on", "info"], 0),
    (SHM, HEALTHY, ["--exit-code"], 1),
    (SHM, SHM, ["--fail-on", "info", "--exit-code"], 0),
    (OFI, "peer-killed", ["--fail-on", "error"], 1),
    ("peer-killed", "peer-killed", ["--fail-on", "info"], 0),
    (HEALTHY, SHM, ["--fail-on", "warning", "--ignore", "intra-node path"], 0),
]


def test_exit_statuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = [invoke(log(before), log(after), *args).return_value for before, after, args, _ in STATUSES]
    assert got == [status for *_, status in STATUSES]
    same = invoke(log(HEALTHY), "-", "--exit-code", "--fail-on", "info", data=text(HEALTHY).encode())
    assert same.return_value == 0
    assert same.stdout.startswith("SAME: no difference in versions, network,")
    (tmp_path / "nccl-inspect.toml").write_text('ignore = ["intra-node path"]')
    monkeypatch.chdir(tmp_path)
    result = invoke(log(HEALTHY), log(SHM), "--fail-on", "info")
    assert (result.return_value, result.stderr.count("settings from")) == (0, 1)


def test_the_text_fits_the_width() -> None:
    for before, after in ((HEALTHY, SHM), (OFI, EFA_MISSING), (SOCKET, "timestamps")):
        for columns in (40, 60, 100):
            names = f"{before}/job.log", f"{after}/job.log"
            done = command_line.execute("diff", *names, cwd=sample_data.FOLDER, env={"COLUMNS": f"{columns}"})
            for shown in done.stdout.decode().splitlines():
                assert len(shown) <= columns or len(shown.split()) == 1, shown
                assert shown == shown.rstrip()
