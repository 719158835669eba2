"""The JSON document keeps what its schema promises, and the schema is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sample_data
from few_examples import every
from jsonschema import Draft202012Validator
from schemas import close_schema, objects, schema

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.judging.engine import CATEGORIES, SEVERITIES
from nccl_inspect.model.job import Job

SCHEMA = schema("nccl-inspect-1")
VALIDATOR = close_schema("nccl-inspect-1")
OPTIONAL = {"jobs"}
"""Keys that are there only where the input holds several jobs."""
LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2"
FRAGMENTS = {
    "one line": b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "gdr": LINE + b"/GDRDMA",
    "pxn": LINE + b"(1)/GDRDMA/Shared",
    "partial gdr": LINE + b"/GDRDMA\n" + LINE.replace(b"00/0", b"01/0"),
    "version only": b"NCCL version 2.27.3+cuda12.9",
    "unrecognised": b"vm:1:1 [0] NCCL INFO a line \xff\x1b that no release prints",
    "warning": b"vm:1:1 [0] misc/socket.cc:41 NCCL WARN something that no release prints",
    "damaged": b"vm:1:1 [0]  NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "not utf8": b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to \xff\x07",
}


def test_every_key_is_required_and_described() -> None:
    for file in files("nccl_inspect").joinpath("schema").iterdir():
        whole = schema(Path(str(file)).stem)
        Draft202012Validator.check_schema(whole)
        for part in objects(whole):
            assert part["description"]
            assert set(part["properties"]) - set(part["required"]) <= OPTIONAL
            for key, value in part["properties"].items():
                assert "description" in value or whole["$defs"][value["$ref"].rpartition("/")[2]]["description"], key


def documents(step: int) -> Iterator[tuple[str, Job]]:
    """Yield samples, fragments, samples that break off, and those of which one host's part is there."""
    yield from ((name, sample_data.job(name)) for name in sample_data.names()[::step])
    yield from ((name, nccl_inspect.read(data)) for name, data in FRAGMENTS.items())
    for name in ("socket-2node-tp4-dp2", "v2.28.9-libfabric-2node", "peer-killed"):
        lines = sample_data.contents(name)[0].split(b"\n")
        part = [line for line in lines if line.startswith(b"llama-3-8b-node-0-1")]
        for how, some in (
            ("of one host", part),
            *((f"up to line {end}", lines[:end]) for end in range(9, len(lines), len(lines) // 3)),
        ):
            try:
                yield f"{name} {how}", nccl_inspect.read(b"\n".join(some))
            except NoInputError:
                continue


@every(3)
def test_documents_fit_the_schema(step: int) -> None:
    read = ((name, json.loads(json.dumps(job.to_dict()))) for name, job in documents(step))
    wrong = [f"{name}: {error.message}" for name, found in read for error in VALIDATOR.iter_errors(found)]
    assert not wrong, "\n".join(wrong)


def test_a_document_with_another_verdict_or_a_key_less_does_not_fit() -> None:
    document: dict[str, Any] = json.loads(json.dumps(sample_data.job("peer-killed").to_dict()))
    changes: list[dict[str, Any]] = [{"verdict": "good"}, {"schema": "other/1"}, {"sources": []}, {"paths": [{}]}]
    without = [{name: value for name, value in document.items() if name != key} for key in SCHEMA["required"]]
    for changed in (*(document | change for change in changes), *without):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(changed)


def test_the_words_of_the_schema_are_those_of_the_rules() -> None:
    finding = SCHEMA["$defs"]["finding"]["properties"]
    assert finding["category"]["enum"] == list(CATEGORIES)
    assert set(finding["severity"]["enum"]) == set(SEVERITIES)


def test_names_in_a_document_refer_to_something_in_it() -> None:
    for name in sample_data.names():
        document: Any = sample_data.job(name).to_dict()
        assert "jobs" not in document, "a sample is one job"
        communicators = {comm["id"] for comm in document["communicators"]}
        found = {finding["rule"] for finding in document["findings"]}
        sources = {source["name"] for source in document["sources"]}
        hosts = {host["name"] for host in document["job"]["hosts"]}
        assert len(communicators) == len(document["communicators"])
        for comm in document["communicators"]:
            assert comm["parent"] in communicators | {None}
            assert len(comm["ranks"]) == comm["nranks"]
            assert set(comm["hosts"]) <= hosts
            assert all(sorted(ring) == sorted(comm["ranks"]) for ring in comm["rings"] if len(ring) == comm["nranks"])
        for path in document["paths"]:
            assert set(path["communicators"]) <= communicators
            assert set(path["rules"]) <= found
            assert {path["src_host"], path["dst_host"]} <= hosts | {None}
        for finding in document["findings"]:
            assert set(finding["because"]) <= found
            assert finding["evidence"] and {line["source"] for line in finding["evidence"]} <= sources
