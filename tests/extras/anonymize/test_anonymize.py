"""``nccl-inspect anonymize`` of logs: no name is left, and the log still says the same."""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import rule_pages
import sample_data
from anonymized_logs import PRIVATE, anonymize_log
from call_count import calls
from envelope_samples import PREFIXES, WHOLE, wrapper
from hypothesis import given
from hypothesis import strategies as st
from repository import TESTS

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer, Learned
from nccl_inspect.extras.anonymize.text import Names, Scrubber, load_table, split_hosts
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.model.job import Job
from nccl_inspect.util.text import decode

HEAD = "gpu-a17:11:11 [0] NCCL INFO cudaDriverVersion 13000\n"
LINES = tomllib.loads((TESTS / "extras" / "anonymize" / "lines.toml").read_text(encoding="utf-8"))
FEW = ("v2.28.9-libfabric-2node", "peer-killed")
_NOT_OF_THE_LOG = ("config", "impact", "references")
"""A path of this machine, a text that names its source, and sources."""


def document(job: Job, anonymizer: Anonymizer | None = None) -> Any:
    """Return what a summary says, with the names replaced; numbers of lines and bytes are those of the files."""
    found: dict[str, Any] = job.to_dict()
    for key in ("sources", "first_failure", "suppressed", "unrecognised"):
        del found[key]
    # What was torn comes out whole, so that nothing is left to say of it.
    found["findings"] = [one for one in found["findings"] if one["rule"] != "lines-damaged"]
    found["head"] = {key: found["head"][key] for key in ("headline", "rule", "since")}
    for finding in found["findings"]:
        finding["evidence"] = [re.sub(r".*? NCCL ", "NCCL ", entry["text"]) for entry in finding["evidence"]]
    return rename_hosts(found, Scrubber(anonymizer.names)) if anonymizer else found


def rename_hosts(value: Any, scrubber: Scrubber) -> Any:
    if isinstance(value, str):
        return scrubber.host(value)
    if isinstance(value, list):
        return [rename_hosts(item, scrubber) for item in value]
    if isinstance(value, dict):
        return {key: item if key in _NOT_OF_THE_LOG else rename_hosts(item, scrubber) for key, item in value.items()}
    return value


def differences(name: str, *logs: bytes, hidden: str = "llama") -> Iterator[str]:
    """Yield what logs say otherwise after they are anonymized, and names that are left."""
    anonymizer, after = anonymize_log(*logs)
    wanted, got = document(nccl_inspect.read(list(logs)), anonymizer), document(nccl_inspect.read(after))
    yield from (f"{name}: {key}: {got[key]}, before: {wanted[key]}" for key in wanted if got[key] != wanted[key])
    names = [host for host in anonymizer.names.table["host"] if len(host) > 3]
    yield from (f"{name}: {host} is left" for host in names if any(host.encode() in log for log in after))
    yield from (f"{name}: {found[0]!r} is left" for log in after if (found := re.search(hidden.encode(), log)))


def wrap_line(envelope: str, sample: str) -> bytes:
    return b"\n".join(map(wrapper(envelope), sample_data.contents(sample)[0].split(b"\n")))


@pytest.mark.slow
def test_logs_say_the_same() -> None:
    wrong = [line for name in FEW for line in differences(name, *sample_data.contents(name), hidden=r"llama|192\.0\.2")]
    for number, envelope in enumerate([*PREFIXES, *WHOLE]):
        if number % 16 == 0:
            wrong += differences(envelope, wrap_line(envelope, "peer-killed"))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_samples_in_all_envelopes_and_examples_of_rules_say_the_same() -> None:
    wrong: list[str] = []
    for name in sample_data.names()[::3]:
        wrong += differences(name, *sample_data.contents(name), hidden=r"llama|192\.0\.2\.\d")
        if sample_data.is_torn(name):
            text = decode(b"".join(anonymize_log(*sample_data.contents(name))[1]))
            wrong += [f"{name}: vm is left"] if re.search(r"(?:^|[^a-z])vm:\d", text) else []
    for log in sorted((sample_data.FOLDER / "field-notes").glob("*.log")):
        wrong += differences(log.name, log.read_bytes())
    for envelope, sample in zip((*PREFIXES, *WHOLE), cycle(FEW)):
        wrong += differences(f"{sample} in {envelope}", wrap_line(envelope, sample))
    for example in [example for rule in rule_pages.RULES for example in rule_pages.examples(rule)][::9]:
        data = example.log * int(example.options.get("repeat", 1))
        before, after = (nccl_inspect.read(one).findings for one in (data, anonymize_log(data)[1][0]))
        if [(f.rule, f.severity, f.ranks) for f in after] != [(f.rule, f.severity, f.ranks) for f in before]:
            wrong.append(f"nccl_inspect/rules/{example.rule.replace('-', '_')}.md: {example.id}")
    assert not wrong, "\n".join(wrong)


def write_document(kind: str, lines: Iterable[str]) -> Any:
    around, each = LINES["documents"][kind]
    return json.loads(around.replace("LINES", ",".join(each.replace("LINE", json.dumps(line)) for line in lines)))


def test_documents_say_the_same_on_one_line_and_on_many() -> None:
    lines = decode(sample_data.contents("peer-killed")[0]).splitlines()[:40]
    wrong: list[str] = []
    documents = {kind: write_document(kind, lines) for kind in LINES["documents"]} | {"one-string": "\n".join(lines)}
    for kind, whole in documents.items():
        for indent in (None, 2):
            data = json.dumps(whole, indent=indent).encode()
            wrong += differences(f"{kind} {indent}", data, hidden="llama|acme|ip-10-0-1-2")
            assert json.loads(anonymize_log(data)[1][0]), kind
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_a_document_is_longer_than_a_line_may_be() -> None:
    lines = decode(sample_data.contents("v2.28.9-libfabric-2node")[0]).splitlines()
    before = json.dumps(write_document("elastic", lines * (2 * BLOCK // sum(map(len, lines)) + 1))).encode()
    assert len(before) > 2 * BLOCK
    _, (after,) = anonymize_log(before)
    assert len(json.loads(after)["hits"]["hits"]) == len(json.loads(before)["hits"]["hits"])
    assert b"llama" not in after


# --- names: what goes, what stays

LEAKS = re.compile(
    r"zen|zeus|orion|\bbob\b|smith|/b/|hunter2|ab12|\bxy9|q1w2|p w|0a1b|zz9|abc\.def|hf_abc|sk-abc|AKIA|Zz1|12-34|"
    r"gpu-a1|login01|p123|1234567890|10[.-]4[.-]5|10[.-]9[.-]8|54-12|10-0-3-4|\b1423\b|0x58f|3b1|5e1f|16505|CZ12|"
    r"8aa8|2001:db8|"
    r"abcdef0123|dashing|1f2e|x7k2p|x9z8|sig=abc|:pw@|wJalr|abc123",
    re.IGNORECASE,
)
PRIVATE_NAMES = (
    r"gpu-a|acme|alice|bob|10\.77|10-77|8aa8|5e1f|0c:42|0c42|3b10|0309|"
    r"wandb\.a|secret|hf_a|01234567|123456789012|cluster\.corp"
)


def test_no_name_is_left() -> None:
    """The logs of tests/logs/leaks are shaped as Kubernetes, Slurm, AWS, wandb and others print; names are made up."""
    cases = [(case["text"], re.compile(case["gone"])) for case in LINES["hidden"]]
    cases += [(PRIVATE.decode(), re.compile(PRIVATE_NAMES))]
    cases += [(HEAD + file.read_text("utf-8"), LEAKS) for file in sorted((TESTS / "logs" / "leaks").glob("*.log"))]
    wrong: list[str] = []
    for text, hidden in cases:
        after = anonymize_log(text.encode())[1][0].decode()
        wrong += [line for line in after.splitlines() if hidden.search(line)]
        wrong += [text] if after.count("\n") != text.count("\n") else []
    assert not wrong, "\n".join(wrong)


def test_no_secret_is_left() -> None:
    wrong: list[str] = []
    for secret in ("zq-7", "zenithQ7xkAb9+/zz"):
        for text in LINES["secrets"]:
            after = anonymize_log(f"{HEAD}{text.replace('SECRET', secret)}\nof {secret}\n".encode())[1][0].decode()
            *lines, again = after.splitlines()
            left = [line for line in lines if secret[:4] in line or secret[-4:] in line]
            wrong += left if len(lines) == text.count("\n") + 2 else [text]
            wrong += [again] if len(secret) > 8 and secret in again else []
    assert not wrong


def test_a_host_is_taken_for_a_pod_where_it_was_before() -> None:
    names = Names()
    assert [names.get("host", name) for name in ("llama-worker-0", "gpu17", "GPU-17", "gpu-17")] == [
        *("host-1", "host2", "host3", "host-4")
    ]
    log = sample_data.contents("peer-killed")[0].replace(b"llama-3-8b-node-0-", b"zen17x")
    assert not [*differences("Slurm", log)]


def test_names_do_not_hide_in_numbers() -> None:
    lines = [HEAD.encode(), b"\x1b[0mgpu-a17:1:1 [0] NCCL INFO NET/IB : No device found."]
    log = "".join(json.dumps({"_HOSTNAME": "n-1", "MESSAGE": [*line]}) + "\n" for line in lines).encode()
    assert not [*differences("numbers", log, hidden="gpu-a17|103, ?112")]
    assert b"NCCL INFO cudaDriverVersion 13000" in anonymize_log(log)[1][0]


def test_what_goes_has_its_shape_and_the_rest_stays() -> None:
    anonymizer, (after,) = anonymize_log(PRIVATE)
    host = anonymizer.names.table["host"]["gpu-a17"]
    for kept in (
        *("eth0:", "mlx5_0:1/RoCE", "OOB bond0.112:", "^docker0,lo", "socket.cc:500", "%eth0<0>", "fe80::"),
        *("https://pytorch.org/docs/stable/elastic/errors.html", "ff:ff:ff:ff:ff:ff", "nccl.%h.%p.log"),
        *(f"{host}.domain-1.invalid torchrun", f"nccl.{host}.4182.log", "/home/user-1/"),
    ):
        assert kept.encode() in after
    one, two = PRIVATE.splitlines(keepends=True)[:4], PRIVATE.splitlines(keepends=True)[4:]
    again, parts = anonymize_log(b"".join(one), b"".join(two))
    assert b"".join(parts).splitlines()[1:10] == after.splitlines()[1:10], "the same in all logs"
    assert again.names.table["host"] == anonymizer.names.table["host"]


def test_a_table_of_names_is_gone_on_with(tmp_path: Path) -> None:
    first, _ = anonymize_log(PRIVATE)
    first.names.save(str(tmp_path / "names.json"))
    assert (tmp_path / "names.json").stat().st_mode & 0o777 == 0o600
    more = b"aaa-1:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.77.3.10<0>\n" + PRIVATE.splitlines(keepends=True)[1]
    second, (after,) = anonymize_log(more, names=Names(load_table(str(tmp_path / "names.json"))))
    for kind, name in (("host", "gpu-a17"), ("ipv4", "10.77.3.9")):
        assert second.names.table[kind][name] == first.names.table[kind][name]
    assert all(len(set(entries.values())) == len(entries) for entries in second.names.table.values())
    assert after.count(b"10.0.1.") == 2
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(NcclInspectError, match="no table of names"):
        load_table(str(tmp_path / "other.json"))


def test_sorted_names_stay_sorted() -> None:
    hosts = [f"n{number:03}-x" for number in range(120)]
    random.Random(1).shuffle(hosts)
    log = "".join(f"{host}:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" for host in hosts).encode()
    table = anonymize_log(log)[0].names.table["host"]
    assert sorted(table.values()) == [table[host] for host in sorted(hosts)]


def test_a_guid_is_one_in_each_notation() -> None:
    names = Names()
    written = [names.get("guid", guid) for guid in ("0x506b4b0300abcdef", "506b:4b03:00ab:cdef", "506B4B0300ABCDEF")]
    assert written == ["0x0000000000000001", "0000:0000:0000:0001", "0000000000000001"]
    assert Names(names.table).get("guid", "506b4b03.00abcdef") == "00000000.00000001"
    assert names.get("guid", "0x506b4b0300abcdee") == "0x0000000000000002"


MAIL = ("", "user=", "user: ", "USER ", "for ", "on ", "node=", "--mail-user=", "(", "host:")


def test_a_message_without_its_end_is_anonymized() -> None:
    """A terminal breaks lines at its width: what is read of such a message is not the whole of it."""
    whole = (
        b"n1:7:7 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 4 cudaDev 0 busId 1000 commId 0x7 - Init START"
    )
    log = whole + b"\nn1:7:7 [0] NCCL INFO comm 0x555b719c3f30 rank 3 nranks 4 \ncudaDev 3 busId 90 - Init COMPLETE\n"
    assert b"comm 0x555b719c3f30 rank 3 nranks 4 \n" in anonymize_log(log)[1][0]


def test_what_goes_and_what_stays() -> None:
    wrong: list[tuple[str, str]] = []
    for text, *wanted in LINES["shapes"]:
        if (got := Scrubber(Names()).text(text)) != [text, *wanted][-1]:
            wrong.append((text, got))
    mails = ([f"{front}jane.doe@mail.zenithcorp.com", f"{front}user-1@mail.invalid"] for front in MAIL)
    for text, *wanted in (*LINES["lines"], *mails):
        got = anonymize_log(f"{HEAD}{text}\n".encode())[1][0].decode().partition("\n")[2][:-1]
        if got != [text.replace("gpu-a17", "host-1"), *wanted][-1]:
            wrong.append((text, got))
    for case in LINES["logs"]:
        got = anonymize_log(case["before"].encode("latin-1"))[1][0].decode("latin-1")
        wrong += [] if got == case["after"] else [(case["before"], got)]
    assert not wrong


HOSTS = ["gpu-a17", "gpu-a18", "gpu-a19", "gpu-b02", "gpu-b03"]


def test_no_host_is_left_in_a_list() -> None:
    wrong: list[tuple[int, str]] = []
    for known in (["other-x9"], HOSTS[:1], HOSTS):
        heads = "".join(f"{name}:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" for name in known)
        for line in LINES["lists"]:
            is_stated = known != ["other-x9"] or not re.match(r"4711|srun: error|NODE", line)
            made = anonymize_log(f"{heads}{line}\n".encode())[1][0].decode()
            if is_stated and re.search(r"(?i)gpu-|[ab]?\b(?:17|18|19|02|03)\b(?!:)", made):
                wrong.append((len(known), made))
    assert not wrong


def test_a_host_list_stands_for_its_hosts() -> None:
    lists = {
        "gpu-a[17-18]": "gpu-a17 gpu-a18",
        "gpu-[a1-a3,b2]": "gpu-a1 gpu-a2 gpu-a3 gpu-b2",
        "n[008-010]": "n008 n009 n010",
        "r[1-2]n[1,3]-ib": "r1n1-ib r1n3-ib r2n1-ib r2n3-ib",
        "a1:8,b[1-2],c3": "a1 b1 b2 c3",
        "n[1-9/4]": "n1 n5 n9",
        "n[1-100000000]": "n[1-100000000]",
        "n[1-999999999999999999999999]": "n[1-999999999999999999999999]",
    }
    assert {text: " ".join(split_hosts(text)) for text in lists} == lists


# --- any input, in time that grows with it


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    assert b"gpu-a17" not in anonymize_log(HEAD.encode() + data)[1][0]


@pytest.mark.slow
def test_lines_of_any_length_are_learned_and_rewritten() -> None:
    """With a pattern whose time is quadratic in the line, these would take many minutes."""
    for piece in ("a-", "+", "a/", "/a", "1:", "a@", "a.", "[", '"', "token", "://", "\\", "10.1."):
        assert Scrubber(Names()).text(piece * 50_000)
    for piece in (
        *("a-", "a/", "/a", "a@", "a.", "a=", "a:b ", "' : '", "--a ", "srun -A ", "image a/"),
        *("a[1", "a[1-", "a[1]", "nodes=a,"),
    ):
        Learned().learn((piece * 50_000).encode())


@pytest.mark.slow
def test_settling_is_work_that_is_linear() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"

    def settle(names: Iterable[tuple[int, str]]) -> int:
        log = "".join(f"SLURM_NODELIST=q{name}zk[1-4] host=gq{name}-{number}\n" for number, name in names)
        return calls(lambda: anonymize_log((HEAD + log).encode()))

    few, many = (
        settle((number, "".join(letters[number // 26**place % 26] for place in range(4))) for number in range(count))
        for count in (500, 2_000)
    )
    assert many < 5 * few
