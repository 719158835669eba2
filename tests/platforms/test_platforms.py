"""What is known of machine types: each file is sound, each name is found as users write it, and logs show which it is.

The logs with labels show it of whole logs: names of GPUs, signs, counts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from repository import ROOT

from nccl_inspect import platforms
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.platforms import Platform, Shown

FILES = sorted(Path(platforms.__file__).parent.glob("*.toml"))
URL = re.compile(r"https://[\w.-]+\.\w+/\S+")
MOVING = re.compile(r"github\.com/(?!MicrosoftDocs/)[^/]+/[^/]+/(?:blob|tree)/(?:main|master|HEAD)/(?!closed/)")
"""A file of a branch, which another commit may change; Microsoft's pages are too large for a copy, mlcommons' final."""
NETWORKS = (*(file.stem for file in (Path(platforms.__file__).parent / "networks").glob("*.toml")), None)


def list_unsourced(table: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the sources of a platform; nothing where each fact has one that can be opened."""
    sources = table.get("sources", [])
    stated = {key for source in sources for key in source.get("states", [])}
    facts = table.keys() - {"name", "aliases", "vendor", "sources"}
    yield from (f"{key} has no source" for key in sorted(facts - stated))
    yield from (f"{key} has a source and is not there" for key in sorted(stated - facts))
    for url in (source.get("url", "") for source in sources):
        if not (URL.fullmatch(url) or (ROOT / url).is_file()):
            yield f"'{url}' cannot be opened"
        if MOVING.search(url):
            yield f"{url} names no commit or release"


def list_mistyped(table: dict[str, Any]) -> Iterator[str]:
    """Yield keys and types that are not those of the class; those of signs and sources refuse what they do not know."""
    hints = get_type_hints(Platform)
    for key, value in table.items():
        if key in ("aliases", "gpu_names", "busbw"):
            wanted: set[type] = {int, float} if key == "busbw" else {str}
            is_sound = isinstance(value, list) and {type(one) for one in value} <= wanted
        else:
            is_sound = key in ("signs", "sources") or type(value) in (get_args(hints[key]) or (hints[key],))
        if not is_sound:
            yield f"{key} = {value!r} has another type"


def impossible(one: Platform) -> Iterator[str]:
    """Yield values that no machine has, and what is not written as it is looked up."""
    ranges: list[tuple[str, float | None, float, float]] = [
        *(("gpus", one.gpus, 1, 72), ("nics", one.nics, 1, 64), ("nvlink", one.nvlink, 0, 6)),
        *(("nvlink_pairs", one.nvlink_pairs, 1, 6), ("nvlink_domain", one.nvlink_domain, one.gpus or 1, 10_000)),
        *(("nic_gbps", one.nic_gbps, 1, 3200), ("gpu_gbps", one.gpu_gbps, 1, 3200)),
    ]
    yield from (f"{name} = {value}" for name, value, low, high in ranges if not low <= (value or low) <= high)
    signs = {condition for sign in one.signs.settings for condition in sign.split()}
    yield from (
        what
        for what, is_so in {
            "busbw is no range": one.busbw is not None and not 0 < one.busbw[0] <= one.busbw[1],
            f"network = {one.network}": one.network not in NETWORKS,
            "NVLink without P2P": one.nvlink and one.p2p is False,
            "NVLink between all, and between some": one.nvlink is not None and one.nvlink_pairs,
            "GPUDirect RDMA over TCP": one.network == "tcp" and one.gdr,
            "conditions of GPUDirect RDMA without it": not one.gdr and (one.gdr_since or one.gdr_setting),
            "conditions of P2P that is there anyway": one.p2p is not False and (one.p2p_since or one.p2p_least_gpus),
            "a sign is no setting and value": not all("=" in condition for condition in signs),
            "a sign names no setting that is looked at": any(
                not {condition.partition("=")[0] for condition in sign.split()} & {*platforms.SETTINGS}
                for sign in one.signs.settings
            ),
            "a network that is not looked at": not {*one.signs.networks} <= {*platforms.NETWORKS},
        }.items()
        if is_so
    )
    for name in (one.name, *one.aliases):
        if name != name.lower().replace("_", "-") or name.startswith(("standard-", "ml.")):
            yield f"{name} is not written as it is looked up"
        if platforms.find(name) is not one or platforms.require_platform(name.upper()) is not one:
            yield f"{name} does not lead to it"


def test_each_platform_is_sound() -> None:
    wrong = []
    for file in FILES:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        one = platforms.require_platform(file.stem)
        assert table["name"] == file.stem == one.name
        wrong += [f"{file}: {what}" for what in (*list_unsourced(table), *list_mistyped(table), *impossible(one))]
    assert not wrong, "\n".join(wrong)


def test_no_name_of_a_platform_or_a_gpu_stands_for_two() -> None:
    every = [platforms.require_platform(file.stem) for file in FILES]
    names = [name.lower() for one in every for name in (one.name, *one.aliases)]
    gpus = [name for one in every for name in one.gpu_names]
    assert len(names) == len(set(names))
    assert len(gpus) == len(set(gpus)) > 10


def test_every_key_is_told_in_the_documentation_of_the_package() -> None:
    doc = platforms.__doc__ or ""
    assert all(f"``{field.name}``" in doc for field in fields(Platform))


WRITTEN = """
    Standard_ND96isr_H100_v5 = nd96isr-h100-v5; standard_nd96isrf_h200_v5 = nd96isr-h200-v5;
    Standard_ND128isr_NDR_GB200_v6 = nd128isr-ndr-gb200-v6; nd128isr-gb200-v6 = nd128isr-ndr-gb200-v6;
    Standard_NC96ads_A100_v4 = nc96ads-a100-v4; ml.p5.48xlarge = p5.48xlarge; ML.G5.48XLARGE = g5.48xlarge;
    a3-megagpu = a3-megagpu-8g; A3_MEGAGPU_8G = a3-megagpu-8g; g4-standard-96 = g4-standard;
    BM.GPU.GB200-v2.4 = bm.gpu.gb200.4; hgx-h100 = h100-sxm; HGX-B200 = b200-sxm; HGX H200 = h200-sxm;
    H100 SXM = h100-sxm; H100-SXM5 = h100-sxm; NVIDIA DGX H100 = dgx-h100; DGX_B200 = dgx-b200;
    GB200-NVL72 = gb200-nvl72; BM.GPU.H100.8 = bm.gpu.h100.8; A3 Mega = a3-megagpu-8g; p5en = p5en.48xlarge;
    gd-8xh100ib-i128 = h100-sxm; NVIDIA H100 80GB HBM3 = h100-sxm; GeForce RTX 4090 = geforce-rtx-40;
    AMD Instinct MI300X = mi300x; MI250X = mi250x
"""
UNKNOWN = {
    "gpu_8x_h100_sxm5": "did you mean h100-sxm",
    "h100-80gb-sxm-ib.8x": "did you mean h100-sxm",
    "h100": "h100-sxm or h100-nvl?",
    "nd96isr_h100": "did you mean nd96isr-h100-v5",
    "p6e-gb300.36xlarge": "gb300",
    "A800": "no machine with A800 is known; without --platform the log decides",
    "mi308x": "no machine with MI308 is known",
    "quantum-9000": "known are a100-pcie, ",
    "p5.48xlarg": "p5.48xlarge",
    "☃": "p5.48xlarge",
    "g6e": "its sizes are g6e.12xlarge, g6e.24xlarge, g6e.48xlarge",
}


def test_a_platform_is_found_as_users_write_it() -> None:
    names = dict(row.strip().split(" = ") for row in WRITTEN.split(";"))
    assert {written: platforms.require_platform(written).name for written in names} == names
    assert platforms.require_platform(" BM.GPU.GB200-v2.4 ").name == "bm.gpu.gb200.4"
    assert platforms.require_platform("P5.48xlarge or p5e.48xlarge").name == "p5.48xlarge or p5e.48xlarge"
    assert platforms.find("no such machine") is None
    assert platforms.require_platform("hgx-h100").nics is None, "the board does not tell the NICs"


def test_a_name_that_is_not_known_gets_those_with_the_same_gpu() -> None:
    wrong = []
    for written, hint in UNKNOWN.items():
        with pytest.raises(NcclInspectError) as raised:
            platforms.require_platform(written)
        if hint not in f"{raised.value} {raised.value.hint}":
            wrong.append(f"{written}: {raised.value} {raised.value.hint}, not {hint}")
    assert not wrong, "\n".join(wrong)


CHECKED: dict[str, tuple[int, int | None, int | None, int]] = {
    # GPUs, NICs, Gb/s of a NIC, Gb/s of a GPU
    "g6e.12xlarge": (4, 1, 100, 100),
    "g6e.24xlarge": (4, 2, 100, 100),
    "g6e.48xlarge": (8, 4, 100, 100),
    "g7e.48xlarge": (8, 4, 400, 400),
    "p5.48xlarge": (8, 32, 100, 400),
    "p5en.48xlarge": (8, 16, 200, 400),
    "p6-b300.48xlarge": (8, 16, 400, 800),
    "p6e-gb200.36xlarge": (4, 4, 400, 400),
    "nd128isr-gb300-v6": (4, 4, 800, 800),
    "a4x-maxgpu-4g-metal": (4, None, None, 800),
    "bm.gpu.b300.8": (8, 16, 400, 800),
    "dgx-spark": (1, None, 100, 100),
}


def test_what_was_checked_stays_so() -> None:
    every = {name: platforms.require_platform(name) for name in CHECKED}
    assert {name: (one.gpus, one.nics, one.nic_gbps, one.rate) for name, one in every.items()} == CHECKED


# --- the machine type that a log shows, and what it offers under the releases and settings of the log


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
        found = platforms.expect_of_job(platforms.require_platform("gb200-nvl72"), [release], 4, set())
        assert found.gdr is expected, release


def test_a_file_that_is_not_well_formed_is_named_with_what_is_wrong() -> None:
    broken = {
        'name = "x"\n': "platforms/x.toml: no 'sources'",
        'name = "x"\nsources = []\ncolour = "red"\n': "platforms/x.toml: Platform has no field for {'colour': 'red'}",
        "name = x\n": "platforms/x.toml: Invalid value (at line 1, column 8)",
    }
    for text, message in broken.items():
        with pytest.raises(NcclInspectError) as caught:
            platforms._platform("x.toml", text)
        assert caught.value.message == message
