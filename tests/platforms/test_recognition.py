"""The machine type that a log shows, and what it offers under the releases and settings of the log.

The logs with labels show it of whole logs: names of GPUs, signs, counts.
"""

from __future__ import annotations

from nccl_inspect import platforms
from nccl_inspect.platforms import Platform, Shown


def recognise_lines(**shown: object) -> Platform:
    found = platforms.recognise_platform(Shown(**shown))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_only_gpus_that_all_have_nvlink_are_known_by_name() -> None:
    every = [
        *("NVIDIA A100-SXM4-80GB", "A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GB200"),
        *("NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA A100 80GB PCIe", "GRID A100X-40C"),
        *("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "Tesla V100-SXM2-16GB", "NVIDIA L40S", "NVIDIA GH200 480GB"),
        *("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"),
    ]
    found = {gpu: platforms.find_by_gpus([gpu]) for gpu in every}
    generations = [(machine.nvlink or None) if machine else None for machine in found.values()]
    assert generations == [3, 3, 4, 4, 5, *[None] * 11], found


def test_gpus_contradict_only_a_machine_with_others() -> None:
    for gpu, machine, fits in (
        ("NVIDIA H100 80GB HBM3", "nd96isr-h100-v5", True),
        ("NVIDIA H100 80GB HBM3", "p5.4xlarge", True),
        ("NVIDIA A100-SXM4-40GB", "p4d.24xlarge", True),
        ("NVIDIA H100 80GB HBM3", "p5e.48xlarge", False),
        ("NVIDIA H100 80GB HBM3", "p4d.24xlarge", False),
        ("NVIDIA GB200", "p6-b200.48xlarge", False),
        ("NVIDIA GeForce RTX 4090", "p5.48xlarge", False),
    ):
        found = platforms.find_by_gpus([gpu])
        assert found is not None and found.excludes(platforms.require_platform(machine)) is not fits, (gpu, machine)


def test_gpus_and_a_network_together_name_a_machine_type() -> None:
    v100 = {"Tesla V100-SXM2-32GB"}
    assert recognise_lines(networks={"AWS Libfabric"}, gpu_names=v100).name == "p3dn.24xlarge"
    for networks, gpus in (({"IB"}, v100), ({"AWS Libfabric"}, {"NVIDIA L4"}), ({"AWS Libfabric"}, set())):
        assert platforms.recognise_platform(Shown(networks=networks, gpu_names=gpus)) is None
    found = platforms.find_by_gpus(["GeForce GTX 1080 Ti"])
    assert found == platforms.require_platform("geforce") and (found.gdr, found.p2p) == (False, None)
    assert platforms.find_by_gpus(["GeForce GTX 1080 Ti", "NVIDIA GeForce RTX 4090"]) is None


def test_a_machine_type_that_is_named_excludes_others() -> None:
    assert platforms.require_platform("p5.48xlarge").excludes(platforms.require_platform("nd96isr-h100-v5"))
    assert not platforms.require_platform("p5.48xlarge").excludes(platforms.require_platform("P5.48xlarge"))
    assert recognise_lines(networks={"FasTrak"}).excludes(platforms.require_platform("p5.48xlarge"))
    either = recognise_lines(networks={"gIB"}, gpus=8)
    assert not either.excludes(platforms.require_platform("a4-highgpu-8g"))
    assert either.excludes(platforms.require_platform("a3-megagpu-8g"))
    assert not platforms.require_platform("nvl72").excludes(platforms.require_platform("gb200-nvl72"))


def test_types_that_fit_equally_claim_only_what_they_share() -> None:
    found = recognise_lines(settings={("NCCL_TOPO_FILE", "/opt/microsoft/ndv5/topo.xml")}, gpus=8)
    assert found.name.startswith("nd96is-h100-v5 or nd96is-h200-v5 or nd96isr-")
    assert (found.vendor, found.gpus, found.nvlink, found.p2p) == ("Azure", 8, 4, True)
    assert (found.gpu, found.network, found.nics, found.gdr) == (None, None, None, None), "half of them have InfiniBand"
    assert platforms.find(found.name) == found
    # An A4X uses GPUDirect RDMA from NCCL 2.27.3 on, the others always: of either, nothing is sure.
    either = recognise_lines(networks={"gIB"})
    assert {"a3-ultragpu-8g", "a4x-highgpu-4g"} < {*either.name.split(" or ")}
    assert (either.gdr, either.gdr_since, either.gdr_setting) == (None, None, None)
    one_gpu = recognise_lines(plugin=("p5/p5e",), gpus=1)
    assert (one_gpu.name, one_gpu.rate) == ("p5.48xlarge or p5.4xlarge or p5e.48xlarge", None), "400 Gb/s, or 100"


def test_p2p_over_an_amd_cpu_depends_on_release_and_number() -> None:
    def p2p(machine: str, release: str, gpus: int, *settings: tuple[str, str]) -> bool | None:
        return platforms.expect_of_job(platforms.require_platform(machine), [release], gpus, settings).p2p

    off = ("NCCL_P2P_DISABLE", "1")
    for release, gpus, expected in (
        ("2.27.3+cuda12.9", 4, False),
        ("2.27.3+cuda12.9", 2, None),
        ("2.27.3+cuda12.9", 0, False),
        ("2.22.3+cuda12.5", 4, None),
        ("2.19.4 to 2.22.3 (inferred)", 4, None),
        ("2.22.3 to 2.26.6 (inferred)", 4, False),
        ("2.18.1 or later (inferred)", 4, False),
    ):
        assert p2p("g6e.12xlarge", release, gpus, off) is expected, release
        assert p2p("g6e.12xlarge", release, gpus) is False, "NCCL could, and the machine does not let it"
        assert p2p("g6.12xlarge", release, gpus, off) is False, "it has none, whatever NCCL's default is"


def test_a_range_of_releases_is_as_new_as_its_oldest() -> None:
    for release, expected in (
        ("2.27.3 or later (inferred)", True),
        ("2.26.2 to 2.28.3 (inferred)", None),
        ("2.28.3 or earlier (inferred)", None),
    ):
        assert (
            platforms.expect_of_job(platforms.require_platform("gb200-nvl72"), [release], 4, set()).gdr is expected
        ), release
