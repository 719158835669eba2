"""What launchers and collectors put around lines is taken off, in any mixture, and tells what it knows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from envelope_samples import ENVELOPES, PREFIXES, WHOLE, fill_sample, samples_of, wrapper
from few_examples import FEW, every
from hypothesis import given
from hypothesis import strategies as st
from same_jobs import capture, describe_job, read_plain

import nccl_inspect
from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import Envelope, readers
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.model.job import Job
from nccl_inspect.scanning.found import Counts
from nccl_inspect.scanning.scanner import Scanner

LINE = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
CUDA = b"vm:11:11 [0] NCCL INFO cudaDriverVersion 13000"
CAPTURES = ("v2.28.9-libfabric-2node", "peer-killed", "timestamps", "rank-missing-hang")
KINDS = (*PREFIXES, *WHOLE)
TIME = "2026-11-20T23:13:07.071868123Z"


def summary(data: bytes) -> dict[str, Any]:
    return describe_job(nccl_inspect.read(data))


def only_job(told: dict[str, Any]) -> dict[str, Any]:
    """Return a document without what is of the lines: those around a log are some too."""
    return {key: told[key] for key in ("paths", "findings", "communicators", "versions")}


def origin_of(line: bytes) -> prefix.Origin:
    found: list[prefix.Origin] = []
    Scanner(engine.load_grammar()).scan(
        line.split(b"\n"), Counts(), lambda _number, origin, _text: found.append(origin)
    )
    assert found, line
    return found[0]


def show_lines(job: Job) -> tuple[object, ...]:
    source = job.sources[0]
    return [(one.src, one.dst, one.detail) for one in job.paths], source.nccl_lines, source.damaged_lines


ONE_PATH = [(0, 1, "P2P/CUMEM")]


# --- each envelope


def test_an_envelope_takes_off_its_samples_and_states_what_they_say() -> None:
    wrong = [f"{name}: {what}" for name, one in ENVELOPES.items() for what in faults(one)]
    assert not wrong, "\n".join(wrong)


def faults(envelope: Envelope) -> Iterator[str]:
    if not samples_of(envelope):
        yield "it needs samples"
    for sample, stated in samples_of(envelope).items():
        if sample[0] not in envelope.first:
            yield f"the first bytes lack that of {sample!r}"
        found: list[object]
        if not envelope.reader:
            line, found = sample + LINE, [envelopes.peel(sample + LINE)]
        else:
            line = fill_sample(sample, LINE)
            found = [(inner.text.rstrip(b"\n"), inner.stated) for inner in envelope.read(line)]
        opening = envelope.pattern
        if not opening.match(line) or opening.match(LINE) or found != [(LINE, stated)]:
            yield f"{sample!r} gives {found}"
        origin = origin_of(line) if not stated.partial else None
        known = origin and (*origin.process[:2], origin.tid, origin.device, origin.time, origin.label, origin.rank)
        if origin and known != ("vm", 11, 12, 0, *stated[:3]):
            yield f"of {sample!r} the origin keeps {known}"


NAMES = [path for path in readers.MESSAGES if "." not in path]
BESIDE = ("logger.py:88", "12", "stdout", "m", " ", "worker 3: started", "NCCL")
"""Texts that programs put beside the line, under a name that elsewhere is that of the line."""


@given(
    st.lists(st.sampled_from(NAMES), min_size=2, max_size=2, unique=True),
    st.sampled_from(BESIDE),
    st.booleans(),
    st.booleans(),
)
def test_the_text_of_nccl_is_the_line_wherever_it_stands(
    names: list[str], text: str, first: bool, is_logfmt: bool
) -> None:
    """A WARN that is taken for the text beside it would be a failure that nobody sees."""
    if is_logfmt:
        names = ["msg", "line"] if "msg" in names else ["log", "message"]
    record = dict(zip(names, (LINE.decode(), text) if first else (text, LINE.decode()), strict=True))
    if is_logfmt:
        line = " ".join(["level=warn", *(f"{name}={json.dumps(value)}" for name, value in record.items())]).encode()
        inners = readers.read_logfmt(line)
    else:
        inners = readers.read_json(json.dumps({"ts": TIME, "level": "warn", **record}).encode())
    assert [inner.text for inner in inners] == [LINE]


def test_without_nccl_the_line_is_what_a_program_says_and_not_where() -> None:
    for record, said in (
        ({"msg": "[rank3]: Watchdog caught collective operation timeout", "line": "logger.py:88"}, "msg"),
        ({"line": "12", "message": "Traceback (most recent call last):"}, "message"),
        ({"message": " ", "log": "Traceback (most recent call last):"}, "log"),
        ({"message": " ", "log": "\t"}, "message"),
    ):
        assert [inner.text for inner in readers.read_json(json.dumps(record).encode())] == [record[said].encode()]


@every(13)
def test_a_line_in_parts_is_put_together(step: int) -> None:
    wrong = []
    for name, envelope in ENVELOPES.items():
        parts = [(sample, stated) for sample, stated in samples_of(envelope).items() if stated.partial]
        for sample, stated in parts:
            end = next(last for last, of in samples_of(envelope).items() if of[1:] == (*stated[1:4], False))
            for cut in range(1, len(LINE), step):
                both = ((sample, LINE[:cut]), (end, LINE[cut:]))
                put = [one + text if not envelope.reader else fill_sample(one, text) for one, text in both]
                if show_lines(nccl_inspect.read(b"\n".join([*put, b""])))[0] != ONE_PATH:
                    wrong.append(f"{name}: cut at {cut}")
    assert not wrong, "\n".join(wrong)


def part(text: str, kind: str, last: bool, stream: str = "stdout") -> str:
    """Return a part of a line, as collectors pass it on."""
    flag, time = "F" if last else "P", TIME
    raw = f"{time} {stream} {flag} {text}"
    records: dict[str, dict[str, str]] = {
        "JSON": {"log": raw},
        "tagged": {"log": text, "stream": stream, "logtag": flag, "time": time},
        "message": {"message": text, "stream": stream, "logtag": flag, "@timestamp": time},
        "docker": {"log": text + "\n" * last, "stream": stream, "time": time},
    }
    return json.dumps(records[kind]) if kind in records else raw


@pytest.mark.parametrize("step", [17, pytest.param(2, marks=pytest.mark.slow)])
def test_parts_of_a_line_are_joined_stream_by_stream(step: int) -> None:
    line, other = LINE.decode(), CUDA.decode()
    for kind in ("raw", "JSON", "tagged", "message"):
        for cut in range(1, len(line), step):
            parts = [part(line[:cut], kind, False), part(other, kind, True, "stderr"), part(line[cut:], kind, True)]
            for data in ("\n".join(parts), *([f"[{','.join(parts)}]"] if kind != "raw" else [])):
                assert show_lines(nccl_inspect.read(data.encode() + b"\n")) == (ONE_PATH, 2, 0), (kind, cut)


def test_docker_cuts_a_line_at_16_kilobytes() -> None:
    bars = "  5%|#| 1/20\r" * 2000
    for cut in range(1, len(LINE), 7):
        text = bars[: (1 << 14) - cut - 1] + "\r" + LINE.decode()
        pieces = ((CUDA.decode(), True), (text[: 1 << 14], False), (text[1 << 14 :], True))
        records = [part(piece, "docker", last) for piece, last in pieces]
        assert show_lines(nccl_inspect.read("\n".join(records).encode() + b"\n"))[0] == ONE_PATH, cut


def test_nested_envelopes_join_what_they_know_and_a_line_keeps_its_own_time() -> None:
    origin = origin_of(b"2026-11-20T23:13:07Z [2026-11-20 01:02:03] vm:1:2 [3] init.cc:9 NCCL WARN x")
    assert (origin.time, origin.location) == ("2026-11-20 01:02:03", "init.cc:9")
    line = b'{"log":"[rank3]:%s","stream":"stdout","time":"T"}' % LINE
    origin = origin_of(b"[pod/llama-0/trainer] " + line)
    assert (origin.label, origin.rank, origin.time) == ("pod/llama-0/trainer", 3, "T")
    origin = origin_of(b"(EngineCore_0 pid=123) (Worker_TP0 pid=124) " + LINE)
    assert origin.label == "EngineCore_0 pid=123 Worker_TP0 pid=124"
    assert origin.head == b"(EngineCore_0 pid=123) (Worker_TP0 pid=124) vm:11:12 [0]"


# --- whole logs

LEADS = Path(__file__).with_name("leads.txt").read_text("utf-8")
"""What launchers that nobody knows put in front; it ends before the bar."""


@every(9)
def test_a_wrapped_log_gives_the_same_job(step: int) -> None:
    wrong = []
    for number, name in enumerate(KINDS[::step]):
        sample = CAPTURES[number % len(CAPTURES)]
        if summary(b"\n".join(map(wrapper(name), capture(sample)))) != read_plain(sample):
            wrong.append(f"{sample} in {name}")
    for number, lead in enumerate(line[:-1].encode() for line in LEADS.splitlines()[::step]):
        sample = CAPTURES[number % len(CAPTURES)]
        if summary(b"\n".join(lead + line for line in capture(sample))) != read_plain(sample):
            wrong.append(f"{sample} behind {lead!r}")
    for end in (b"\\n", b"\\r\\n", b"\\n ", b"\\n\x1b[0m", b"\\n\r"):  # line ends in letters
        if summary(b"".join(line + end + b"\n" for line in capture(CAPTURES[0]))) != read_plain(CAPTURES[0]):
            wrong.append(f"{CAPTURES[0]} before {end!r}")
    assert not wrong, "\n".join(wrong)


@FEW
@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from(CAPTURES))
def test_a_log_in_two_envelopes_gives_the_same_job(outer: str, inner: str, sample: str) -> None:
    around, within = wrapper(outer), wrapper(inner)
    assert summary(b"\n".join(around(within(line)) for line in capture(sample))) == read_plain(sample)


@FEW
@given(st.integers(0, 1000), st.sampled_from(CAPTURES))
def test_a_mixture_of_envelopes_in_one_log_gives_the_same_job(seed: int, sample: str) -> None:
    choose = random.Random(seed)
    assert summary(b"\n".join(wrapper(choose.choice(KINDS))(line) for line in capture(sample))) == read_plain(sample)


@every(3)
def test_logs_in_documents_and_pages_give_the_same_job(step: int) -> None:
    for sample in (CAPTURES[0], "peer-killed"):
        page = b"\n".join(capture(sample)).replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
        whole = summary(b"<html><body><pre>\n%b\n</pre></body></html>\n" % page)
        assert only_job(whole) == only_job(read_plain(sample))
    for sample in CAPTURES[::step]:
        lines = [line for line in capture(sample) if line]
        found = {"events": [{"timestamp": 1795216387071, "message": line.decode("utf-8")} for line in lines]}
        for indent in (4, None):
            assert only_job(summary(json.dumps(found, indent=indent).encode())) == only_job(summary(b"\n".join(lines)))
        numbers = [[*b"\x1b[0m" + line] if at % 3 else line.decode() for at, line in enumerate(capture(sample))]
        journal = [json.dumps({"_HOSTNAME": "n1", "MESSAGE": one}) for one in numbers]  # as what has an escape
        assert summary("\n".join(journal).encode()) == read_plain(sample)


def test_prose_around_lines_is_none_and_an_excerpt_no_whole_log() -> None:
    prose = b"# Hang\n\nWe set NCCL_DEBUG=INFO and found NCCL INFO lines, no NCCL WARN at all:\n\n```\n"
    log = b"\n".join(capture("peer-killed"))
    source, expected = (nccl_inspect.read(data).sources[0] for data in (prose + log + b"\n```\nWhy?\n", log))
    assert (source.nccl_lines, source.damaged_lines) == (expected.nccl_lines, 0)
    texts = "Using NCCL backend¦0: NCCL is used¦NCCL INFORMATION is here¦" + '{"message":"Using NCCL backend"}'
    for text in texts.split("¦"):
        assert show_lines(nccl_inspect.read(text.encode() + b"\n" + LINE)) == (ONE_PATH, 1, 0), text
    lines = capture(CAPTURES[0])[: len(capture(CAPTURES[0])) // 3]
    for lead in (b"> ", b"    ", b"```\n", b"   - "):
        job = nccl_inspect.read(b"My job is slow:\n\n" + b"\n".join(lead + line for line in lines) + b"\n")
        assert (job.verdict, job.ended_by) == ("unknown", []), lead


# --- single lines


def test_what_follows_a_message_is_taken_off_and_no_part_of_it() -> None:
    table = b"vm:11:12 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |"
    for lead in (b"", b"[pod/llama-0] ", b"| "):  # its end is no border
        assert not nccl_inspect.read(lead + table).unrecognised, lead
        assert not lead or not nccl_inspect.read(lead + table + b" |").unrecognised, lead
    bare = ((b"`", b"`"), (b"- `", b"`  "), (b"EVENTS\t1795216387071\t", b"\t1795216387071"))
    for before, behind in bare:
        job = nccl_inspect.read(before + b"NCCL version 2.21.5+cuda12.4" + behind + b"\n" + before + LINE + behind)
        assert (job.nccl_versions, show_lines(job)[0]) == (["2.21.5+cuda12.4"], ONE_PATH)


def test_a_torn_double_blank_stays_damaged_in_an_envelope() -> None:
    torn = LINE.replace(b"[0] NCCL", b"[0]  NCCL")
    for line in (torn, b"0: " + torn, b"[0]  NCCL INFO x 1", fill_sample(b'{"log":"LINE"}', torn)):
        source = nccl_inspect.read(line + b"\n" + LINE).sources[0]
        assert (source.typed_lines, source.damaged_lines) == (1, 1), line


def test_what_a_text_means_does_not_depend_on_who_asked_first() -> None:
    """A line in backticks, the same one torn, and one that only ends with a backtick."""
    line = LINE + b"`"
    wrapped, torn = b"- `" + line, b"9:13999 [0 NCCL INFO " + line.partition(b"INFO ")[2]
    for lines in ([wrapped, torn, line], [torn, line, wrapped], [line, torn, wrapped]):
        job = nccl_inspect.read(b"\n".join(lines))
        assert show_lines(job)[0] == ONE_PATH
        assert (job.sources[0].typed_lines, job.sources[0].damaged_lines) == (2, 1)  # as an excerpt also the last one


@given(
    st.lists(st.lists(st.sampled_from([b"x", b"\\n", b"\\", b"n", b" ", b"\r", b"\x1b[0m", b"\xc2\xa0"])), min_size=1)
)
def test_whether_a_line_is_cleaned_does_not_depend_on_those_around_it(made: list[list[bytes]]) -> None:
    lines = list(map(b"".join, made))
    block = b"\n".join(lines)
    found = envelopes.clean_lines(lines, block)
    assert list(found) == [one for line in lines for one in envelopes.clean_lines([line], line)]
    assert envelopes.needs_cleaning(block) or list(found) == lines


# --- lines without host or process

HEADS = "[0]¦::11:12 [0]¦host-01:XXXXXX:XXXXXX [0]¦<host>:<pid>:<tid> [0]¦***:11:12 [0]¦¦[REDACTED]:11:12 [0]"
MASKED = [head.encode() for head in f"{HEADS}¦{{host}}:11:12 [0]¦{{{{hostname}}}}:{{pid}}:{{tid}} [0]".split("¦")]


def mask_line(head: bytes, line: bytes) -> bytes:
    return (head + b" NCCL " + line.partition(b" NCCL ")[2]).lstrip()


@every(4)
def test_a_line_without_host_is_a_fragment(step: int) -> None:
    for head in MASKED[::step]:
        for lead in (b"", b"[rank3]: ", b"[pod/llama-0/trainer] "):
            line = lead + mask_line(head, LINE)
            origin, job = origin_of(line), nccl_inspect.read(line + b"\n")
            assert origin.host == ("host-01" if head.startswith(b"host") else None), line
            assert origin.pid == (11 if b":11:" in head else None), line
            assert origin.rank == (3 if b"rank3" in lead else None), line
            assert [(one.src, one.dst, one.detail, one.scope) for one in job.paths] == [(0, 1, "P2P/CUMEM", "intra")]
        for sample in CAPTURES:
            lines = [mask_line(head, line) if b" NCCL INFO " in line else line for line in capture(sample)]
            nccl_inspect.read(b"\n".join(lines)).to_dict()


def test_processes_are_told_apart_by_what_is_left_of_them() -> None:
    for host in (b"<node-A>", b"[node-A]", b"{node-A}"):
        origin = origin_of(LINE.replace(b"vm:", host + b":"))
        assert (origin.host, origin.pid) == ("node-A", 11)
    leads = (b"[rank0]:", b"[rank1]:", b"[default0]:", b"node-1:", b"")
    assert len({origin_of(lead + b" [0] NCCL INFO x" if lead else b"[0] NCCL INFO x").process for lead in leads}) == 5
    (path,) = nccl_inspect.read(b"[0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n").paths
    assert (path.scope, path.src_host) == ("unknown", None), "nothing is guessed"
    job = nccl_inspect.read(LINE + b"\n[3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM\n")
    assert [host.name for host in job.hosts] == ["vm"], "where hosts are named, a line without one is no other process"
    lines = [line for line in capture("peer-killed") if b" NCCL INFO " in line]
    lines += [lines[1].partition(b"-node-0-")[2], lines[1][3:]]
    hosts = nccl_inspect.read(b"\n".join(lines) + b"\n").hosts
    assert [host.name for host in hosts] == ["llama-3-8b-node-0-0", "llama-3-8b-node-0-1"], "nor one that was cut"
