"""Settings that a release prints in the words of another one."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect.model import setting_names
from nccl_inspect.model.job import Job

BOTH = "unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL   # until NCCL 2.22 both print as NCCL_P2P_LEVEL=LOC"


def log(release: str, setting: str) -> Job:
    head = f"vm:1:1 [0] NCCL INFO NCCL version {release}+cuda12.4\n" if release else ""
    text = (
        f"{head}vm:1:1 [0] NCCL INFO {setting}\n"
        "vm:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
        "vm:2:2 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct\n"
    )
    return nccl_inspect.read(text.encode())


@pytest.mark.parametrize("release", ["2.6.4", "2.8.4", "2.19.4", "2.21.5", "2.22.3", ""])
def test_the_level_may_stand_for_the_switch(release: str) -> None:
    job = log(release, "NCCL_P2P_LEVEL set by environment to LOC")
    finding = next(one for one in job.findings if one.rule == "p2p-disabled-by-env")
    assert finding.fix[0] == BOTH
    assert finding.summary.startswith("NCCL_P2P_DISABLE=1 or NCCL_P2P_LEVEL=LOC")


@pytest.mark.parametrize("release", ["2.23.4", "2.28.9", "2.30.7"])
def test_since_2_23_each_prints_its_own_name(release: str) -> None:
    job = log(release, "NCCL_P2P_LEVEL set by environment to LOC")
    finding = next(one for one in job.findings if one.rule == "p2p-disabled-by-env")
    assert finding.fix[0].startswith("unset NCCL_P2P_LEVEL   #")
    assert finding.summary.startswith("NCCL_P2P_LEVEL=LOC keeps")


@pytest.mark.parametrize(
    ("release", "is_alike"), [("2.5.6", False), ("2.6.4", True), ("2.22.3", True), ("2.23.4", False)]
)
def test_releases(release: str, is_alike: bool) -> None:
    assert (setting_names.of("NCCL_P2P_LEVEL", "LOC", [release]) is not None) == is_alike
    assert setting_names.of("NCCL_P2P_LEVEL", "NVL", [release]) is None
