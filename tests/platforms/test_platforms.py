"""What is known of machine types."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from machine_logs import FILES
from repository import ROOT

import nccl_inspect
from nccl_inspect import platforms
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.platforms import Platform, networks, recognition

URL = re.compile(r"https://[\w.-]+\.\w+/\S+")
MOVING = re.compile(r"github\.com/(?!MicrosoftDocs/)[^/]+/[^/]+/(?:blob|tree)/(?:main|master|HEAD)/(?!closed/)")
"""A file of a branch, which another commit may change; Microsoft's pages are too large for a copy, mlcommons' final."""
NETWORKS = tuple(file.stem for file in sorted(Path(networks.__file__).parent.glob("*.toml")))
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
        ("mi308x", "no machine with MI308 is known"),
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
