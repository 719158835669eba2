"""What is known of machine types."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from repository import ROOT

import nccl_inspect
from nccl_inspect import platforms
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.platforms import Platform, conditions, recognition
from nccl_inspect.platforms.recognition import Shown

FILES = sorted((Path(platforms.__file__).parent).glob("*.toml"))
URL = re.compile(r"https://[\w.-]+\.\w+/\S+")
MOVING = re.compile(r"github\.com/(?!MicrosoftDocs/)[^/]+/[^/]+/(?:blob|tree)/(?:main|master|HEAD)/(?!closed/)")
"""A file of a branch, which another commit may change; Microsoft's pages are too large for a copy, mlcommons' final."""
NETWORKS = ("efa", "ib", "roce", "tcpx", "tcpxo", "tcp")
EVERY = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def table_of(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


@EVERY
def test_a_platform_is_named_like_its_file(file: Path) -> None:
    assert table_of(file)["name"] == file.stem
    assert platforms.named(file.stem).name == file.stem


def unsourced(table: dict[str, Any]) -> list[str]:
    """What is wrong with the sources of a platform, in words; nothing where each fact has one that can be opened."""
    sources = table.get("sources", [])
    stated = {key for source in sources for key in source.get("states", [])}
    facts = table.keys() - {"name", "aliases", "vendor", "sources"}
    urls = [source.get("url", "") for source in sources]
    return [
        *(f"{key} has no source" for key in sorted(facts - stated)),
        *(f"{key} has a source and is not there" for key in sorted(stated - facts)),
        *(f"'{url}' cannot be opened" for url in urls if not (URL.fullmatch(url) or (ROOT / url).is_file())),
        *(f"{url} names no commit or release" for url in urls if MOVING.search(url)),
    ]


@EVERY
def test_a_platform_has_a_source_for_each_thing_that_it_says(file: Path) -> None:
    assert not unsourced(table_of(file))


def test_a_platform_without_a_source_fails() -> None:
    sound = table_of(Path(platforms.__file__).parent / "p5.48xlarge.toml")
    assert not unsourced(sound)
    assert "nics has no source" in unsourced({**sound, "sources": []})
    assert unsourced({**sound, "gdr_since": "2.27.3"}) == ["gdr_since has no source"]
    for said in ("from memory", "DGX H100 data sheet", "docs/no-such-page.md", ""):
        (wrong, *_) = unsourced({**sound, "sources": [*sound["sources"], {"url": said, "states": ["gpus"]}]})
        assert wrong == f"'{said}' cannot be opened"
    moving = {"url": "https://github.com/NVIDIA/nccl/blob/master/src/graph/paths.cc", "states": ["p2p"]}
    assert unsourced({**sound, "sources": [*sound["sources"], moving]})


@EVERY
def test_keys_and_types_are_those_of_the_class(file: Path) -> None:
    hints = get_type_hints(Platform)
    for key, value in table_of(file).items():
        if key in ("signs", "sources"):
            continue  # their own classes refuse what they do not know
        kinds = get_args(hints[key]) or (hints[key],)
        if key in ("aliases", "gpu_names", "busbw"):
            assert isinstance(value, list)
            assert {type(one) for one in value} <= ({int, float} if key == "busbw" else {str})
        else:
            assert type(value) in kinds, f"{key} = {value!r}"


@EVERY
def test_values_are_possible_ones(file: Path) -> None:
    platform = platforms.named(file.stem)
    assert platform.network in (*NETWORKS, None)
    assert platform.gpus is None or 1 <= platform.gpus <= 72
    assert platform.nvlink is None or 0 <= platform.nvlink <= 6
    assert platform.nvlink_pairs is None or 1 <= platform.nvlink_pairs <= 6
    assert platform.nvlink_domain is None or platform.nvlink_domain >= (platform.gpus or 1)
    assert platform.busbw is None or 0 < platform.busbw[0] <= platform.busbw[1]
    assert all(rate is None or 1 <= rate <= 3200 for rate in (platform.nic_gbps, platform.gpu_gbps))
    assert platform.nics is None or 1 <= platform.nics <= 64
    assert not (platform.nvlink and platform.p2p is False), "NVLink without P2P"
    assert not (platform.nvlink is not None and platform.nvlink_pairs), "NVLink between all, or some"
    assert not (platform.network == "tcp" and platform.gdr), "GPUDirect RDMA over TCP"
    assert platform.gdr or not (platform.gdr_since or platform.gdr_setting)
    assert platform.p2p is False or not (platform.p2p_since or platform.p2p_least_gpus)


@EVERY
def test_names_are_written_as_they_are_looked_up(file: Path) -> None:
    for name in _names(file):
        assert name == name.lower().replace("_", "-")
        assert not name.startswith(("standard-", "ml."))


@EVERY
def test_signs_can_be_seen_before_the_platforms_are_loaded(file: Path) -> None:
    signs = platforms.named(file.stem).signs
    for sign in signs.settings:
        assert {condition.partition("=")[0] for condition in sign.split()} & {*recognition.SETTINGS}
        assert all("=" in condition for condition in sign.split())
    assert {*signs.networks} <= {*recognition.NETWORKS}


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


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Standard_ND96isr_H100_v5", "nd96isr-h100-v5"),
        ("standard_nd96isrf_h200_v5", "nd96isr-h200-v5"),
        ("Standard_ND128isr_NDR_GB200_v6", "nd128isr-ndr-gb200-v6"),
        ("nd128isr-gb200-v6", "nd128isr-ndr-gb200-v6"),
        ("Standard_NC96ads_A100_v4", "nc96ads-a100-v4"),
        ("ml.p5.48xlarge", "p5.48xlarge"),
        ("ML.G5.48XLARGE", "g5.48xlarge"),
        ("a3-megagpu", "a3-megagpu-8g"),
        ("A3_MEGAGPU_8G", "a3-megagpu-8g"),
        ("g4-standard-96", "g4-standard"),
        (" BM.GPU.GB200-v2.4 ", "bm.gpu.gb200.4"),
        ("hgx-h100", "h100-sxm"),
        ("HGX-B200", "b200-sxm"),
        ("HGX H200", "h200-sxm"),
        ("H100 SXM", "h100-sxm"),
        ("H100-SXM5", "h100-sxm"),
        ("NVIDIA DGX H100", "dgx-h100"),
        ("DGX_B200", "dgx-b200"),
        ("GB200-NVL72", "gb200-nvl72"),
        ("BM.GPU.H100.8", "bm.gpu.h100.8"),
        ("A3 Mega", "a3-megagpu-8g"),
        ("p5en", "p5en.48xlarge"),
        ("gd-8xh100ib-i128", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("GeForce RTX 4090", "geforce-rtx-40"),
        ("AMD Instinct MI300X", "mi300x"),
        ("MI250X", "mi250x"),
        ("P5.48xlarge or p5e.48xlarge", "p5.48xlarge or p5e.48xlarge"),
    ],
)
def test_a_platform_is_found_as_users_write_it(written: str, name: str) -> None:
    assert platforms.named(written).name == name


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("gpu_8x_h100_sxm5", "did you mean h100-sxm"),
        ("h100-80gb-sxm-ib.8x", "did you mean h100-sxm"),
        ("h100", "h100-sxm or h100-nvl?"),
        ("nd96isr_h100", "did you mean nd96isr-h100-v5"),
        ("p6e-gb300.36xlarge", "gb300"),
        ("A800", "no machine with A800 is known; without --platform the log decides"),
        ("mi325x", "no machine with MI325 is known"),
        ("quantum-9000", "known are a100-pcie, "),
    ],
)
def test_a_name_that_is_not_known_gets_those_with_the_same_gpu(written: str, hint: str) -> None:
    with pytest.raises(NcclInspectError) as raised:
        platforms.named(written)
    assert hint in str(raised.value.hint)


def test_a_family_whose_sizes_differ_is_no_machine_type() -> None:
    with pytest.raises(NcclInspectError, match=r"its sizes are g6e\.12xlarge, g6e\.24xlarge, g6e\.48xlarge"):
        platforms.named("g6e")
    assert platforms.named("hgx-h100").nics is None, "the board does not tell the NICs"


@pytest.mark.parametrize(
    ("name", "gpus", "nics", "gbps", "rate"),
    [
        ("g6e.12xlarge", 4, 1, 100, 100),
        ("g6e.24xlarge", 4, 2, 100, 100),
        ("g6e.48xlarge", 8, 4, 100, 100),
        ("g7e.48xlarge", 8, 4, 400, 400),
        ("p5.48xlarge", 8, 32, 100, 400),
        ("p5en.48xlarge", 8, 16, 200, 400),
        ("p6-b300.48xlarge", 8, 16, 400, 800),
        ("p6e-gb200.36xlarge", 4, 4, 400, 400),
        ("nd128isr-gb300-v6", 4, 4, 800, 800),
        ("a4x-maxgpu-4g-metal", 4, None, None, 800),
        ("bm.gpu.b300.8", 8, 16, 400, 800),
        ("dgx-spark", 1, None, 100, 100),
    ],
)
def test_what_was_checked_stays_so(name: str, gpus: int, nics: int | None, gbps: int | None, rate: int) -> None:
    machine = platforms.named(name)
    assert (machine.gpus, machine.nics, machine.nic_gbps, machine.rate) == (gpus, nics, gbps, rate)


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
    job = nccl_inspect.read(log, platform="a2-highgpu-8g")
    assert {path.verdict for path in job.paths} == {"ok"}
    assert {finding.severity for finding in job.findings} <= {"info"}


RANK = "#  Rank {0:2} Group  0 Pid   1511 on       vm{0} device  0 [0000:01:00] {1}\n"
"""After the format string of nccl-tests 2.18.1, src/util.cu."""
SHM = "vm0:1511:1595 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
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


def said(message: str, host: str = "node-a", level: str = "INFO") -> str:
    return f"{host}:100:140 [0] NCCL {level} {message}\n"


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
    assert "NCCL_NET_GDR_C2C=0 keeps NCCL from it" in found.cause


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
