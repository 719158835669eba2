"""Topology files: what ``nvidia-smi topo -m`` prints, NCCL's own XML, and what is neither.

The logs with labels show what a matrix in the log tells, and when it tells nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from repository import TESTS

import nccl_inspect
from nccl_inspect import topology
from nccl_inspect.errors import TopologyError
from nccl_inspect.model.inventory import Gpu, parse_bracket
from nccl_inspect.topology.nccl_xml import read as read_xml

NVSWITCH, WITH_NICS, OLD_NICS = (
    (TESTS / "data" / f"{name}.nvidia-smi-topo.txt").read_text(encoding="utf-8")
    for name in ("nvswitch", "nics", "old-nics")
)


def read(tmp_path: Path, text: str) -> topology.Topology:
    file = tmp_path / "topo.txt"
    file.write_text(text, encoding="utf-8")
    return topology.read(str(file))


def link(found: topology.Topology, src: int, dst: int) -> str | None:
    return found.pair(Gpu(src, None), Gpu(dst, None))


def test_the_matrix_is_read_through_its_colour_codes(tmp_path: Path) -> None:
    found = read(tmp_path, NVSWITCH)
    assert found.gpus == 3
    assert found.name.endswith("topo.txt")
    assert {link(found, a, b) for a in range(3) for b in range(3) if a != b} == {"NV18"}
    assert link(found, 0, 0) is None
    assert link(found, 0, 3) is None


def test_nics_are_told_apart_from_gpus(tmp_path: Path) -> None:
    found = read(tmp_path, WITH_NICS)
    assert found.gpus == 4
    assert [link(found, 0, other) for other in (1, 2, 3)] == ["PHB", "NODE", "SYS"]
    assert [link(found, 3, other) for other in (0, 1, 2)] == ["SYS", "SYS", "SYS"]
    assert len(found.classes) == 4 * 3
    assert [nic.name for nic in found.nics] == ["mlx5_0", "mlx5_1"]
    assert found.nics[0].classes == {0: "PIX", 1: "PXB", 2: "NODE", 3: "SYS"}
    by_device = read(tmp_path, OLD_NICS)
    assert (by_device.gpus, link(by_device, 1, 0)) == (2, "PIX")
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


# --- NCCL's own topology: the XML that it dumps, the graph XML, and the paths in the log


DATA = TESTS / "data"
H200 = DATA / "h200-4gpu.nccl-topo.xml"
TWO_SOCKETS = DATA / "two-sockets.nccl-topo.xml"
H200_GRAPH = DATA / "h200-4gpu.nccl-graph.xml"
GPU = '<pci busid="{bus}" class="0x030200"><gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="1">{links}</gpu></pci>'
LINK = '<nvlink target="{target}" count="{count}" tclass="0x030200"/>'


def gpu(dev: int, bus: str, links: str = "", sm: int = 80) -> str:
    return GPU.format(dev=dev, bus=bus, sm=sm, links=links)


def switch(bus: str, *inside: str) -> str:
    return f'<pci busid="{bus}" class="0x060400">{"".join(inside)}</pci>'


def cpu(numa: int, *inside: str, host: str = "0x1") -> str:
    return f'<cpu host_hash="{host}" numaid="{numa}" arch="x86_64" vendor="AuthenticAMD">{"".join(inside)}</cpu>'


def system(*inside: str) -> str:
    return f'<?xml version="1.0"?>\n<!-- a -->\n<system version="1">{"".join(inside)}</system>\n'


def test_a_dump_of_nvswitch_gpus() -> None:
    found = topology.read(str(H200))
    assert [(one.index, one.bus_id, one.sm, one.gdr) for one in found.devices[:2]] == [
        (1, "0000:00:07.0", 90, True),
        (3, "0000:00:09.0", 90, True),
    ]
    assert link(found, 1, 7) == "NV18"
    assert link(found, 0, 1) is None
    (eth,) = found.nics
    assert (eth.name, eth.index, eth.gbps, eth.port, eth.gdr) == ("eth0", 0, 10.0, 0, False)
    assert set(eth.classes.values()) == {"PHB"}


def test_nesting_gives_the_class_of_gpus_and_nics() -> None:
    found = topology.read(str(TWO_SOCKETS))
    assert [link(found, 0, other) for other in (1, 2, 3, 4, 6)] == ["PIX", "PXB", "PHB", "PHB", "SYS"]
    assert link(found, 4, 5) == "PHB"
    first, second = found.nics
    assert [first.classes[place] for place in (0, 2, 3, 6)] == ["PIX", "PXB", "PHB", "SYS"]
    assert second.classes[6] == "PIX"
    assert (first.gdr, second.gdr, first.gbps) == (True, False, 200.0)


def test_nvlinks_between_gpus_are_counted_and_a_third_gpu_may_lie_between(tmp_path: Path) -> None:
    buses = ["0000:15:00.0", "0000:16:00.0", "0000:8a:00.0"]
    links = ["".join(LINK.format(target=t, count=1) for t in targets) for targets in ([1, 1], [0, 0, 2], [1])]
    for number, bus in enumerate(buses):
        links = [text.replace(f'target="{number}"', f'target="{bus}"') for text in links]
    found = read(tmp_path, system(cpu(0, *(gpu(n, bus, links[n], 70) for n, bus in enumerate(buses)))))
    assert [link(found, 0, 1), link(found, 1, 2), link(found, 0, 2)] == ["NV2", "NV1", "NVB"]


def test_a_vendor_file_says_nothing_of_nvlink(tmp_path: Path) -> None:
    def card(bus: str, kind: str = "0x030200") -> str:
        return f'<pci busid="{bus}" class="{kind}" link_speed="8 GT/s" link_width="16"/>'

    text = system(
        cpu(0, switch("ffff:ff:01.0", card("0000:10:1c.0"), card("0000:10:1d.0"))), cpu(1, card("0000:90:1c.0"))
    )
    found = read(tmp_path, text.replace("</cpu>", card("0000:10:1b.0", "0x020000") + "</cpu>", 1))
    assert found.pair(Gpu(None, "101c0"), Gpu(None, "101d0")) == "PIX"
    assert found.pair(Gpu(None, "101c0"), Gpu(None, "901c0")) is None
    assert found.nics[0].classes == {0: "PHB", 1: "PHB", 2: "SYS"}


def test_hosts_of_one_nvlink_domain_are_told_apart(tmp_path: Path) -> None:
    near, far = gpu(0, "0000:19:00.0") + gpu(1, "0000:1a:00.0"), gpu(0, "0000:19:00.0")
    found = read(
        tmp_path, system(cpu(0, switch("0000:01:00.0", near)), cpu(0, far, gpu(1, "0000:1b:00.0"), host="0x2"))
    )
    assert found.gpus == 4
    assert link(found, 0, 1) is None  # PIX on one host, PHB on the other
    assert found.pair(parse_bracket("19000"), parse_bracket("1a000")) == "PIX"


def test_a_bracket_is_an_index_or_a_bus_id(tmp_path: Path) -> None:
    found = topology.read(str(TWO_SOCKETS))
    for src, dst, kind in (
        ("19000", "1a000", "PIX"),
        ("0000:19:00.0", "89000", "SYS"),
        ("0", "2", "PXB"),
        ("0", "1b000", "PXB"),
        ("0", "77000", None),
        ("0", "9", None),
        ("0", None, None),
    ):
        assert found.pair(parse_bracket(src), parse_bracket(dst)) == kind, (src, dst)


def test_a_bus_id_that_may_be_an_index_is_left_open(tmp_path: Path) -> None:
    # Until 2.18.2 brackets hold bus ids: 60 is 0000:00:06.0, and no GPU has the index 60.
    buses = ["0000:00:06.0", "0000:00:07.0"]
    found = read(tmp_path, system(cpu(0, *(gpu(n, bus) for n, bus in enumerate(buses)))))
    assert found.pair(parse_bracket("60"), parse_bracket("70")) == "PHB"
    many = system(cpu(0, *(gpu(n, f"0000:00:{n + 1:02x}.0") for n in range(16))))
    assert read(tmp_path, many).pair(parse_bracket("10"), parse_bracket("20")) is None
    matrix = "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n"
    assert read(tmp_path, matrix).pair(parse_bracket("0"), parse_bracket("1")) == "NV4"
    assert read(tmp_path, matrix).pair(parse_bracket("10"), parse_bracket("1")) is None


def test_a_graph_proves_what_is_near_and_nothing_else(tmp_path: Path) -> None:
    found = topology.read(str(H200_GRAPH))
    assert [one.index for one in found.devices] == [0, 2, 4, 6]
    assert [link(found, 0, other) for other in (2, 4, 6)] == ["NVL", None, "NVL"]
    far = H200_GRAPH.read_text(encoding="utf-8").replace('"NVL"', '"PHB"')
    assert not read(tmp_path, far).classes
    between_hosts = (
        '<graphs version="1"><graph id="0" pattern="4" typeintra="PIX" typeinter="PXB"><channel><net dev="3"/>'
        '<gpu dev="0x100000000000001"/><gpu dev="0x100000000000000"/><net dev="3"/></channel></graph></graphs>'
    )
    found = read(tmp_path, between_hosts)
    assert link(found, 0, 1) == "PIX"
    assert [(one.index, one.classes) for one in found.nics] == [(3, {0: "PXB"})]


def test_what_is_no_topology_is_an_error_of_one_line(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE system [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><system>&b;</system>'
    for text, message in {
        "<system version='1'/>": "no GPU in it; dump again: NCCL_TOPO_DUMP_FILE",
        "<graphs version='1'/>": "no ring or tree in it; dump again: NCCL_GRAPH_DUMP_FILE",
        "<system><cpu>": "damaged XML .*; copy the whole file",
        "<graphs>\x01</graphs>": "damaged XML .*; copy the whole file",
        "<topology/>": "not a topology that is understood; give the output",
        "<system><!DOCTYPE x></system>": "damaged XML",
        bomb: "not a topology",
    }.items():
        with pytest.raises(TopologyError, match=rf"topo\.txt: {message}") as caught:
            read(tmp_path, text)
        assert "\n" not in str(caught.value), text
    with pytest.raises(TopologyError, match="a document type"):
        read_xml(bomb, "x")


@pytest.mark.slow
def test_defusedxml_is_imported_only_for_xml() -> None:
    code = (
        "import sys, nccl_inspect; log = b'vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM';"
        "nccl_inspect.read(log); assert 'defusedxml' not in sys.modules and 'xml' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_gpus_are_those_of_the_initialisation() -> None:
    start = (
        b"vm:%d:%d [0] NCCL INFO ncclCommInitRank comm 0x%d rank %d nranks 2 cudaDev 0 nvmlDev %d busId %s "
        b"commId 0x2 - Init START\n"
    )
    log = b"".join(start % (9 + r, 9 + r, r + 1, r, dev, bus) for r, dev, bus in ((0, 12, b"c000"), (1, 13, b"d000")))
    job = nccl_inspect.read(log)
    assert {rank: (one.nvml_dev, one.bus_id) for rank, one in job.gpus.items()} == {0: (12, "c000"), 1: (13, "d000")}
