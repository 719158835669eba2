"""Topology files: what ``nvidia-smi topo -m`` prints, and what is not that."""

from __future__ import annotations

from pathlib import Path

import pytest

import nccl_inspect
from nccl_inspect import topology
from nccl_inspect.errors import TopologyError

NVSWITCH = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tNV18\t0-127\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNV18\t0-127\t0\t\tN/A\n"
    "GPU2\tNV18\tNV18\t X \t0-127\t0\t\tN/A\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n"
)
WITH_NICS = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      PHB     NODE    SYS     PIX     SYS     0-23,48-71      0               N/A
GPU1    PHB      X      NODE    SYS     PXB     SYS     0-23,48-71      0               N/A
GPU2    NODE    NODE     X      SYS     NODE    SYS     0-23,48-71      0               N/A
GPU3    SYS     SYS     SYS      X      SYS     PIX     24-47,72-95     1               N/A
NIC0    PIX     PXB     NODE    SYS      X      SYS
NIC1    SYS     SYS     SYS     PIX     SYS      X

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
OLD_NICS = """\
\tGPU0\tGPU1\tmlx5_0\tCPU Affinity
GPU0\t X \tPIX\tPHB\t0-7
GPU1\tPIX\t X \tPHB\t0-7
mlx5_0\tPHB\tPHB\t X \t
"""
ONE_GPU = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n"


def read(tmp_path: Path, text: str) -> topology.Topology:
    file = tmp_path / "topo.txt"
    file.write_text(text, encoding="utf-8")
    return topology.read(str(file))


def test_the_matrix_is_read_through_its_colour_codes(tmp_path: Path) -> None:
    found = read(tmp_path, NVSWITCH)
    assert found.gpus == 3
    assert found.name.endswith("topo.txt")
    assert {found.between(a, b) for a in range(3) for b in range(3) if a != b} == {"NV18"}
    assert found.between(0, 0) is None
    assert found.between(0, 3) is None


def test_nics_are_told_apart_from_gpus(tmp_path: Path) -> None:
    found = read(tmp_path, WITH_NICS)
    assert found.gpus == 4
    assert [found.between(0, other) for other in (1, 2, 3)] == ["PHB", "NODE", "SYS"]
    assert [found.between(3, other) for other in (0, 1, 2)] == ["SYS", "SYS", "SYS"]
    assert len(found.classes) == 4 * 3
    assert [nic.name for nic in found.nics] == ["mlx5_0", "mlx5_1"]
    assert found.nics[0].classes == {0: "PIX", 1: "PXB", 2: "NODE", 3: "SYS"}


def test_nics_may_be_named_by_their_device(tmp_path: Path) -> None:
    found = read(tmp_path, OLD_NICS)
    assert found.gpus == 2
    assert found.between(1, 0) == "PIX"


def test_a_single_gpu_has_no_pair(tmp_path: Path) -> None:
    found = read(tmp_path, ONE_GPU)
    assert found.gpus == 1
    assert not found.classes


@pytest.mark.parametrize("text", [NVSWITCH, WITH_NICS, OLD_NICS])
def test_windows_line_ends_and_text_around_it_do_no_harm(tmp_path: Path, text: str) -> None:
    around = f"$ nvidia-smi topo -m\n{text}\n$ exit\n"
    assert read(tmp_path, around).classes == read(tmp_path, text).classes
    file = tmp_path / "windows.txt"
    file.write_bytes(text.replace("\n", "\r\n").encode())
    assert topology.read(str(file)).classes == read(tmp_path, text).classes


@pytest.mark.parametrize(
    ("damaged", "gpu"),
    [
        (NVSWITCH.replace("GPU1\tNV18\t X \tNV18\t0-127\t0\t\tN/A\n", "GPU1\tNV18\n"), 1),
        (NVSWITCH.replace("GPU2\tNV18\tNV18\t X \t0-127\t0\t\tN/A\n", ""), 2),
        (NVSWITCH.replace("GPU0\t X \tNV18", "GPU0\t X \tNV?"), 0),
        (WITH_NICS.replace("GPU3    SYS     SYS     SYS ", "GPU3    SYS     SYS     0-23 "), 3),
    ],
    ids=["short row", "row missing", "unknown class", "row shifted"],
)
def test_a_damaged_row_is_an_error_that_names_it(tmp_path: Path, damaged: str, gpu: int) -> None:
    with pytest.raises(TopologyError, match=rf"topo\.txt: the row of GPU{gpu} is damaged; copy the whole output"):
        read(tmp_path, damaged)


@pytest.mark.parametrize("text", ["", "no matrix\n", "GPU0\n", "<html/>\n", "GPU 0: NVIDIA H200\n"])
def test_a_file_of_another_kind_is_an_error_that_says_what_to_give(tmp_path: Path, text: str) -> None:
    with pytest.raises(TopologyError, match=r"topo\.txt: not a topology that is understood; give"):
        read(tmp_path, text)


def test_a_binary_file_is_an_error_too(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(TopologyError, match="not a topology"):
        topology.read(str(file))


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"gone\.txt: No such file or directory; check the path given"):
        topology.read(str(tmp_path / "gone.txt"))


def test_a_topology_without_p2p_makes_shared_memory_the_best_path(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    log = b"vm:1:1 [0] NCCL INFO Channel 00 : %d[%d] -> %d[%d] via SHM/direct/direct"
    data = b"\n".join(log % pair for pair in ((0, 0, 3, 3), (1, 1, 3, 3)))
    file.write_text(WITH_NICS, encoding="utf-8")
    slow = nccl_inspect.read(data, topology=str(file))
    file.write_text(NVSWITCH, encoding="utf-8")
    assert {path.verdict for path in slow.paths} == {"ok"}
    fast = nccl_inspect.read(data.replace(b"3[3]", b"2[2]"), topology=str(file))
    assert {path.verdict for path in fast.paths} == {"fallback"}


SHM = (
    "vm:1517:1593 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
    "vm:1511:1595 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct\n"
)


def kinds_in(log: str) -> set[str | None]:
    return {path.expected for path in nccl_inspect.read(log.encode()).paths}


def test_a_matrix_in_the_log_tells_as_much_as_a_file() -> None:
    assert kinds_in(SHM) == {None}
    assert kinds_in(NVSWITCH + SHM) == {"P2P (NV18)"}
    assert kinds_in(SHM + NVSWITCH) == {"P2P (NV18)"}
    assert kinds_in((NVSWITCH + SHM).expandtabs()) == {"P2P (NV18)"}
    assert kinds_in(WITH_NICS + SHM) == {"SHM"}
    assert kinds_in(OLD_NICS + SHM) == {"P2P (PIX)"}


@pytest.mark.parametrize("begin", ["[1,0]<stdout>:", "2025-03-04T10:20:30.123456789Z "])
def test_a_matrix_in_the_log_may_stand_behind_what_a_launcher_puts_there(begin: str) -> None:
    log = "".join(f"{begin}{line}\n" for line in NVSWITCH.splitlines()) + SHM
    assert kinds_in(log) == {"P2P (NV18)"}


def test_machines_that_print_the_same_matrix_are_of_one_kind() -> None:
    assert kinds_in(NVSWITCH * 2 + SHM) == {"P2P (NV18)"}


@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param(NVSWITCH + WITH_NICS, id="of two machines"),
        pytest.param(NVSWITCH + NVSWITCH.replace("NV18\tNV18\t X ", "NV18\tSYS\t X "), id="rows that differ"),
        pytest.param(NVSWITCH.replace("CPU Affinity", ""), id="without its head"),
        pytest.param(NVSWITCH.replace("GPU1\tNV18", "GPU1\tNV"), id="damaged"),
        pytest.param(NVSWITCH.partition("GPU2\tNV18")[0], id="cut off"),
    ],
)
def test_a_matrix_that_is_not_whole_or_not_the_only_one_tells_nothing(matrix: str) -> None:
    assert kinds_in(matrix + SHM) == {None}


def behind(lead: str, text: str) -> str:
    return "".join(f"{lead}{line}\n" for line in text.splitlines())


def certainty(log: str, **options: str) -> dict[str, str]:
    return {finding.rule: finding.confidence for finding in nccl_inspect.read(log.encode(), **options).findings}


@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param(behind("login-1: ", NVSWITCH), id="of a host that is not in the job"),
        pytest.param(behind("vm: docs example: ", NVSWITCH), id="quoted"),
        pytest.param(behind("[stderr] see ", NVSWITCH), id="in a sentence"),
    ],
)
def test_a_matrix_of_another_machine_tells_nothing(matrix: str) -> None:
    assert kinds_in(matrix + behind("vm: ", SHM)) == {None}
    assert kinds_in(matrix + SHM) == {None}


def test_a_matrix_with_fewer_gpus_than_the_job_uses_on_a_host_is_none_of_its_machines() -> None:
    four = "".join(
        f"vm:151{rank}:151{rank} [{rank}] NCCL INFO Channel 00 : {rank}[{rank}] -> {end}[{end}] via SHM/direct/direct\n"
        for rank, end in ((0, 1), (1, 2), (2, 3), (3, 0))
    )
    assert kinds_in(NVSWITCH + four) == {None}


def test_what_a_matrix_tells_is_certain_only_where_it_is_known_to_be_of_the_job() -> None:
    shm, vm = "shm-instead-of-p2p", behind("vm: ", SHM)
    assert certainty(NVSWITCH + SHM) == {"nvlink-not-used": "likely", shm: "likely"}
    assert certainty(behind("vm: ", NVSWITCH) + vm) == {"nvlink-not-used": "certain", shm: "certain"}
    assert certainty(behind("vm.example.org: ", NVSWITCH) + vm)[shm] == "certain"
    assert certainty(WITH_NICS + SHM) == {shm: "likely"}
    assert certainty(SHM, platform="p5.48xlarge")[shm] == "certain"
    other = vm.replace("vm", "worker-2").replace("0[0]", "2[0]").replace("1[1]", "3[1]")
    assert certainty(behind("vm: ", NVSWITCH) + vm + other)[shm] == "likely"


def test_a_rank_of_a_launcher_tells_the_host() -> None:
    assert certainty(behind("[1,0]<stdout>:", NVSWITCH) + behind("[1,0]<stdout>:", SHM))["nvlink-not-used"] == "certain"
