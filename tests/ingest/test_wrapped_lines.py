"""Lines that are cut, prefixed or stripped of their host on the way: put together, or told as what they are."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import sample_data
from envelope_samples import filled
from hypothesis import given
from hypothesis import strategies as st
from wrapped_logs import CAPTURES, LINE, capture, first_origin, plain, summary

import nccl_inspect
from nccl_inspect.ingest import envelopes


def test_parts_of_a_line_are_joined_stream_by_stream() -> None:
    time = b"2026-11-20T23:13:07.071868123Z "
    for cut in range(1, len(LINE)):
        parts = [
            time + b"stdout P " + LINE[:cut],
            time + b"stderr F vm:11:11 [0] NCCL INFO cudaDriverVersion 13000",
            time + b"stdout F " + LINE[cut:],
        ]
        job = nccl_inspect.read(b"\n".join(parts) + b"\n")
        assert [(path.src, path.dst, path.detail) for path in job.paths] == [(0, 1, "P2P/CUMEM")], cut
        assert [host.name for host in job.hosts] == ["vm"]
        assert (job.sources[0].nccl_lines, job.sources[0].damaged_lines) == (2, 0)


TIME = "2026-11-20T23:13:07.071868123Z"


def part(text: str, kind: str, last: bool, stream: str = "stdout") -> str:
    """A part of a line, as collectors pass it on in JSON."""
    flag = "F" if last else "P"
    records: dict[str, dict[str, str]] = {
        "raw CRI": {"log": f"{TIME} {stream} {flag} {text}"},
        "tagged": {"log": text, "stream": stream, "logtag": flag, "time": TIME},
        "message": {"message": text, "stream": stream, "logtag": flag, "@timestamp": TIME},
        "docker": {"log": text + "\n" * last, "stream": stream, "time": TIME},
    }
    return json.dumps(records[kind])


@pytest.mark.parametrize("document", [False, True])
@pytest.mark.parametrize("kind", ["raw CRI", "tagged", "message"])
def test_parts_of_a_line_in_json_are_joined(kind: str, document: bool) -> None:
    line = LINE.decode()
    for cut in range(1, len(line), 3):
        records = [
            part(line[:cut], kind, last=False),
            part("vm:11:11 [0] NCCL INFO cudaDriverVersion 13000", kind, last=True, stream="stderr"),
            part(line[cut:], kind, last=True),
        ]
        data = f"[{','.join(records)}]" if document else "\n".join(records)
        job = nccl_inspect.read(data.encode() + b"\n")
        assert [(path.src, path.dst, path.detail) for path in job.paths] == [(0, 1, "P2P/CUMEM")], cut
        assert (job.sources[0].nccl_lines, job.sources[0].damaged_lines) == (2, 0), cut


def test_docker_cuts_a_line_at_16_kilobytes() -> None:
    bars = "  5%|#| 1/20\r" * 2000
    for cut in range(1, len(LINE), 7):
        text = bars[: (1 << 14) - cut - 1] + "\r" + LINE.decode()
        records = [
            part("vm:11:11 [0] NCCL INFO cudaDriverVersion 13000", "docker", last=True),
            part(text[: 1 << 14], "docker", last=False),
            part(text[1 << 14 :], "docker", last=True),
        ]
        job = nccl_inspect.read("\n".join(records).encode() + b"\n")
        assert [(path.src, path.dst, path.detail) for path in job.paths] == [(0, 1, "P2P/CUMEM")], cut


@pytest.mark.parametrize("sample", CAPTURES)
@pytest.mark.parametrize(
    "lead",
    [
        "2026-11-20 23:13:07,071 INFO train.py:12 ",
        "2026-11-20 23:13:07.071 | INFO     | __main__:main:12 - ",
        "[2026-11-20 23:13:07,071][__main__][INFO] - ",
        "11/20/2026 23:13:07 - INFO - __main__ - ",
        "I1120 23:13:07.071868    1234 log.go:12] ",
        "INFO:root:",
        "> ",
        "> > ",
        "    ",
        "\t",
        "1) ",
        "      7 ",
        "[trainer0|0]:",
        "[node-1:0] ",
        "[replica=0 job=1] ",
        "2026-11-20T23:13:07.071868+00:00 app[worker.1]: ",
        "LAUNCH INFO 2026-11-20 23:13:07,071 ",
        "rank0[1234][MainThread]: INFO: ",
        "2026-11-20T23:13:07.071868Z [10.0.0.4] ",
        "logs/with blanks/job.log:7:",
    ],
)
def test_what_an_unknown_launcher_puts_in_front_is_taken_off_all_lines(lead: str, sample: str) -> None:
    assert summary(b"\n".join(lead.encode() + line for line in capture(sample))) == plain(sample)


def test_prose_about_nccl_is_no_line_of_it() -> None:
    prose = b"# Hang\n\nWe set NCCL_DEBUG=INFO and found NCCL INFO lines, no NCCL WARN at all:\n\n```\n"
    source = nccl_inspect.read(prose + b"\n".join(capture("peer-killed")) + b"\n```\nWhy?\n").sources[0]
    expected = nccl_inspect.read(b"\n".join(capture("peer-killed"))).sources[0]
    assert (source.nccl_lines, source.damaged_lines) == (expected.nccl_lines, 0)


@pytest.mark.parametrize("lead", ["> ", "    ", "```\n", "   - "])
def test_an_excerpt_is_not_taken_for_a_whole_log(lead: str) -> None:
    lines = capture("v2.28.9-libfabric-2node")
    quoted = b"\n".join(lead.encode() + line for line in lines[: len(lines) // 3])
    job = nccl_inspect.read(b"My job is slow:\n\n" + quoted + b"\n")
    assert job.verdict == "unknown"
    assert not job.ended_by


def test_a_page_of_html_is_a_log() -> None:
    page = b"<html><body><pre>\n%b\n</pre></body></html>\n"
    text = b"\n".join(capture("v2.28.9-libfabric-2node")).replace(b"&", b"&amp;").replace(b"<", b"&lt;")
    assert summary(page % text.replace(b">", b"&gt;"))[:4] == plain("v2.28.9-libfabric-2node")[:4]


@given(
    st.lists(st.lists(st.sampled_from([b"x", b"\\n", b"\\", b"n", b" ", b"\r", b"\x1b[0m", b"\xc2\xa0"])), min_size=1)
)
def test_whether_a_line_is_cleaned_does_not_depend_on_those_around_it(made: list[list[bytes]]) -> None:
    lines = list(map(b"".join, made))
    block = b"\n".join(lines)
    found = envelopes.cleaned(lines, block)
    assert list(found) == [one for line in lines for one in envelopes.cleaned([line], line)]
    assert envelopes.needs_cleaning(block) or list(found) == lines


@pytest.mark.parametrize("end", [b"\\n", b"\\r\\n", b"\\n ", b"\\n\x1b[0m", b"\\n\r"])
def test_line_ends_in_letters_are_no_part_of_messages(end: bytes) -> None:
    log = b"".join(line + end + b"\n" for line in capture("v2.28.9-libfabric-2node"))
    assert summary(log) == plain("v2.28.9-libfabric-2node")
    assert summary(log.rstrip(b"\n")) == plain("v2.28.9-libfabric-2node")


def test_a_host_that_lost_its_beginning_is_no_other_host() -> None:
    lines = [line for line in capture("peer-killed") if b" NCCL INFO " in line]
    cut = [lines[1].partition(b"-node-0-")[2], lines[1][3:]]
    job = nccl_inspect.read(b"\n".join([*lines, *cut]) + b"\n")
    assert [host.name for host in job.hosts] == ["llama-3-8b-node-0-0", "llama-3-8b-node-0-1"]


@pytest.mark.parametrize("kind", ["raw", "json", "kubectl"])
def test_how_a_job_ended_is_seen_behind_what_a_collector_puts_in_front(kind: str) -> None:
    """``Killed`` counts only if it is all that a line says."""
    wrap: Callable[[bytes], bytes] = {
        "raw": bytes,
        "json": lambda line: json.dumps({"stream": "x" * 500, "log": line.decode(), "time": TIME}).encode(),
        "kubectl": lambda line: b"[pod/llama-0/trainer] " + TIME.encode() + b" " + line,
    }[kind]
    lines = [line for line in capture("rank-missing-hang") if b"launcher:" not in line]
    job = nccl_inspect.read(b"\n".join(wrap(line) for line in [*lines, b"Killed"]) + b"\n")
    assert [line.text.rpartition(" ")[2] for line in job.ended_by] == ["Killed"]
    assert job.verdict == "failed"


@pytest.mark.parametrize(
    "line",
    [
        b"\x1b[36m(RayWorkerWrapper pid=123)\x1b[0m " + LINE,
        LINE.replace(b"NCCL INFO", b"\x1b[01;31m\x1b[KNCCL INFO\x1b[m\x1b[K"),
        b"\x1b[32m" + LINE + b"\x1b[0m",
        b"(RayWorkerWrapper pid=123, ip=10.0.0.1) " + LINE + b" [repeated 8x across cluster]",
        b"(W pid=1) " + LINE + b" [repeated 3x across cluster] (Ray deduplicates logs by default.)",
        b"\xe2\x94\x82 " + LINE + b"          \xe2\x94\x82",
        b"| 2026-11-20 23:13:07.071 | " + LINE + b"     |",
        b"  0%|          | 0/20\r  5%|#| 1/20\r" + LINE,
        b"  5%|#| 1/20 [00:01<00:19]\r" + LINE + b"\r",
        LINE + b"\r",
        b"node-1: node-1: " + LINE,
        b"\x1b_bk;t=1795216387071\x07" + LINE,
        b"EVENTS\t1795216387071\t" + LINE + b"\t1795216387071",
    ],
)
def test_colours_bars_and_what_follows_a_message_are_taken_off(line: bytes) -> None:
    job = nccl_inspect.read(line + b"\n")
    assert [(path.src, path.dst, path.detail) for path in job.paths] == [(0, 1, "P2P/CUMEM")]
    assert [host.name for host in job.hosts] == ["vm"]
    assert job.sources[0].typed_lines == 1


@pytest.mark.parametrize(
    "lead", [b"some launcher> ", b"x|", b"[q]", b"odd thing:", b"##[group]", b"W1120 23:13:07 [7] "]
)
def test_an_unknown_lead_does_not_hide_the_line(lead: bytes) -> None:
    origin = first_origin(lead + LINE)
    assert origin is not None
    assert origin.process[:2] == ("vm", 11)


@pytest.mark.parametrize(
    "line",
    [
        b"Using NCCL backend",
        b'{"message":"Using NCCL backend"}',
        b"0: NCCL is used",
        b"NCCL INFORMATION is here",
    ],
)
def test_text_that_only_mentions_nccl_is_no_line(line: bytes) -> None:
    source = nccl_inspect.read(line + b"\n" + LINE).sources[0]
    assert (source.nccl_lines, source.damaged_lines) == (1, 0)


@pytest.mark.parametrize("end", [b"", b" |"])
def test_a_table_of_nccl_keeps_its_end_behind_a_prefix(end: bytes) -> None:
    line = b"vm:11:12 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |"
    told = [nccl_inspect.read(lead + line + end).unrecognised for lead in (b"", b"[pod/llama-0] ", b"| ")]
    assert told == ([[], [], []] if not end else [told[0], [], []])


def test_a_torn_double_blank_stays_damaged_in_an_envelope() -> None:
    torn = LINE.replace(b"[0] NCCL", b"[0]  NCCL")
    for line in (torn, b"0: " + torn, b"[0]  NCCL INFO x 1", filled(b'{"log":"LINE"}', torn)):
        source = nccl_inspect.read(line + b"\n" + LINE).sources[0]
        assert (source.typed_lines, source.damaged_lines) == (1, 1), line


@pytest.mark.parametrize("sample", CAPTURES)
def test_journald_writes_what_has_an_escape_as_numbers(sample: str) -> None:
    lines = [
        json.dumps({"_HOSTNAME": "n1", "MESSAGE": [*b"\x1b[0m" + line] if at % 3 else line.decode("utf-8", "replace")})
        for at, line in enumerate(capture(sample))
    ]
    assert summary("\n".join(lines).encode()) == plain(sample)


@pytest.mark.parametrize("blanks", [b"", b"    "])
def test_fields_of_the_journal_are_lines_of_their_own(blanks: bytes) -> None:
    fields = b"%s_HOSTNAME=n1\n%sMESSAGE=%s\n%sPRIORITY=6\n\n" % (blanks, blanks, LINE, blanks)
    (host,) = nccl_inspect.read(fields).hosts
    assert host.name == "vm"


OUT_OF_MEMORY = b"[rank1]: torch.AcceleratorError: CUDA error: out of memory"


@pytest.mark.parametrize(
    ("lead", "end"),
    [
        (b"2026-11-20T23:13:07.071868789Z ", b""),
        (b"2026-11-20T23:13:07.071868123Z stdout F ", b""),
        (b"llama-node-0-0 trainer ", b""),
        (b"2026-11-20T23:13:07.071000+00:00 train/main/4f1c ", b""),
        (b"(RayWorkerWrapper pid=123, ip=10.0.0.1) ", b""),
        (b"EVENTS\t1795216387071\t", b"\t1795216387071"),
    ],
)
def test_the_rank_of_an_exception_is_read_behind_a_prefix(lead: bytes, end: bytes) -> None:
    (data,) = sample_data.contents("peer-killed")
    lines = [
        *data.splitlines()[:20],
        OUT_OF_MEMORY,
        b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    ]
    job = nccl_inspect.read(b"\n".join(lead + line + end for line in lines))
    (finding,) = [one for one in job.findings if one.rule == "gpu-out-of-memory"]
    assert finding.ranks == [1]
    assert job.first_failure is not None
    assert job.first_failure.ranks == [1]


# --- lines without host or process


MASKED = [
    *(b"[0]", b"::11:12 [0]", b"host-01:XXXXXX:XXXXXX [0]", b"<host>:<pid>:<tid> [0]", b"***:11:12 [0]", b"NCCL"),
    *(b"[REDACTED]:11:12 [0]", b"{host}:11:12 [0]", b"{{hostname}}:{pid}:{tid} [0]"),
]


@pytest.mark.parametrize("host", [b"<node-A>", b"[node-A]", b"{node-A}"])
def test_hosts_with_other_names_are_told_from_each_other(host: bytes) -> None:
    origin = first_origin(LINE.replace(b"vm:", host + b":"))
    assert origin is not None
    assert (origin.host, origin.pid) == ("node-A", 11)


@pytest.mark.parametrize(
    ("before", "behind"),
    [(b"`", b"`"), (b"- `", b"`  "), (b"EVENTS\t1795216387071\t", b"\t1795216387071")],
)
def test_what_stands_behind_a_bare_line_is_taken_off(before: bytes, behind: bytes) -> None:
    job = nccl_inspect.read(before + b"NCCL version 2.21.5+cuda12.4" + behind + b"\n" + before + LINE + behind)
    assert job.nccl_versions == ["2.21.5+cuda12.4"]
    assert job.paths[0].detail == "P2P/CUMEM"


def masked(head: bytes, line: bytes) -> bytes:
    message = line.partition(b" NCCL ")[2]
    return b"NCCL " + message if head == b"NCCL" else head + b" NCCL " + message


@pytest.mark.parametrize("head", MASKED)
@pytest.mark.parametrize("lead", [b"", b"[rank3]: ", b"[pod/llama-0/trainer] "])
def test_a_line_without_host_is_a_fragment(head: bytes, lead: bytes) -> None:
    line = lead + masked(head, LINE)
    origin = first_origin(line)
    assert origin is not None
    assert origin.host == ("host-01" if head.startswith(b"host") else None)
    assert origin.pid == (11 if b":11:" in head else None)
    assert origin.rank == (3 if b"rank3" in lead else None)
    job = nccl_inspect.read(line + b"\n")
    assert [(path.src, path.dst, path.detail, path.scope) for path in job.paths] == [(0, 1, "P2P/CUMEM", "intra")]
    job.to_dict()


def test_labels_keep_masked_processes_apart() -> None:
    lines = [b"%s [0] NCCL INFO x" % lead for lead in (b"[rank0]:", b"[rank1]:", b"[default0]:", b"node-1:", b"")]
    origins = [first_origin(line.lstrip()) for line in lines]
    assert len({origin.process for origin in origins if origin}) == len(lines)


def test_the_host_of_a_masked_network_path_is_not_guessed() -> None:
    job = nccl_inspect.read(b"[0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n")
    (path,) = job.paths
    assert (path.scope, path.src_host) == ("unknown", None)


@pytest.mark.parametrize("sample", CAPTURES)
@pytest.mark.parametrize("head", MASKED)
def test_a_masked_log_does_not_break_the_model(sample: str, head: bytes) -> None:
    lines = [masked(head, line) if b" NCCL INFO " in line else line for line in capture(sample)]
    nccl_inspect.read(b"\n".join(lines)).to_dict()


def test_where_hosts_are_named_a_line_without_one_is_not_taken_for_another_process() -> None:
    job = nccl_inspect.read(LINE + b"\n[3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM\n")
    assert [host.name for host in job.hosts] == ["vm"]
