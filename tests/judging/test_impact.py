"""Estimates of what a slow path costs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from repository import ROOT

import nccl_inspect
from nccl_inspect.judging import impact
from nccl_inspect.judging.impact import Rate
from nccl_inspect.platforms import named

SHM = b"vm:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
SOCKET = (
    b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
    b"b:2:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0\n"
)


def of(log: bytes, platform: str | None = None) -> str:
    return nccl_inspect.read(log, platform=platform).findings[0].impact


def test_rates_follow_the_machine() -> None:
    assert str(impact.nic(100)) == "11-12 GB/s"
    assert str(impact.nic(400)) == "45-49 GB/s"
    assert str(impact.nic(25)) == "2.8-3 GB/s"
    assert impact.nic(None).low < impact.nic(100).high < impact.nic(None).high
    assert impact.p2p(named("p4d.24xlarge")) is impact.NVLINK[3]
    assert impact.p2p(named("g6e.12xlarge")) is impact.PCIE
    assert impact.p2p(None) is impact.P2P
    assert impact.p2p(None, nvlink=True) is impact.ON_NVLINK


@pytest.mark.parametrize(
    ("machine", "gbps"),
    [
        ("p4d.24xlarge", 100),
        ("p5.48xlarge", 400),
        ("p5en.48xlarge", 400),
        ("p6-b200.48xlarge", 400),
        ("p6-b300.48xlarge", 800),
        ("bm.gpu.h100.8", 400),
        ("dgx-h100", 400),
        ("bm.gpu4.8", None),
    ],
)
def test_a_gpu_has_all_the_nics_beside_it(machine: str, gbps: int | None) -> None:
    assert named(machine).rate == gbps
    assert impact.network(named(machine))[:2] == impact.nic(gbps)[:2]


def test_where_measurements_differ_from_the_generation_the_machine_has_its_own() -> None:
    def told(machine: str, nvlink: bool = False) -> str:
        return str(impact.p2p(named(machine), nvlink))

    assert told("h800-sxm") == "215 GB/s"
    assert told("nc48ads-a100-v4") == told("a100-pcie", nvlink=True) == "193-208 GB/s"
    assert told("nc80adis-h100-v5") == "208 GB/s"
    assert told("mi300x") == told("nd96isr-mi300x-v5") == "310-350 GB/s"
    assert impact.p2p(named("a100-pcie")) is impact.P2P, "only some pairs are on a bridge"
    assert impact.p2p(named("p3dn.24xlarge"), nvlink=True) is impact.NVLINK[2]


def test_no_figure_is_told_where_none_is_known() -> None:
    ahead = replace(named("b200-sxm"), nvlink=6)
    assert impact.p2p(ahead) is None
    assert impact.p2p(named("a40"), nvlink=True) is None
    paths = nccl_inspect.read(SHM).paths
    assert str(impact.against_nvlink(paths, ahead)).startswith("NVLink is idle; SHM/direct/direct gives 13-35 GB/s")


def test_tcp_is_as_fast_as_its_nic() -> None:
    assert impact.socket(None) is impact.socket(named("p5.48xlarge")) is impact.SOCKET
    assert str(impact.socket(named("a2-highgpu-8g"))) == "1.3-12.5 GB/s"
    assert impact.socket(named("p3.16xlarge")).high < impact.SOCKET.high


def test_every_rate_says_where_it_can_be_read() -> None:
    single = [value for value in vars(impact).values() if isinstance(value, Rate)]
    for rate in (*single, *impact.NVLINK.values(), impact.nic(None), impact.nic(800)):
        assert rate.low <= rate.high
        assert rate.what
        assert re.match(r"[a-z.]+\.(com|co)/", rate.link) or (ROOT / rate.link).is_file(), rate


def test_what_nobody_measured_has_no_rate() -> None:
    log = SOCKET.replace(b"Socket", b"IB")
    (path,) = nccl_inspect.read(log).paths
    assert impact.of(path) is None
    (direct,) = nccl_inspect.read(log.replace(b"IB/0", b"IB/0/GDRDMA")).paths
    assert impact.of(direct, named("p5en.48xlarge")) == impact.network(named("p5en.48xlarge"))


def test_ratios_are_ranges() -> None:
    assert impact.compared(impact.SHM, impact.NVLINK[4]) == "9.9 to 37 times less bandwidth"
    assert impact.compared(impact.SHM, impact.PCIE) == "up to 4.8 times less"


def test_findings_tell_the_range_and_apart_from_it_where_it_comes_from() -> None:
    assert "NVLink would give 347-480 GB/s bus bandwidth; SHM" in of(SHM, "p5.48xlarge")
    assert "SHM/direct/direct gives 13-35 GB/s" in of(SHM, "p5.48xlarge")
    assert "if the hardware supports it" in of(SHM)
    assert of(SOCKET, "p5en.48xlarge") == (
        "TCP gives 1.3-4 GB/s bus bandwidth, RDMA gives 45-49 GB/s: 11 to 38 times less bandwidth"
    )
    assert "a NIC of 100 Gb/s carries up to 12.5 GB/s" in of(SOCKET, "g6e.12xlarge")


def test_references_name_their_figures() -> None:
    def told(log: bytes, machine: str | None) -> dict[str, str]:
        return {one.figure: one.link for one in nccl_inspect.read(log, platform=machine).findings[0].references}

    assert told(SHM, "p5.48xlarge") == {"347-480 GB/s": impact.MEASURED, "13-35 GB/s": impact.MEASURED}
    on_aws = told(SOCKET, "p5en.48xlarge")
    assert on_aws["45-49 GB/s"] == "https://github.com/Azure/azurehpc-health-checks"
    assert on_aws["90 against 41 minutes"] == impact.MEASURED
    assert "5, 10 or 25 Gb/s for one TCP flow" in on_aws
    assert "5, 10 or 25 Gb/s for one TCP flow" not in told(SOCKET, "dgx-h100")
