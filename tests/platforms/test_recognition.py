"""The machine type is recognised by what the log shows: names of GPUs, signs, counts."""

from __future__ import annotations

import pytest
from machine_logs import FILES, OFF, SHM, said

import nccl_inspect
from nccl_inspect import platforms
from nccl_inspect.platforms import recognition
from nccl_inspect.platforms.recognition import Shown

RANK = "#  Rank {0:2} Group  0 Pid   1511 on       vm{0} device  0 [0000:01:00] {1}\n"
"""After the format string of nccl-tests 2.18.1, src/util.cu."""
SHM_JOB = (
    "".join(
        f"vm0:151{rank + 1}:151{rank + 1} [{rank}] NCCL INFO {message}\n"
        for rank in (0, 1)
        for message in (
            "cudaDriverVersion 13000",
            f"comm 0x{rank} rank {rank} nranks 2 cudaDev {rank} busId {rank + 1}00 commId 0x9 - Init COMPLETE",
        )
    )
    + f"{SHM}vm0:1511:1595 [0] NCCL INFO Connected all rings\n"
)
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
    assert verdict(OFF + SHM_JOB, "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090") == ("ok", "geforce-rtx-40")
    assert verdict(SHM_JOB, "NVIDIA GeForce RTX 5090") == ("ok", "geforce-rtx-50")
    assert verdict(SHM, "NVIDIA H100 80GB HBM3") == ("degraded", "h100-sxm")
    assert verdict(OVER_ROCE, "NVIDIA GB10", "NVIDIA GB10") == ("unknown", "dgx-spark")  # an excerpt


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA GeForce RTX 3090", "geforce-rtx-3090"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA H100 PCIe", None),
    ],
)
def test_gpus_of_which_some_machines_join_more_than_others_decide_nothing(gpu: str, name: str | None) -> None:
    assert verdict(SHM, gpu, gpu) == ("unknown", name)


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
    assert verdict(gpus + SHM_JOB, "NVIDIA GeForce RTX 4090") == ("ok", "geforce-rtx-40")


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


def told(log: str, **options: str) -> str | None:
    return nccl_inspect.read(log.encode(), **options).platform


def of_eight(network: str) -> str:
    """Connections of a host with 8 GPUs, one of them to another host."""
    inside = (said(f"Channel 00/0 : {rank}[{rank}] -> {rank + 1}[{rank + 1}] via P2P/CUMEM") for rank in range(7))
    return "".join(inside) + said(f"Channel 00/0 : 7[7] -> 8[0] [send] via NET/{network}/0")


P5 = "p5.48xlarge or p5e.48xlarge"
OCI = "NCCL_IB_TC set by environment to 41.", "NCCL_IB_GID_INDEX set by environment to 3."
H200_OF_OCI = "NCCL_IB_HCA set by environment to =mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (said("NCCL_TOPO_FILE set by environment to /opt/microsoft/ndv4/topo.xml"), "nd96asr-v4"),
        (said("NCCL_TOPO_FILE set by environment to /opt/microsoft/ndv2-topo.xml"), "nd40rs-v2"),
        (said("NCCL_TOPO_FILE set by environment to /opt/microsoft/ncv4/topo.xml"), "nc96ads-a100-v4"),
        (said("NCCL_TOPO_FILE set by environment to /opt/p4d-24xl-topo.xml"), "p4d.24xlarge"),
        (said("NCCL_TOPO_FILE set by environment to /etc/topo.xml"), None),
        (of_eight("FasTrak"), "a3-megagpu-8g"),
        (said("Using network GPUDirectTCPX_v7") + of_eight("GPUDirectTCPX_v7"), "a3-edgegpu-8g or a3-highgpu-8g"),
        (of_eight("gIB"), "a3-ultragpu-8g or a4-highgpu-8g"),
        (of_eight("IB"), None),
        (said("NET/OFI GDR disabled on GDR-supported instance type p5/p5e") + of_eight("Libfabric"), P5),
        (said("NET/OFI EC2 platform type is g5.12xlarge"), "g5.12xlarge"),
        (said("NET/OFI Using platform block p5/p5e for instance type p5e.48xlarge"), "p5e.48xlarge"),
        (said("MNNVL 1 cliqueId 7f cliqueSize 72 cliqueRank 0"), "nvl72"),
        (said("MNNVL 1 cliqueId 7f cliqueSize 36 cliqueRank 0 nvlDomainSize 72"), "nvl72"),
        (said("MNNVL 1 cliqueId 7f cliqueSize 8 cliqueRank 0"), None),
        ("".join(map(said, (*OCI, H200_OF_OCI))), "bm.gpu.b200.8 or bm.gpu.h200.8"),
        (said(H200_OF_OCI), None),
    ],
)
def test_signs_tell_the_machine_or_what_all_that_fit_have_in_common(log: str, name: str | None) -> None:
    assert told(log) == name


def test_more_gpus_than_a_type_has_exclude_it() -> None:
    one = said("Channel 00/0 : 0[0] -> 8[0] [send] via NET/gIB/0")
    assert (told(one) or "").split(" or ") == [
        "a3-ultragpu-8g",
        "a4-highgpu-8g",
        "a4x-highgpu-4g",
        "a4x-maxgpu-4g-metal",
    ]
    assert told(of_eight("gIB")) == "a3-ultragpu-8g or a4-highgpu-8g"


def test_names_of_gpus_and_signs_tell_more_together() -> None:
    listed = "".join(RANK.format(rank, "NVIDIA H200") for rank in range(8)).replace("vm", "node-a")
    assert told(listed + of_eight("gIB")) == "a3-ultragpu-8g"
    assert told(listed.replace("H200", "H100 80GB HBM3") + of_eight("gIB")) == "h100-sxm", (
        "what the driver says is sure"
    )


def test_the_user_is_believed_against_a_sign() -> None:
    assert told(of_eight("FasTrak"), platform="p5.48xlarge") == "p5.48xlarge"
    told_by_log = recognition.recognised(Shown(networks={"FasTrak"}))
    assert told_by_log is not None
    assert told_by_log.excludes(platforms.named("p5.48xlarge"))
    both = recognition.recognised(Shown(networks={"gIB"}, gpus=8))
    assert both is not None
    assert not both.excludes(platforms.named("a4-highgpu-8g"))
    assert both.excludes(platforms.named("a3-megagpu-8g"))
    assert not platforms.named("nvl72").excludes(platforms.named("gb200-nvl72"))


def test_types_that_fit_equally_claim_only_what_they_share() -> None:
    found = recognition.recognised(Shown(settings={("NCCL_TOPO_FILE", "/opt/microsoft/ndv5/topo.xml")}, gpus=8))
    assert found is not None
    assert found.name.startswith("nd96is-h100-v5 or nd96is-h200-v5 or nd96isr-")
    assert (found.vendor, found.gpus, found.nvlink, found.p2p) == ("Azure", 8, 4, True)
    assert (found.gpu, found.network, found.nics, found.gdr) == (None, None, None, None), "half of them have InfiniBand"
    again = platforms.find(found.name)
    assert again == found


def test_what_holds_under_conditions_that_differ_is_not_shared() -> None:
    """An A4X uses GPUDirect RDMA from NCCL 2.27.3 on, the others always: of either, nothing is sure."""
    either = recognition.recognised(Shown(networks={"gIB"}))
    assert either is not None
    assert {"a3-ultragpu-8g", "a4x-highgpu-4g"} < {*either.name.split(" or ")}
    assert (either.gdr, either.gdr_since, either.gdr_setting) == (None, None, None)
    one_gpu = recognition.recognised(Shown(plugin=("p5/p5e",), gpus=1))
    assert one_gpu is not None
    assert (one_gpu.name, one_gpu.rate) == ("p5.48xlarge or p5.4xlarge or p5e.48xlarge", None), "400 Gb/s, or 100"


def test_machines_that_fit_equally_do_not_miss_what_depends_on_its_release() -> None:
    """A log of an A4X whose GPUs are not named: 2.26 does not use GPUDirect RDMA there by default."""
    log = said("NCCL version 2.26.2+cuda12.8") + "".join(
        said(f"Channel 00/0 : 0[0] -> 4[0] [{side}] via NET/gIB/0", host)
        for host, side in (("a", "send"), ("b", "receive"))
    )
    job = nccl_inspect.read(log.encode())
    assert "a4x-highgpu-4g" in str(job.platform)
    assert (job.verdict, {finding.severity for finding in job.findings}) == ("unknown", {"info"})
