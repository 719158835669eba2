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
        if key == "aliases":
            assert isinstance(value, list)
            assert all(isinstance(alias, str) for alias in value)
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
