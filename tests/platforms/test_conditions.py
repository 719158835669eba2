"""What a machine offers depends on releases and settings."""

from __future__ import annotations

import pytest
from machine_logs import OFF, SHM, said

import nccl_inspect
from nccl_inspect import platforms
from nccl_inspect.platforms import conditions

OVER_IB = "".join(
    f"node-{host}:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] [{side}] via NET/IB/0\n"
    for host, side in (("a", "send"), ("b", "receive"))
)


@pytest.mark.parametrize(
    ("release", "setting", "outcome"),
    [
        ("2.27.3+cuda12.9", "", "degraded"),
        ("2.28.9+cuda12.9", "", "degraded"),
        ("2.26.2+cuda12.8", "", "unknown"),
        ("2.26.2+cuda12.8", "NCCL_NET_GDR_C2C set by environment to 1.", "degraded"),
        ("2.25.1+cuda12.8", "", "unknown"),
        ("", "", "unknown"),
    ],
)
@pytest.mark.parametrize("machine", ["gb200-nvl72", "a4x-highgpu-4g", "nd128isr-ndr-gb200-v6", "bm.gpu.gb200.4"])
def test_gpudirect_on_grace_depends_on_release_and_setting(
    machine: str, release: str, setting: str, outcome: str
) -> None:
    log = (f"NCCL version {release}\n" if release else "") + (said(setting) if setting else "") + OVER_IB
    assert nccl_inspect.read(log.encode(), platform=machine).verdict == outcome


def test_a_setting_that_switches_gpudirect_off_on_grace_is_named() -> None:
    log = "NCCL version 2.27.3+cuda12.9\n" + said("NCCL_NET_GDR_C2C set by environment to 0.") + OVER_IB
    found = nccl_inspect.read(log.encode(), platform="gb200-nvl72").findings[0]
    assert found.rule == "gdr-disabled"
    assert "NCCL_NET_GDR_C2C=0 disables it" in found.cause


@pytest.mark.parametrize(
    ("release", "gpus", "p2p"),
    [
        ("2.27.3+cuda12.9", 4, False),
        ("2.27.3+cuda12.9", 2, None),
        ("2.27.3+cuda12.9", 0, False),
        ("2.22.3+cuda12.5", 4, None),
        ("2.19.4 to 2.22.3 (inferred)", 4, None),
        ("2.22.3 to 2.26.6 (inferred)", 4, False),
        ("2.18.1 or later (inferred)", 4, False),
    ],
)
def test_p2p_over_an_amd_cpu_depends_on_release_and_number(release: str, gpus: int, p2p: bool | None) -> None:
    def of(machine: str, *settings: tuple[str, str]) -> bool | None:
        return conditions.expected_of(platforms.named(machine), [release], gpus, settings).p2p

    assert of("g6e.12xlarge", ("NCCL_P2P_DISABLE", "1")) is p2p
    assert of("g6e.12xlarge") is False, "NCCL could, and the machine does not let it"
    assert of("g6.12xlarge", ("NCCL_P2P_DISABLE", "1")) is False, "it has none, whatever NCCL's default is"


def test_a_setting_is_to_blame_where_nccl_would_use_p2p_without_it() -> None:
    start = "ncclCommInitRank comm 0x{0} rank {0} nranks 2 cudaDev {0} nvmlDev {0} busId {0}0 commId 0x88 - Init {1}"
    place = "comm 0x{0} rank {0} nRanks 2 nNodes 1 localRanks 2 localRank {0} MNNVL 0"
    two = "".join(
        f"vm0:151{rank}:159{rank} [{rank}] NCCL INFO {message.format(rank, phase)}\n"
        for rank in (0, 1)
        for message, phase in ((start, "START"), (place, ""), (start, "COMPLETE"))
    )
    release, shm = "NCCL version 2.27.3+cuda12.9\n", SHM.replace("1511:1595", "1510:1590")

    def worst(log: str) -> tuple[str, str]:
        found = nccl_inspect.read((release + log).encode(), platform="g6e.12xlarge").findings[0]
        return found.rule, found.severity

    assert worst(two + shm) == ("shm-instead-of-p2p", "info")
    assert worst(two + OFF + shm) == ("p2p-disabled-by-env", "warning")
    assert worst(OFF + shm) == ("shm-instead-of-p2p", "info"), "how many GPUs there are is not in the log"


def test_a_range_of_releases_is_as_new_as_its_oldest() -> None:
    def gdr(release: str) -> bool | None:
        return conditions.expected_of(platforms.named("gb200-nvl72"), [release], 4, set()).gdr

    assert gdr("2.27.3 or later (inferred)") is True
    assert gdr("2.26.2 to 2.28.3 (inferred)") is None
    assert gdr("2.28.3 or earlier (inferred)") is None
