"""Estimates of what a slow path costs."""

from __future__ import annotations

import re
from dataclasses import replace

from repository import ROOT

import nccl_inspect
from nccl_inspect.judging import impact
from nccl_inspect.judging.impact import Rate
from nccl_inspect.platforms import require_platform

SHM = b"vm:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
NET = (
    b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
    b"b:2:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0\n"
)
NIC_OF_A_GPU = {
    **{"p4d.24xlarge": 100, "p5.48xlarge": 400, "p5en.48xlarge": 400, "p6-b200.48xlarge": 400, "p6-b300.48xlarge": 800},
    **{"bm.gpu.h100.8": 400, "dgx-h100": 400, "bm.gpu4.8": None},
}
"""Gb/s of all NICs beside a GPU."""
BETWEEN_GPUS = {
    ("p4d.24xlarge", False): impact.NVLINK[3],
    ("p3dn.24xlarge", True): impact.NVLINK[2],
    ("g6e.12xlarge", False): impact.PCIE,
    ("a100-pcie", False): impact.P2P,  # only some pairs are on a bridge
    ("a40", True): None,
    # where measurements differ from the generation the machine has its own
    ("h800-sxm", False): "215 GB/s",
    ("nc48ads-a100-v4", False): "193-208 GB/s",
    ("a100-pcie", True): "193-208 GB/s",
    ("nc80adis-h100-v5", False): "208 GB/s",
    ("mi300x", False): "310-350 GB/s",
    ("nd96isr-mi300x-v5", False): "310-350 GB/s",
}


def test_rates_follow_the_machine() -> None:
    assert [str(impact.nic(gbps)) for gbps in (100, 400, 25)] == ["11-12 GB/s", "45-49 GB/s", "2.8-3 GB/s"]
    assert impact.nic(None).low < impact.nic(100).high < impact.nic(None).high
    for machine, gbps in NIC_OF_A_GPU.items():
        assert require_platform(machine).rate == gbps, machine
        assert impact.network(require_platform(machine))[:2] == impact.nic(gbps)[:2], machine
    for (machine, nvlink), rate in BETWEEN_GPUS.items():
        found = impact.p2p(require_platform(machine), nvlink)
        assert (str(found) if isinstance(rate, str) else found) == rate, machine
    assert impact.p2p(None) is impact.P2P
    assert impact.p2p(None, nvlink=True) is impact.ON_NVLINK
    assert impact.socket(None) is impact.socket(require_platform("p5.48xlarge")) is impact.SOCKET
    assert str(impact.socket(require_platform("a2-highgpu-8g"))) == "1.3-12.5 GB/s"
    assert impact.socket(require_platform("p3.16xlarge")).high < impact.SOCKET.high


def test_no_figure_is_told_where_none_is_known() -> None:
    ahead = replace(require_platform("b200-sxm"), nvlink=6)
    assert impact.p2p(ahead) is None
    against = str(impact.against_nvlink(nccl_inspect.read(SHM).paths, ahead))
    assert against.startswith("NVLink is idle; SHM/direct/direct gives 13-35 GB/s")
    (path,) = nccl_inspect.read(NET).paths
    assert impact.find_rate(path) is None
    (direct,) = nccl_inspect.read(NET.replace(b"IB/0", b"IB/0/GDRDMA")).paths
    p5en = require_platform("p5en.48xlarge")
    assert impact.find_rate(direct, p5en) == impact.network(p5en)


def test_every_rate_says_where_it_can_be_read_and_ratios_are_ranges() -> None:
    single = [value for value in vars(impact).values() if isinstance(value, Rate)]
    for rate in (*single, *impact.NVLINK.values(), impact.nic(None), impact.nic(800)):
        assert rate.low <= rate.high and rate.what, rate
        assert re.match(r"[a-z.]+\.(com|co)/", rate.link) or (ROOT / rate.link).is_file(), rate
    assert impact.compare_rates(impact.SHM, impact.NVLINK[4]) == "9.9 to 37 times less bandwidth"
    assert impact.compare_rates(impact.SHM, impact.PCIE) == "up to 4.8 times less"
