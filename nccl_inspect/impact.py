"""How fast each way between GPUs is, as ranges with their sources: what findings and ``traffic`` estimate with.

All numbers are bus bandwidth in GB/s, as nccl-tests counts it, of one GPU's way to the next. They come from
measurements and from the limits that vendors' health checks ask for; what nobody stated is not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.model.job import Path
from nccl_inspect.platforms import Platform


class Rate(NamedTuple):
    """A range of bandwidths."""

    low: float
    high: float
    source: str

    def __str__(self) -> str:
        return f"{self.low:g}-{self.high:g} GB/s"


NVLINK = {
    2: Rate(110, 150, "Azure health checks ask for 110; the links of a V100 give 150"),
    3: Rate(200, 300, "AWS asks for 200 on p4d, Azure for 228; the links of an A100 give 300"),
    4: Rate(347, 460, "347 measured on 8 x H200 (ring), 460 asked for by Azure health checks (with NVLS)"),
    5: Rate(600, 900, "AWS asks for 600 on p6-b200; the links of a B200 give 900"),
}
"""By generation, 8 GPUs."""
PCIE = Rate(8, 45, "PCIe Gen3 to Gen5 x16")
P2P = Rate(PCIE.low, NVLINK[5].high, "from PCIe Gen3 to NVLink 5")
SHM = Rate(13, 18, "measured on a PCIe Gen5 host; less on older ones and between sockets")
SOCKET = Rate(1.3, 3.5, "measured over a virtual NIC inside one machine; AWS limits a flow to 5 Gb/s")
_NIC_RATES = {100: (11.0, 12.0), 200: (22.0, 24.0), 400: (45.0, 49.0)}
"""GB/s that a NIC with GPUDirect gives, by its line rate in Gb/s; Azure asks for 180 of 200 and 380 of 400."""
_NIC_SHARE = (0.88, 0.96)
"""How much of its line rate any other NIC gives, by the same measure."""


def nic(gbps: float | None) -> Rate:
    """One NIC with GPUDirect RDMA."""
    if not gbps:
        return Rate(_NIC_RATES[100][0], _NIC_RATES[400][1], "one NIC of 100 to 400 Gb/s")
    line = gbps / 8
    low, high = _NIC_RATES.get(round(gbps), (round(line * _NIC_SHARE[0], 1), round(line * _NIC_SHARE[1], 1)))
    return Rate(low, high, f"one NIC of {gbps:g} Gb/s")


def p2p(platform: Platform | None, nvlink: bool = False) -> Rate:
    """Direct access between two GPUs of a host.

    Args:
        platform: the machine type, if it is known.
        nvlink: whether the topology shows NVLink.
    """
    if platform is not None and platform.nvlink is not None:
        return NVLINK.get(platform.nvlink, P2P) if platform.nvlink else PCIE
    return Rate(NVLINK[2].low, NVLINK[5].high, "NVLink 2 to 5") if nvlink else P2P


def of(path: Path, platform: Platform | None = None) -> Rate | None:
    """What a path gives; None for what nobody measured (no GPUDirect RDMA, CollNet)."""
    if path.transport == "P2P":
        return p2p(platform)
    if path.transport == "SHM":
        return SHM
    if path.transport == "NET" and path.net == "Socket":
        return SOCKET
    if path.transport == "NET" and path.gdr is True:
        return nic(platform.nic_gbps if platform else None)
    return None


def over_tcp(platform: Platform | None) -> str:
    """What TCP costs between hosts that have, or may have, an RDMA network."""
    gbps = platform.nic_gbps if platform else None
    text = f"TCP gave {SOCKET} bus bandwidth ({SOCKET.source})"
    if platform is not None and platform.gdr is False and gbps:
        better = f"each NIC of {gbps:g} Gb/s carries up to {gbps / 8:g} GB/s"
    else:
        better = f"RDMA gives {nic(gbps)} for each NIC ({nic(gbps).source}): {compared(SOCKET, nic(gbps))}"
    return f"{text}; {better}. A job measured with 16 L40S took 90 minutes over Socket and 41 over EFA"


def against_nvlink(paths: Iterable[Path], platform: Platform | None) -> str:
    """What paths give that take another way than the NVLink between their GPUs."""
    best = p2p(platform, nvlink=True)
    rates = {path.detail: rate for path in paths if (rate := of(path, platform))}
    told = [f"{detail} gives {rate} ({rate.source}), {compared(rate, best)}" for detail, rate in sorted(rates.items())]
    return "; ".join([f"NVLink would give {best} bus bandwidth ({best.source})", *told])


def compared(slow: Rate, fast: Rate) -> str:
    """How much less bandwidth, in words. A step of training loses less: it also computes."""
    low, high = fast.low / slow.high, fast.high / slow.low
    return (
        f"{_rounded(low)} to {_rounded(high)} times less bandwidth" if low > 1 else f"up to {_rounded(high)} times less"
    )


def _rounded(factor: float) -> str:
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}".removesuffix(".0")
