"""The JSON document keeps what its schema promises, and the schema is complete."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sample_data
from jsonschema import Draft202012Validator
from schemas import closed, objects, schema

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.judging.engine import CATEGORIES, SEVERITIES

SCHEMA = schema("nccl-inspect-1")
SCHEMAS = sorted(Path(str(file)).stem for file in files("nccl_inspect").joinpath("schema").iterdir())

FRAGMENTS = {
    "one line": b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "gdr": b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA",
    "pxn": b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2(1)/GDRDMA/Shared",
    "partial gdr": b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA\n"
    b"vm:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/3",
    "version only": b"NCCL version 2.27.3+cuda12.9",
    "unrecognised": b"vm:1:1 [0] NCCL INFO a line \xff\x1b that no release prints",
    "warning": b"vm:1:1 [0] misc/socket.cc:41 NCCL WARN something that no release prints",
    "damaged": b"vm:1:1 [0]  NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "not utf8": b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to \xff\x07",
}


VALIDATOR = closed("nccl-inspect-1")
OPTIONAL = {"jobs"}
"""Keys that are there only where the input holds several jobs."""


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_is_a_sound_one(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_is_required_and_described(name: str) -> None:
    whole = schema(name)
    for part in objects(whole):
        assert part["description"]
        assert set(part["properties"]) - set(part["required"]) <= OPTIONAL
        for key, value in part["properties"].items():
            assert "description" in value or whole["$defs"][value["$ref"].rpartition("/")[2]]["description"], key


@pytest.mark.parametrize("name", sample_data.names())
def test_the_document_of_a_sample_fits(name: str) -> None:
    VALIDATOR.validate(json.loads(json.dumps(sample_data.job(name).to_dict())))


@pytest.mark.parametrize("name", FRAGMENTS)
def test_the_document_of_a_fragment_fits(name: str) -> None:
    VALIDATOR.validate(json.loads(json.dumps(nccl_inspect.read(FRAGMENTS[name]).to_dict())))


@pytest.mark.parametrize("name", ["socket-2node-tp4-dp2", "v2.28.9-libfabric-2node", "peer-killed"])
def test_the_document_of_a_log_that_breaks_off_anywhere_fits(name: str) -> None:
    (data,) = sample_data.contents(name)
    lines = data.split(b"\n")
    for end in range(1, len(lines), len(lines) // 30):
        try:
            job = nccl_inspect.read(b"\n".join(lines[:end]))
        except NoInputError:
            continue
        VALIDATOR.validate(json.loads(json.dumps(job.to_dict())))


@pytest.mark.parametrize("name", ["socket-2node-tp4-dp2", "v2.19.4-socket-2node"])
def test_the_document_of_one_hosts_part_of_a_log_fits(name: str) -> None:
    (data,) = sample_data.contents(name)
    part = [line for line in data.split(b"\n") if line.startswith(b"llama-3-8b-node-0-1")]
    document = nccl_inspect.read(b"\n".join(part)).to_dict()
    VALIDATOR.validate(json.loads(json.dumps(document)))


def test_a_document_with_another_verdict_or_a_key_less_does_not_fit() -> None:
    document: dict[str, Any] = json.loads(json.dumps(sample_data.job("peer-killed").to_dict()))
    changes: list[dict[str, Any]] = [{"verdict": "good"}, {"schema": "other/1"}, {"sources": []}, {"paths": [{}]}]
    for change in changes:
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(document | change)
    for key in SCHEMA["required"]:
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({name: value for name, value in document.items() if name != key})


def test_the_words_of_the_schema_are_those_of_the_rules() -> None:
    finding = SCHEMA["$defs"]["finding"]["properties"]
    assert finding["category"]["enum"] == list(CATEGORIES)
    assert set(finding["severity"]["enum"]) == set(SEVERITIES)


def test_names_in_a_document_refer_to_something_in_it() -> None:
    for name in sample_data.names():
        document: Any = sample_data.job(name).to_dict()
        communicators = {comm["id"] for comm in document["communicators"]}
        found = {finding["rule"] for finding in document["findings"]}
        sources = {source["name"] for source in document["sources"]}
        hosts = {host["name"] for host in document["job"]["hosts"]}
        assert len(communicators) == len(document["communicators"])
        for comm in document["communicators"]:
            assert comm["parent"] is None or comm["parent"] in communicators
            assert len(comm["ranks"]) == comm["nranks"]
            assert set(comm["hosts"]) <= hosts
            assert all(sorted(ring) == sorted(comm["ranks"]) for ring in comm["rings"] if len(ring) == comm["nranks"])
        for path in document["paths"]:
            assert set(path["communicators"]) <= communicators
            assert set(path["rules"]) <= found
            assert {path["src_host"], path["dst_host"]} <= hosts | {None}
        for finding in document["findings"]:
            assert set(finding["because"]) <= found
            assert {line["source"] for line in finding["evidence"]} <= sources
            assert finding["evidence"], "no finding without a line"
