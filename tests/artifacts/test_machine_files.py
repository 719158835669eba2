"""Files about machines: how they are recognised and read, whatever stands in front of them.

What they settle of a job, and whose they are, is in `tests/labels/built_artifacts.toml` (`artifacts/machine files`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import TESTS

from nccl_inspect import artifacts
from nccl_inspect.artifacts.tools import Report

DATA = TESTS / "data" / "machines"
KINDS = {
    "ibstat output": "ibstat.txt ibstat-down.txt ibstat-slow.txt ibstatus.txt",
    "ibv_devinfo output": "ibv_devinfo.txt ibv_devinfo-v.txt",
    "rdma link output": "rdma-link.txt rdma-link-old.txt",
    "show_gids table": "show_gids.txt",
    "fi_info output": "fi_info-efa.txt fi_info-tcp.txt fi_info-none.txt fi_info-none-1.17.txt fi_info-v.txt",
    "lsmod output": "lsmod.txt lsmod-bare.txt modules.txt",
    "ulimit output": "ulimit-bash.txt ulimit-bash4.txt ulimit-small.txt ulimit-zsh.txt ulimit-sh.txt limits-proc.txt",
    "df output": "df.txt df-h.txt df-T.txt df-i.txt",
    "NIC counter file": "counters-before.txt counters-after.txt rdma-statistic.txt ethtool-S.txt",
    "nvidia-smi list": "nvidia-smi-L.txt nvlink-s.txt nvlink-s-bad.txt nvlink-e.txt",
    "nvidia-smi -q output": "nvidia-smi-q-535.txt nvidia-smi-q-535-bad.txt nvidia-smi-q-580.txt "
    "nvidia-smi-q-580-fabric.txt",
}
FILES = [(kind, name, (DATA / name).read_bytes()) for kind, names in KINDS.items() for name in names.split()]
LEADS = (b"", b"\r\n", b"$ tool -a\n", b"root@node-1:~# tool\n\n", b'Defaulted container "x" out of: x, y\n')
LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def read(data: bytes, name: str = "x") -> tuple[str, Report]:
    """Return the kind of a file, and what is in it."""
    kind = artifacts.kind_of(data)
    return (kind.title, kind.read(name, data)) if kind else ("nothing known", Report(name, ()))


def values(report: Report) -> list[object]:
    return [(item.part, item.name, item.values) for item in report.items]


def misread(kind: str, data: bytes) -> Iterator[str]:
    """Yield in which surroundings a file of a kind is not read as what it is."""
    whole = values(read(data)[1])
    for lead in LEADS:
        found = read(lead + data)
        if (found[0], len(found[1].items)) != (kind, len(whole)):
            yield f"behind {lead!r}"
    found = read(data.replace(b"\n", b"\r\n"))
    if (found[0], values(found[1])) != (kind, whole):
        yield "with carriage returns"
    lines = [line for line in data.splitlines() if line.strip()]
    found = read(b"".join(b"node-1: " + line + b"\nnode-2: " + line + b"\n" for line in lines))
    items = found[1].items
    if (found[0], {item.host for item in items}, len(items)) != (kind, {"node-1", "node-2"}, 2 * len(whole)):
        yield "with hosts in front of lines, mixed, as pdsh and clush print them"
    if artifacts.kind_of(LINE + data) or artifacts.kind_of(b"epoch 1\n" + data):
        yield "in a log that quotes it"


def test_files_are_recognised_whatever_surrounds_them() -> None:
    wrong = [f"{name}, {how}" for kind, name, data in FILES for how in misread(kind, data)]
    assert not wrong, "\n".join([f"in {DATA}, not read as it is:", *wrong])


@pytest.mark.slow
def test_a_log_that_holds_such_an_output_is_a_log(tmp_path: Path) -> None:
    """Scripts print these before they start the job."""
    for _, name, data in FILES:
        (tmp_path / f"{name}.log").write_bytes(data + b"\n" * (artifacts.HEAD + 1) + LINE)
    logs, beside = artifacts.inventory(str(tmp_path))[:2]
    assert (len(logs), beside) == (len(FILES), [])


@given(st.sampled_from(FILES), st.integers(0, 6000), st.binary(max_size=6))
def test_a_damaged_file_is_refused_or_read(file: tuple[str, str, bytes], at: int, noise: bytes) -> None:
    data = file[2][:at] + noise + file[2][at + len(noise) :]
    for kind in artifacts.kinds():
        if kind.recognises(data):
            with contextlib.suppress(ValueError):
                kind.read("x", data)


def items(name: str) -> Report:
    return read((DATA / name).read_bytes(), name)[1]


def test_limits_ports_and_file_systems_are_in_the_same_words_and_units_whatever_the_tool() -> None:
    limits = {
        "ulimit-bash.txt": (None, 1048576),
        "ulimit-small.txt": (8192 << 10, 1024),
        "ulimit-bash4.txt": (65536, 1024),
        "ulimit-zsh.txt": (65536, 1024),
        "ulimit-sh.txt": (65536, 1024),
        "limits-proc.txt": (65536, 1024),
    }
    for name, expected in limits.items():
        found = {item.name: item.values.get("value") for item in items(name).items if item.part == "limit"}
        assert (found["memlock"], found["nofile"]) == expected, name
        assert "nproc" in found, name
    for name in ("ibstat-down.txt", "ibstatus.txt", "ibv_devinfo.txt", "rdma-link.txt"):
        assert {item.values["state"] for item in items(name).items} == {"ACTIVE", "DOWN"}, name
    assert [item.values["rate"] for item in items("ibv_devinfo-v.txt").items] == [400, 400, 100]
    sizes = {
        name: [item.values["size"] for item in items(name).items if item.name == "/dev/shm"]
        for name in ("df.txt", "df-h.txt", "df-T.txt")
    }
    assert sizes == {"df.txt": [1056555584 << 10], "df-h.txt": [64 << 20], "df-T.txt": [1008 << 30]}
