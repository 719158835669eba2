"""Estimates of what a slow path costs."""

from __future__ import annotations

import nccl_inspect
from nccl_inspect import impact
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
    assert impact.nic(None).low < impact.nic(100).high < impact.nic(None).high
    assert impact.p2p(named("p4d.24xlarge")) is impact.NVLINK[3]
    assert impact.p2p(named("g6e.12xlarge")) is impact.PCIE
    assert impact.p2p(None) is impact.P2P
    assert impact.p2p(None, nvlink=True).low == impact.NVLINK[2].low
    assert all(rate.low < rate.high and rate.source for rate in (*impact.NVLINK.values(), impact.SHM, impact.SOCKET))


def test_what_nobody_measured_has_no_rate() -> None:
    log = SOCKET.replace(b"Socket", b"IB")
    (path,) = nccl_inspect.read(log).paths
    assert impact.of(path) is None
    (direct,) = nccl_inspect.read(log.replace(b"IB/0", b"IB/0/GDRDMA")).paths
    assert impact.of(direct, named("p5en.48xlarge")) == impact.nic(200)


def test_ratios_are_ranges() -> None:
    assert impact.compared(impact.SHM, impact.NVLINK[4]) == "19 to 35 times less bandwidth"
    assert impact.compared(impact.SHM, impact.PCIE) == "up to 3.5 times less"


def test_findings_tell_the_range_and_where_it_comes_from() -> None:
    assert "NVLink would give 347-460 GB/s bus bandwidth (347 measured on 8 x H200" in of(SHM, "p5.48xlarge")
    assert "SHM/direct/direct gives 13-18 GB/s" in of(SHM, "p5.48xlarge")
    assert "if the hardware has it" in of(SHM)
    assert "RDMA gives 22-24 GB/s for each NIC (one NIC of 200 Gb/s): 6.3 to 18 times less bandwidth" in of(
        SOCKET, "p5en.48xlarge"
    )
    assert "each NIC of 100 Gb/s carries up to 12.5 GB/s" in of(SOCKET, "g6e.12xlarge")
