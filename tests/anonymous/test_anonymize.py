"""``nccl-inspect anonymize``: no name is left, and the log still says the same."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sample_data
from anonymized_logs import PRIVATE, anonymized
from envelope_samples import PREFIXES, WHOLE, wrapper
from hypothesis import given
from hypothesis import strategies as st
from rule_pages import EXAMPLES, Example

import nccl_inspect
from nccl_inspect.anonymous import Anonymizer
from nccl_inspect.anonymous.names import Names, load
from nccl_inspect.anonymous.text import Scrubber
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.model.job import Job
from nccl_inspect.util.text import decode

FIELD_NOTES = sorted((sample_data.FOLDER / "field-notes").glob("*.log"))


def said(job: Job, anonymizer: Anonymizer | None = None) -> Any:
    """What a summary tells, with the names replaced; numbers of lines and bytes are those of the files."""
    document: dict[str, Any] = job.to_dict()
    del document["sources"]
    for key in ("first_failure", "suppressed", "unrecognised"):
        del document[key]
    # Whether a host or label has the form of a pod's name is not kept: steps and places may name it.
    # What was torn comes out whole, so that nothing is left to say of it.
    document["findings"] = [one for one in document["findings"] if one["rule"] != "lines-damaged"]
    document["head"] = {key: document["head"][key] for key in ("headline", "rule", "since")}
    for finding in document["findings"]:
        finding["fix"] = [step for step in finding["fix"] if not step.startswith("kubectl describe pod ")]
        finding["evidence"] = [re.sub(r".*? NCCL ", "NCCL ", entry["text"]) for entry in finding["evidence"]]
    return renamed(document, anonymizer) if anonymizer else document


_NOT_OF_THE_LOG = ("config", "impact", "references")
"""A path of this machine, a text that names its source, and sources."""


def renamed(value: Any, anonymizer: Anonymizer) -> Any:
    scrubber = Scrubber(anonymizer.names)
    if isinstance(value, str):
        return scrubber.host(value)
    if isinstance(value, list):
        return [renamed(item, anonymizer) for item in value]
    if isinstance(value, dict):
        return {key: item if key in _NOT_OF_THE_LOG else renamed(item, anonymizer) for key, item in value.items()}
    return value


def check(logs: Sequence[bytes], **options: Any) -> list[bytes]:
    anonymizer, after = anonymized(*logs)
    wanted = said(nccl_inspect.read(list(logs), **options), anonymizer)
    got = said(nccl_inspect.read(after, **options))
    assert got == wanted
    for name in anonymizer.names.table["host"]:
        if len(name) > 3:
            assert not any(name.encode() in log for log in after)
    return after


@pytest.mark.parametrize("sample", sample_data.names())
def test_a_sample_says_the_same(sample: str) -> None:
    after = check(sample_data.contents(sample))
    assert not any(re.search(rb"llama|192\.0\.2\.\d", log) for log in after)


@pytest.mark.parametrize("log", FIELD_NOTES, ids=lambda log: log.stem)
def test_a_note_from_the_field_says_the_same(log: Path) -> None:
    check([log.read_bytes()])


@pytest.mark.parametrize("envelope", [*PREFIXES, *WHOLE])
@pytest.mark.parametrize("sample", ["v2.28.9-libfabric-2node", "peer-killed"])
def test_a_log_in_an_envelope_says_the_same(envelope: str, sample: str) -> None:
    log = b"\n".join(map(wrapper(envelope), sample_data.contents(sample)[0].split(b"\n")))
    after = check([log])
    assert b"llama-" not in after[0]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_rules_say_the_same(example: Example) -> None:
    log = example.log * int(example.options.get("repeat", 1))
    _, after = anonymized(log)
    before = [(f.rule, f.severity, f.ranks) for f in nccl_inspect.read(log).findings]
    assert [(f.rule, f.severity, f.ranks) for f in nccl_inspect.read(after[0]).findings] == before


POD, NODE = "llama-3-8b-node-0-0", "ip-10-0-1-2"


def _insights(line: str) -> list[dict[str, str]]:
    return [{"field": "@timestamp", "value": "2026-11-20 23:13:07.071"}, {"field": "@message", "value": line}]


DOCUMENTS: dict[str, Callable[[list[str]], object]] = {
    "elastic": lambda lines: {
        "hits": {"hits": [{"_source": {"message": line, "kubernetes": {"pod": {"name": POD}}}} for line in lines]}
    },
    "datadog": lambda lines: {
        "data": [
            {"attributes": {"message": line, "host": NODE, "tags": [f"pod_name:{POD}", "kube_cluster_name:acme-1"]}}
            for line in lines
        ]
    },
    "loki": lambda lines: {
        "data": {
            "result": [
                {"stream": {"pod": POD, "node": NODE}, "values": [[str(at), line] for at, line in enumerate(lines)]}
            ]
        }
    },
    "insights": lambda lines: {"results": [_insights(line) for line in lines]},
    "google": lambda lines: [
        {
            "labels": {"k8s-pod/job-name": "acme-job", "compute.googleapis.com/resource_name": "gke-acme-pool-1"},
            "logName": "projects/acme-prod/logs/stdout",
            "resource": {"labels": {"cluster_name": "acme-east", "pod_name": POD, "project_id": "acme-prod"}},
            "textPayload": line,
        }
        for line in lines
    ],
    "one-string": "\n".join,
}


@pytest.mark.parametrize("sample", ["v2.28.9-libfabric-2node", "peer-killed"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_says_the_same_on_one_line_and_on_many(kind: str, indent: int | None, sample: str) -> None:
    lines = decode(sample_data.contents(sample)[0]).splitlines()
    before = json.dumps(DOCUMENTS[kind](lines), indent=indent).encode()
    (after,) = check([before])
    assert not re.findall(rb"llama|acme|ip-10-0-1-2", after)
    assert json.loads(after)


def test_a_document_is_longer_than_a_line_may_be() -> None:
    lines = decode(sample_data.contents("v2.28.9-libfabric-2node")[0]).splitlines()
    before = json.dumps(DOCUMENTS["elastic"](lines * (4 * BLOCK // sum(map(len, lines))))).encode()
    assert len(before) > 2 * BLOCK
    _, (after,) = anonymized(before)
    assert len(json.loads(after)["hits"]["hits"]) == len(json.loads(before)["hits"]["hits"])
    assert b"llama" not in after


def test_a_name_that_was_replaced_is_left_nowhere() -> None:
    log = (
        b"gpu-a17:1:1 [0] NCCL INFO cudaDriverVersion 13000\n"
        b"see https://github.com/NVIDIA/x/gpu-a17.md and /opt/gpu-a17@2/x, /sys/gpu-a17_2 and \xffgpu-a17\xff\n"
        b"gpu-a170 and xgpu-a17 are others\n"
    )
    _, (after,) = anonymized(log)
    assert not re.search(rb"(?<![a-z])gpu-a17(?!0)", after)
    assert after.count(b"host-1") == 5
    assert after.endswith(b"gpu-a170 and xgpu-a17 are others\n")


@pytest.mark.parametrize("entry", [b"_HOSTNAME=gpu-17\nMESSAGE=%s\n", b'{"_HOSTNAME":"gpu-17","MESSAGE":"%s"}\n'])
def test_a_node_of_common_words_is_a_name(entry: bytes) -> None:
    log = entry % b"llama-0:1:1 [0] NCCL INFO cudaDriverVersion 13000"
    assert not re.search(rb"gpu-17|llama", anonymized(log)[1][0])


def test_the_file_of_a_container_names_its_namespace() -> None:
    log = b"llama-0:1:1 [0] NCCL INFO x\n/var/log/containers/llama-0_acme-prod_pytorch-0b11.log of llama-0\n"
    assert not re.search(rb"acme|llama", anonymized(log)[1][0])


def test_names_do_not_hide_in_numbers() -> None:
    lines = [
        b"gpu-a17:1:1 [0] NCCL INFO cudaDriverVersion 13000",
        b"\x1b[0mgpu-a17:1:1 [0] NCCL INFO NET/IB : No device found.",
    ]
    log = "".join(json.dumps({"_HOSTNAME": "n-1", "MESSAGE": [*line]}) + "\n" for line in lines).encode()
    (after,) = check([log])
    assert not re.search(rb"gpu-a17|103, ?112", after)
    assert b"NCCL INFO cudaDriverVersion 13000" in after


def test_a_host_is_known_from_lines_that_cannot_be_read() -> None:
    log = b"a-1:1:1 [0] NCCL INFO cudaDriverVersion 13000\n%%x=1 gpu-a17:1:1 [0] gpu-a17:1:1 [0] NCCL INFO x\n"
    assert b"gpu-a17" not in anonymized(log)[1][0]


LEFT = (
    rb"gpu-a|acme|alice|bob|10\.77|10-77|8aa8|5e1f|0c:42|0c42|3b10|0309|"
    rb"wandb\.a|secret|hf_a|01234567|123456789012|cluster\.corp"
)


def test_hosts_of_the_store_are_names() -> None:
    connect = "[c10d] The client socket has timed out after 8000ms while trying to connect to (secret-host-9, 29902)."
    unknown = "The IPv6 network addresses of (master-0.team-x.svc, 29902) cannot be retrieved (gai error: -2 - No)."
    retry = f"TCP client failed to connect/validate to host secret-host-9:29902 - retrying (try=0): {connect[7:]}"
    text = "\n".join((connect, unknown, retry))
    assert not re.search(b"secret|team-x|master-0", anonymized(text.encode())[1][0])


def test_names_of_all_kinds_are_replaced() -> None:
    anonymizer, (after,) = anonymized(PRIVATE)
    assert not re.findall(LEFT, after), re.findall(LEFT, after)
    for kept in (
        b"eth0:",
        b"mlx5_0:1/RoCE",
        b"OOB bond0.112:",
        b"^docker0,lo",
        b"socket.cc:500",
        b"%eth0<0>",
        b"fe80::",
    ):
        assert kept in after
    for kept in (b"https://pytorch.org/docs/stable/elastic/errors.html", b"ff:ff:ff:ff:ff:ff", b"nccl.%h.%p.log"):
        assert kept in after
    assert len(after.split(b"\n")) == len(PRIVATE.split(b"\n"))
    host = anonymizer.names.table["host"]["gpu-a17"].encode()
    assert host + b".domain-1.invalid torchrun" in after
    assert b"nccl." + host + b".4182.log" in after
    assert b"/home/user-1/" in after


def test_the_same_name_has_the_same_replacement_in_all_logs() -> None:
    one, two = PRIVATE.splitlines(keepends=True)[:4], PRIVATE.splitlines(keepends=True)[4:]
    anonymizer, after = anonymized(b"".join(one), b"".join(two))
    again, (whole,) = anonymized(PRIVATE)
    assert b"".join(after).splitlines()[1:10] == whole.splitlines()[1:10]
    assert anonymizer.names.table["host"] == again.names.table["host"]


def test_what_a_table_says_goes_on(tmp_path: Path) -> None:
    first, _ = anonymized(PRIVATE)
    first.names.save(str(tmp_path / "names.json"))
    assert (tmp_path / "names.json").stat().st_mode & 0o777 == 0o600
    more = b"aaa-1:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.77.3.10<0>\n" + PRIVATE.splitlines(keepends=True)[1]
    second, (after,) = anonymized(more, names=Names(load(str(tmp_path / "names.json"))))
    assert second.names.table["host"]["gpu-a17"] == first.names.table["host"]["gpu-a17"]
    assert second.names.table["ipv4"]["10.77.3.9"] == first.names.table["ipv4"]["10.77.3.9"]
    for entries in second.names.table.values():
        assert len(set(entries.values())) == len(entries)
    assert after.count(b"10.0.1.") == 2
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(NcclInspectError, match="no table of names"):
        load(str(tmp_path / "other.json"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("12:34:56 c10::Error at::add(a::b) 0000:53:00.0 v1.2.3.4", None),
        ("127.0.0.1 0.0.0.0 255.255.255.0 ::1 version 580.1.2.3", None),
        ("NCCL version 2.27.3+cuda13.0 P2P/CUMEM/read NET/IB/0 2/-1/-1->0->-1", None),
        ("/usr/lib/x86_64-linux-gnu/libnccl.so.2 /opt/amazon/efa/lib /sys/class/net/eth0 /dev/shm/nccl-a1b2", None),
        ("/opt/conda/lib/python3.11/site-packages/torch/distributed/run.py", None),
        ("169.254.7.8 8.8.8.8 10.1.2.0/24", "169.254.1.1 198.18.1.1 10.0.1.0/24"),
        ("fe80::1:2%eth0 2001:db8::5", "fe80::1%eth0 fd00:0:0:1::2"),
        ("/home/ann/x.py ~bob/run /Users/ann", "/home/user-1/x.py ~user-2/run /Users/user-1"),
        ("/a/acme.d/model_v3.safetensors", "/a/dir-1/model_v3.safetensors"),
        ("tcp://10.1.2.3:29500 env://", "tcp://10.0.1.1:29500 env://"),
        ('{"log":"at\\n10.1.2.3"}', '{"log":"at\\n10.0.1.1"}'),
        ("https://me:pw@git.acme.io/x", "https://redacted-1@site-1.invalid/x"),
    ],
)
def test_addresses_and_paths_go_by_shape(text: str, wanted: str | None) -> None:
    assert Scrubber(Names()).text(text) == (text if wanted is None else wanted)


def test_short_words_are_names_only_where_a_name_stands() -> None:
    log = b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000\nthe vm is up on node vm\n"
    assert anonymized(log)[1] == [b"host-1:1:1 [0] NCCL INFO cudaDriverVersion 13000\nthe vm is up on node host-1\n"]
    log = b"Channel:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    assert anonymized(log)[1] == [log.replace(b"Channel:", b"host-1:")]


def test_sorted_names_stay_sorted() -> None:
    hosts = [f"n{number:03}-x" for number in range(120)]
    random.Random(1).shuffle(hosts)
    log = "".join(f"{host}:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" for host in hosts).encode()
    table = anonymized(log)[0].names.table["host"]
    assert sorted(table.values()) == [table[host] for host in sorted(hosts)]


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    log = b"gpu-a17:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" + data
    _, (after,) = anonymized(log)
    assert b"gpu-a17" not in after


@pytest.mark.parametrize("piece", ["a-", "+", "a/", "/a", "1:", "a@", "a.", "[", '"', "token", "://", "\\", "10.1."])
def test_a_line_of_any_length_is_rewritten(piece: str) -> None:
    """In less than a second; with a pattern whose time is quadratic in the line, it would take many minutes."""
    assert Scrubber(Names()).text(piece * 200_000)


def test_names_do_not_hide_in_torn_lines() -> None:
    for sample in filter(sample_data.is_torn, sample_data.names()):
        _, after = anonymized(*sample_data.contents(sample))
        text = decode(b"".join(after))
        assert "llama" not in text
        assert not re.search(r"(?:^|[^a-z])vm:\d", text)
