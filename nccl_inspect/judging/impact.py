"""Bandwidths of the connections between GPUs, as ranges with their sources, for findings and ``traffic``.

All numbers are bus bandwidth in GB/s, as nccl-tests counts it, from one GPU to the next. They come from measurements
and from the thresholds of vendors' health checks; unpublished numbers are not here. The page
``docs/explanation/measurements.md`` lists them, and the others that rules quote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.model.finding import Reference
from nccl_inspect.model.job import Path, PathKind, Selection
from nccl_inspect.util.records import Frozen

if TYPE_CHECKING:
    from nccl_inspect.platforms import Platform

MEASURED = "docs/explanation/measurements.md"  # the page with the authors' measurements and links to all others
_AZURE = "github.com/Azure/azurehpc-health-checks"


def cite(figure: str, what: str, link: str) -> Reference:
    """Return the source of a figure; a link that is not a page of the documentation becomes a URL."""
    is_page = link.startswith(("docs/", "sample_logs/", "https://"))
    return Reference(figure, what, link if is_page else f"https://{link}")


class Rate(NamedTuple):
    """A range of bandwidths."""

    low: float
    high: float
    what: str  # what has that rate, or how it was measured
    link: str  # the page or site that states it

    def __str__(self) -> str:
        return f"{self.low:g} GB/s" if self.low == self.high else f"{self.low:g}-{self.high:g} GB/s"

    @property
    def source(self) -> str:
        """Return the source, for brackets after the rate."""
        return f"{self.what}: {self.link}"

    @property
    def reference(self) -> Reference:
        """Return the source, for a list of references."""
        return cite(str(self), self.what, self.link)


class Estimate(Frozen):
    """A cost in a short sentence, with the sources of its figures."""

    text: str
    references: tuple[Reference, ...]

    def __str__(self) -> str:
        return self.text


NVLINK = {
    2: Rate(110, 150, "110 is what Azure's health check asks for, 150 what the links of a V100 give", MEASURED),
    3: Rate(200, 300, "health checks of AWS and Azure ask for 200 and 228, the links of an A100 give 300", MEASURED),
    4: Rate(347, 480, "347 measured on 8 x H200 (ring), 480 on 8 x H100 (with NVLS)", MEASURED),
    5: Rate(600, 900, "AWS asks for 600, 847 measured on 72 x GB200, the links of a B200 give 900", MEASURED),
}
"""By generation, all GPUs of a board or rack. Nothing is published for generation 6."""
PCIE = Rate(20, 63, "20 measured on PCIe Gen4 x16, 63 is the line rate of Gen5 x16; Gen3 gives less", MEASURED)
ON_NVLINK = Rate(NVLINK[2].low, NVLINK[5].high, "NVLink 2 to 5", MEASURED)
P2P = Rate(PCIE.low, NVLINK[5].high, "from PCIe Gen4 to NVLink 5", MEASURED)
SHM = Rate(13, 35, "measured on hosts with PCIe Gen5; less on older ones and between sockets", MEASURED)
SOCKET = Rate(
    1.3, 4, "measured over virtual NICs, and on A3 Mega without its plugin; a faster NIC gives more", MEASURED
)
WITHOUT_NVLS = Estimate(
    "347 GB/s bus bandwidth on 8 x H200, where NVLS gives 475",
    (
        cite("347 GB/s", "measured on 8 x H200 at 256 MiB", "sample_logs/p2p-nvlink-8gpu"),
        cite("475 GB/s", "bus bandwidth with NVLS", "github.com/NVIDIA/nccl-tests/issues/272"),
    ),
)
SEGMENTS = Estimate(
    "4 MB with 2.19 and 33 MB with 2.27",
    (cite("4 MB and 33 MB", "one segment of NCCL 2.19.4 and of 2.27.3", MEASURED),),
)
READ_OF_4_H200 = Rate(309, 309, "all-reduce of 1 GiB on 4 x H200", MEASURED)
COPIED_OF_2_H200 = Rate(122, 122, "all-reduce of 1 GiB on 2 H200", MEASURED)
WRITTEN_OF_2_H200 = Rate(327, 327, COPIED_OF_2_H200.what, MEASURED)
WRITTEN_OF_4_H200 = Rate(354, 354, READ_OF_4_H200.what, MEASURED)
_L40S = cite("90 against 41 minutes", "a job on 16 L40S over Socket and over EFA", MEASURED)
_AWS_FLOW = cite(
    "5, 10 or 25 Gb/s for one TCP flow",
    "AWS: outside a cluster placement group, inside, with ENA Express",
    "docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html",
)


def nic(gbps: float | None, what: str = "one NIC of") -> Rate:
    """Return one NIC with GPUDirect RDMA, by its line rate; None for a usual one."""
    if not gbps:
        return Rate(nic(100).low, nic(400).high, "one NIC of 100 to 400 Gb/s", _AZURE)
    # A NIC delivers this share of its line rate: Azure requires 360 of 400 Gb/s (GPU memory) and 390 (host memory).
    low, high = 0.9 * gbps / 8, 0.975 * gbps / 8
    digits = None if low >= 10 else 1
    return Rate(round(low, digits), round(high, digits), f"{what} {gbps:g} Gb/s", _AZURE)


NIC_100 = nic(100)


def network(platform: Platform | None) -> Rate:
    """Return the network bandwidth of one GPU with GPUDirect RDMA: a plugin may merge all its NICs into one device."""
    if platform is not None and platform.gpu_gbps:
        return nic(platform.gpu_gbps, "the network of one GPU with")
    return nic(platform.rate if platform else None)


def socket(platform: Platform | None) -> Rate:
    """Return the bandwidth of TCP; if that is the network of the machine, its NIC sets the limit."""
    if platform is None or platform.network != "tcp" or not platform.nic_gbps:
        return SOCKET
    line = platform.nic_gbps / 8
    what = f"{SOCKET.low:g} measured over a virtual NIC, {line:g} is the line rate"
    return Rate(min(SOCKET.low, line), line, what, platform.source("nic_gbps"))


def p2p(platform: Platform | None, nvlink: bool = False) -> Rate | None:
    """Direct access between two GPUs of a host; None if no rate is published for such GPUs."""
    if platform is not None:
        if platform.busbw and (nvlink or not platform.nvlink_pairs):
            return Rate(*platform.busbw, platform.name, platform.source("busbw"))
        if platform.nvlink:
            return NVLINK.get(platform.nvlink)
        if platform.nvlink_pairs and nvlink:
            return NVLINK[2] if platform.nvlink_pairs == 2 else None  # a board; later generations are bridges
        if platform.nvlink == 0:
            return PCIE
    return ON_NVLINK if nvlink else P2P


def find_rate(path: Path | PathKind, platform: Platform | None = None) -> Rate | None:
    """Return the bandwidth of a path; None if nobody measured it (no GPUDirect RDMA, CollNet)."""
    if path.transport == "P2P":
        return p2p(platform)
    if path.transport == "SHM":
        return SHM
    if path.transport == "NET" and path.net == "Socket":
        return socket(platform)
    if path.transport == "NET" and path.gdr is True:
        return network(platform)
    return None


def current_rate(paths: Selection, platform: Platform | None = None) -> Rate | None:
    """Return the bandwidth of paths as they are, slowest to fastest; None if nobody measured one of them."""
    rates = [find_rate(kind, platform) for kind in paths.kinds]
    known = [rate for rate in rates if rate]
    if len(known) < max(len(rates), 1):
        return None
    first = known[0]
    return first._replace(low=min(rate.low for rate in known), high=max(rate.high for rate in known))


def usual(path: Path | PathKind, platform: Platform | None = None) -> float:
    """Return the midpoint of a path's bandwidth in GB/s, to order paths by speed.

    No rate is published for RDMA without GPUDirect: it ranks above TCP and below all others.
    """
    if path.transport == "P2P" and path.link == "NVLink":
        rate = p2p(platform, nvlink=True) or ON_NVLINK
    elif path.transport == "P2P" and path.link == "PCIe":
        rate = PCIE
    elif path.transport == "NET" and path.gdr is not True and path.net != "Socket":
        return SOCKET.high
    else:
        rate = find_rate(path, platform) or network(platform)
    return (rate.low + rate.high) / 2


def over_tcp(platform: Platform | None) -> Estimate:
    """Return the cost of TCP between hosts that have, or may have, an RDMA network."""
    gbps = platform.nic_gbps if platform else None
    if platform is not None and platform.gdr is False and gbps:
        line = cite(f"{gbps / 8:g} GB/s", f"the line rate of {platform.name}", platform.source("nic_gbps"))
        better, source = f"a NIC of {gbps:g} Gb/s carries up to {gbps / 8:g} GB/s", line
    else:
        rdma = network(platform)
        better, source = f"RDMA gives {rdma}: {compare_rates(SOCKET, rdma)}", rdma.reference
    on_aws = [_AWS_FLOW] if platform is not None and platform.vendor == "AWS" else []
    return Estimate(f"TCP gives {SOCKET} bus bandwidth, {better}", (SOCKET.reference, source, *on_aws, _L40S))


def against_nvlink(paths: Selection, platform: Platform | None) -> Estimate:
    """Return the bandwidth of paths that do not use the NVLink between their GPUs."""
    best = p2p(platform, nvlink=True)
    rates = sorted({kind.detail: rate for kind in paths.kinds if (rate := find_rate(kind, platform))}.items())
    parts = [f"NVLink would give {best} bus bandwidth" if best else "NVLink is idle"]
    parts += [f"{what} gives {rate}" + (f", {compare_rates(rate, best)}" if best else "") for what, rate in rates]
    quoted = (*([best] if best else []), *(rate for _, rate in rates))
    return Estimate("; ".join(parts), tuple(rate.reference for rate in quoted))


def compare_rates(slow: Rate, fast: Rate) -> str:
    """Return how much less bandwidth, in words. A training step loses less: it also computes."""
    factors = (fast.low / slow.high, fast.high / slow.low)
    low, high = (f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}".removesuffix(".0") for factor in factors)
    if factors[0] <= 1:
        return f"up to {high} times less"
    return f"{low if low == high else f'{low} to {high}'} times less bandwidth"
