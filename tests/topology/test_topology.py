"""Topology files: what ``nvidia-smi topo -m`` prints, and what is not that.

The logs with labels show what a matrix in the log tells, and when it tells nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from repository import TESTS

from nccl_inspect import topology
from nccl_inspect.errors import TopologyError

NVSWITCH, WITH_NICS, OLD_NICS = (
    (TESTS / "data" / f"{name}.nvidia-smi-topo.txt").read_text(encoding="utf-8")
    for name in ("nvswitch", "nics", "old-nics")
)


def read(tmp_path: Path, text: str) -> topology.Topology:
    file = tmp_path / "topo.txt"
    file.write_text(text, encoding="utf-8")
    return topology.read(str(file))


def test_the_matrix_is_read_through_its_colour_codes(tmp_path: Path) -> None:
    found = read(tmp_path, NVSWITCH)
    assert found.gpus == 3
    assert found.name.endswith("topo.txt")
    assert {found.link_class(a, b) for a in range(3) for b in range(3) if a != b} == {"NV18"}
    assert found.link_class(0, 0) is None
    assert found.link_class(0, 3) is None


def test_nics_are_told_apart_from_gpus(tmp_path: Path) -> None:
    found = read(tmp_path, WITH_NICS)
    assert found.gpus == 4
    assert [found.link_class(0, other) for other in (1, 2, 3)] == ["PHB", "NODE", "SYS"]
    assert [found.link_class(3, other) for other in (0, 1, 2)] == ["SYS", "SYS", "SYS"]
    assert len(found.classes) == 4 * 3
    assert [nic.name for nic in found.nics] == ["mlx5_0", "mlx5_1"]
    assert found.nics[0].classes == {0: "PIX", 1: "PXB", 2: "NODE", 3: "SYS"}
    by_device = read(tmp_path, OLD_NICS)
    assert (by_device.gpus, by_device.link_class(1, 0)) == (2, "PIX")
    alone = read(tmp_path, "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n")
    assert (alone.gpus, alone.classes) == (1, {})


def test_windows_line_ends_and_text_around_it_do_no_harm(tmp_path: Path) -> None:
    for text in (NVSWITCH, WITH_NICS, OLD_NICS):
        classes = read(tmp_path, text).classes
        assert read(tmp_path, f"$ nvidia-smi topo -m\n{text}\n$ exit\n").classes == classes
        file = tmp_path / "windows.txt"
        file.write_bytes(text.replace("\n", "\r\n").encode())
        assert topology.read(str(file)).classes == classes


def test_a_damaged_row_is_an_error_that_names_it(tmp_path: Path) -> None:
    for damaged, gpu in (
        (NVSWITCH.replace("GPU1\tNV18\t X \tNV18\t0-127\t0\t\tN/A\n", "GPU1\tNV18\n"), 1),  # short
        (NVSWITCH.replace("GPU2\tNV18\tNV18\t X \t0-127\t0\t\tN/A\n", ""), 2),  # missing
        (NVSWITCH.replace("GPU0\t X \tNV18", "GPU0\t X \tNV?"), 0),  # of an unknown class
        (WITH_NICS.replace("GPU3    SYS     SYS     SYS ", "GPU3    SYS     SYS     0-23 "), 3),  # shifted
    ):
        with pytest.raises(TopologyError, match=rf"topo\.txt: the row of GPU{gpu} is damaged; copy the whole output"):
            read(tmp_path, damaged)


def test_a_file_of_another_kind_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    for text in ("", "no matrix\n", "GPU0\n", "<html/>\n", "GPU 0: NVIDIA H200\n", bytes(range(256)).decode("latin-1")):
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(TopologyError, match=r"topo\.txt: not a topology that is understood; give"):
            topology.read(str(file))
    with pytest.raises(TopologyError, match=r"gone\.txt: No such file or directory; check the path given"):
        topology.read(str(tmp_path / "gone.txt"))
