"""What is known of machine types."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import nccl_inspect
from nccl_inspect import platforms
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.platforms import Platform

FILES = sorted((Path(platforms.__file__).parent).glob("*.toml"))
NETWORKS = ("efa", "ib", "roce", "tcpx", "tcpxo", "tcp")
EVERY = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def table_of(file: Path) -> dict[str, object]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


@EVERY
def test_a_platform_is_named_like_its_file(file: Path) -> None:
    assert table_of(file)["name"] == file.stem
    assert platforms.named(file.stem).name == file.stem


@EVERY
def test_a_platform_has_a_source_for_what_it_says(file: Path) -> None:
    source = table_of(file).get("source")
    assert isinstance(source, str)
    assert len(source) > 10


@EVERY
def test_keys_and_types_are_those_of_the_class(file: Path) -> None:
    hints = get_type_hints(Platform)
    for key, value in table_of(file).items():
        kinds = get_args(hints[key]) or (hints[key],)
        if key in ("aliases", "gpu_names"):
            assert isinstance(value, list)
            assert all(isinstance(name, str) for name in value)
        else:
            assert type(value) in kinds, f"{key} = {value!r}"


@EVERY
def test_values_are_possible_ones(file: Path) -> None:
    platform = platforms.named(file.stem)
    assert platform.network in (*NETWORKS, None)
    assert platform.gpus is None or 1 <= platform.gpus <= 72
    assert platform.nvlink is None or 0 <= platform.nvlink <= 6
    assert platform.nic_gbps is None or 1 <= platform.nic_gbps <= 3200
    assert platform.nics is None or 1 <= platform.nics <= 64
    assert not (platform.nvlink and platform.p2p is False), "NVLink without P2P"
    assert not (platform.network == "tcp" and platform.gdr), "GPUDirect RDMA over TCP"


def test_no_name_stands_for_two_platforms() -> None:
    names = [name.lower() for file in FILES for name in _names(file)]
    assert len(names) == len(set(names))


def _names(file: Path) -> list[str]:
    platform = platforms.named(file.stem)
    return [platform.name, *platform.aliases]


def test_a_platform_is_found_by_name_and_alias_in_any_case() -> None:
    for name, platform in platforms.shipped().items():
        assert platforms.find(name) is platform
        assert platforms.named(name.upper()) is platform
    assert platforms.find("no such machine") is None


def test_an_unknown_platform_is_an_error_that_names_similar_ones() -> None:
    with pytest.raises(NcclInspectError, match=r"no platform 'p5\.48xlarg'; did you mean .*p5\.48xlarge"):
        platforms.named("p5.48xlarg")
    with pytest.raises(NcclInspectError, match=r"no platform '☃'; known are .*p5\.48xlarge"):
        platforms.named("☃")


def test_every_key_is_told_in_the_documentation_of_the_package() -> None:
    doc = platforms.__doc__ or ""
    assert all(f"``{field.name}``" in doc for field in fields(Platform))


def test_the_platform_decides_how_bad_sockets_between_hosts_are() -> None:
    log = (
        b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
        b"b:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0\n"
    )
    assert nccl_inspect.read(log, platform="p5.48xlarge").verdict == "degraded"
    assert nccl_inspect.read(log, platform="a2-highgpu-8g").verdict == "ok"


RANK = "#  Rank {0:2} Group  0 Pid   1511 on       vm{0} device  0 [0000:01:00] {1}\n"
"""After the format string of nccl-tests 2.18.1, src/util.cu."""
SHM = "vm0:1511:1595 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
OFF = "vm0:1511:1511 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
OVER_ROCE = "".join(
    f"vm{rank}:15{rank}:15{rank} [0] NCCL INFO Channel 00/0 : {src}[0] -> {dst}[0] [{side}] via NET/IB/0\n"
    for rank in (0, 1)
    for src, dst, side in ((rank, 1 - rank, "send"), (1 - rank, rank, "receive"))
)


def verdict(log: str, *gpus: str, **options: str) -> tuple[str, str | None]:
    listed = "".join(RANK.format(rank, gpu) for rank, gpu in enumerate(gpus))
    job = nccl_inspect.read((listed + log).encode(), **options)
    return job.verdict, job.platform


def test_gpus_that_are_named_tell_what_is_usual_between_them() -> None:
    assert verdict(OFF + SHM, "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090") == ("ok", "geforce-rtx-40")
    assert verdict(SHM, "NVIDIA GeForce RTX 5090") == ("ok", "geforce-rtx-50")
    assert verdict(SHM, "NVIDIA H100 80GB HBM3") == ("degraded", "h100-sxm")
    assert verdict(OVER_ROCE, "NVIDIA GB10", "NVIDIA GB10") == ("ok", "dgx-spark")


@pytest.mark.parametrize("gpu", ["NVIDIA GeForce RTX 3090", "NVIDIA L40S", "NVIDIA A100 80GB PCIe", "NVIDIA A40"])
def test_gpus_of_which_some_machines_join_more_than_others_tell_nothing(gpu: str) -> None:
    assert verdict(SHM, gpu, gpu) == ("unknown", None)


def test_names_that_differ_tell_nothing_and_the_user_knows_best() -> None:
    assert verdict(SHM, "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090") == ("unknown", None)
    assert verdict(SHM, "NVIDIA GeForce RTX 4090", platform="p5.48xlarge") == ("degraded", "p5.48xlarge")


@pytest.mark.parametrize(
    ("gpu", "machine", "fits"),
    [
        ("NVIDIA H100 80GB HBM3", "nd96isr-h100-v5", True),
        ("NVIDIA H100 80GB HBM3", "p5.4xlarge", True),
        ("NVIDIA A100-SXM4-40GB", "p4d.24xlarge", True),
        ("NVIDIA H100 80GB HBM3", "p5e.48xlarge", False),
        ("NVIDIA H100 80GB HBM3", "p4d.24xlarge", False),
        ("NVIDIA GB200", "p6-b200.48xlarge", False),
        ("NVIDIA GeForce RTX 4090", "p5.48xlarge", False),
    ],
)
def test_gpus_contradict_only_a_machine_with_others(gpu: str, machine: str, fits: bool) -> None:
    told = platforms.of_gpus([gpu])
    assert told is not None
    assert told.excludes(platforms.named(machine)) is not fits


def test_a_machine_type_that_a_plugin_names_is_no_other_one() -> None:
    assert platforms.named("p5.48xlarge").excludes(platforms.named("nd96isr-h100-v5"))
    assert not platforms.named("p5.48xlarge").excludes(platforms.named("P5.48xlarge"))


def test_a_name_of_a_gpu_stands_in_one_entry() -> None:
    listed = [name for file in FILES for name in platforms.named(file.stem).gpu_names]
    assert len(listed) == len(set(listed)) > 10


def test_a_list_of_nvidia_smi_names_the_gpus() -> None:
    """In the form of ``nvidia-smi -L`` that the MIG user guide of NVIDIA shows, from memory."""
    gpus = "".join(
        f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-5c89852c-d268-c3f3-1b07-00{i}d5ae1dc3f)\n" for i in (0, 1)
    )
    part = "  MIG 3g.40gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)\n"
    assert verdict(gpus + SHM) == ("degraded", "h100-sxm")
    assert verdict(gpus + part + SHM) == ("unknown", None)
    assert verdict(gpus + SHM, "NVIDIA GeForce RTX 4090") == ("ok", "geforce-rtx-40")


def test_a_list_of_another_machine_names_no_gpus_of_the_job() -> None:
    gpus = [f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-5c89852c-d268-c3f3-1b07-00{i}d5ae1dc3f)\n" for i in (0, 1)]
    shm = f"vm0: {SHM}"

    def behind(lead: str) -> str:
        return "".join(f"{lead}{line}" for line in gpus)

    assert verdict(behind("login-1: ") + shm) == ("unknown", None)
    assert verdict(behind("vm0: as in the guide: ") + shm) == ("unknown", None)
    assert verdict(gpus[0] + SHM) == ("unknown", None), "one GPU of two"
    assert verdict(behind("login-1: ") + behind("vm0: ") + shm) == ("degraded", "h100-sxm")


def test_what_a_list_names_is_certain_only_where_it_is_known_to_be_of_the_job() -> None:
    listed = "GPU {0}: NVIDIA H100 80GB HBM3 (UUID: GPU-5c89852c-d268-c3f3-1b07-00{0}d5ae1dc3f)\n"
    for lead, confidence in (("", "likely"), ("vm0: ", "certain")):
        log = "".join(lead + line for line in (listed.format(0), listed.format(1), SHM))
        found = nccl_inspect.read(log.encode()).findings
        assert {finding.rule: finding.confidence for finding in found}["nvlink-not-used"] == confidence
