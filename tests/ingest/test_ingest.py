"""From bytes to lines and from lines to prefixes: files, launchers, damage."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import pytest
import sample_data
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.util.text import decode, encode, printable

CHANNEL = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
POD = b"[pod/llama-3-8b-node-0-0/trainer] "
TIME = b"2026-11-20T23:13:07.071868123Z "


def origin_of(line: bytes) -> prefix.Origin:
    """The origin of a line that is sound."""
    found = prefix.split(line)
    assert found is not None
    origin = prefix.parse(found[0])
    assert origin is not None
    return origin


def lines_of(data: bytes) -> list[bytes]:
    (source,) = blocks.find(data)
    return [line for block in blocks.blocks(source) for line in block]


# --- prefixes


def test_an_info_line_names_host_process_thread_and_device() -> None:
    origin = origin_of(b"llama-3-8b-node-0-0:5179:5180 [7] NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>")
    assert (origin.process[:2], origin.tid, origin.device) == (("llama-3-8b-node-0-0", 5179), 5180, 7)
    assert (origin.time, origin.location, origin.label) == (None, None, None)


@pytest.mark.parametrize(
    ("line", "location"),
    [
        (b"vm:1:2 [3] misc/socket.cc:484 NCCL WARN socketStartConnect", "misc/socket.cc:484"),
        (b"vm:1:2 [3] /build/nccl/src/init.cc:1 NCCL WARN x", "/build/nccl/src/init.cc:1"),
        (b"vm:1:2 [3] init.cc:9 (ncclInit) NCCL WARN x", "init.cc:9 (ncclInit)"),
        (b"vm:1:2 [3] nccl_net_ofi_init:82 NCCL WARN NET/OFI x", "nccl_net_ofi_init:82"),
        (
            b"vm:1:2 [0] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259 NCCL WARN NET/OFI x",
            "int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259",
        ),
        (
            b"vm:1:2 [0] virtual int nccl_net_ofi_rdma_device_t::release(bool):77 NCCL WARN NET/OFI x",
            "virtual int nccl_net_ofi_rdma_device_t::release(bool):77",
        ),
    ],
)
def test_a_warning_has_a_location_whatever_a_plugin_passes_for_it(line: bytes, location: str) -> None:
    origin = origin_of(line)
    assert origin.location == location
    assert (origin.process[:2], origin.tid) == (("vm", 1), 2)


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        (b"[2026-11-20 23:23:48] ", "2026-11-20 23:23:48"),
        (b"[2026-11-20 23:13:07.071868] ", "2026-11-20 23:13:07.071868"),
        (b"1795216390 ", "1795216390"),
        (b"1795216390.071868 ", "1795216390.071868"),
        (b"", None),
    ],
)
def test_nccl_own_time_is_kept(time: bytes, wanted: str | None) -> None:
    assert origin_of(time + b"vm:1:2 [3] NCCL INFO x").time == wanted
    assert origin_of(time + b"vm:1:2 [3] init.cc:9 NCCL WARN x").time == wanted


def test_a_call_line_has_no_device() -> None:
    origin = origin_of(b"vm:1:2 NCCL CALL ncclGroupStart()")
    assert (origin.process[:2], origin.tid, origin.device) == (("vm", 1), 2, None)


def test_a_device_may_be_negative() -> None:
    assert origin_of(b"vm:1:2 [-1] NCCL INFO x").device == -1


@pytest.mark.parametrize(
    ("front", "label", "time"),
    [
        (POD, "pod/llama-3-8b-node-0-0/trainer", None),
        (TIME, None, "2026-11-20T23:13:07.071868123Z"),
        (POD + TIME, "pod/llama-3-8b-node-0-0/trainer", "2026-11-20T23:13:07.071868123Z"),
    ],
    ids=["prefix", "timestamps", "both"],
)
def test_what_kubectl_puts_in_front_is_taken_off(front: bytes, label: str | None, time: str | None) -> None:
    origin = origin_of(front + b"vm:1:2 [3] NCCL INFO x")
    assert (origin.process[:2], origin.label, origin.time) == (("vm", 1), label, time)
    job = nccl_inspect.read(front + CHANNEL)
    assert job.paths.between(0, 1).detail == "P2P/CUMEM"
    assert [host.name for host in job.hosts] == ["vm"]


@pytest.mark.parametrize(
    "front", [b"[1,0]<stdout>:", b"0: ", b"(RayWorker pid=4711) ", b"[rank3]:", b"worker-0 | ", b"Nov 20 23:13:07 "]
)
def test_what_an_unknown_launcher_puts_in_front_does_not_hide_the_host(front: bytes) -> None:
    assert origin_of(front + b"vm:1:2 [3] NCCL INFO x").process[:2] == ("vm", 1)


# --- damage


@pytest.mark.parametrize(
    "line",
    [
        b"vm:5597:5710 [2]  NCCL INFO Channel 21/0 : 3[3] -> 4[4] via P2P/CUMEM",
        b"vm:5596:5677 [1] Nvm:5598:5598 [3] NCCL INFO cudaDriverVersion 13000",
        b"vm:5598:5678 [3]vm:5599:5599 [4] NCCL INFO cudaDriverVersion 13000",
        b"vm:5598:56vm:5599:5599 [4] NCCL INFO cudaDriverVersion 13000",
        b"vm:1:1 [0] vm:2:2 [1] misc/socket.cc:40 NCCL WARN x",
        b"vm:5983:6067 [4] NCCL INFO ncclCommSplit comm 0x5 parent 0x55fbe88vm:5985:5985 [6] NCCL INFO x 1",
        b"vm:5983:6067 [4] NCCL INFO Channel 21/0 : 3[3] vm:5985:5985 [6]",
    ],
    ids=[
        "double-blank",
        "headless",
        "glued-heads",
        "cut-thread",
        "glued-warning",
        "glued-text",
        "glued-end",
    ],
)
def test_a_torn_line_is_damaged_and_states_nothing(line: bytes) -> None:
    job = nccl_inspect.read(line + b"\n" + CHANNEL)
    assert job.sources[0].damaged_lines == 1
    assert job.sources[0].typed_lines == 1
    assert [(host.name, host.ranks) for host in job.hosts] == [("vm", [0, 1])]
    assert [(path.src, path.dst) for path in job.paths] == [(0, 1)]


def test_a_line_without_a_head_is_damaged_in_a_log_and_read_in_an_excerpt() -> None:
    torn = b" NCCL INFO Channel 21/0 : 3[3] -> 4[4] via P2P/CUMEM\n"
    start = b"ncclCommInitRank comm 0x1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 60 commId 0x2 - Init START\n"
    start = b"vm:11:11 [0] NCCL INFO " + start
    whole, excerpt = nccl_inspect.read(start + torn + CHANNEL), nccl_inspect.read(torn + CHANNEL)
    assert (whole.sources[0].damaged_lines, whole.sources[0].typed_lines, whole.excerpt) == (1, 2, False)
    assert (excerpt.sources[0].damaged_lines, excerpt.sources[0].typed_lines, excerpt.excerpt) == (0, 2, True)


@pytest.mark.xfail(strict=True, reason="torn lines are not rejoined yet: a tail glued to a host makes another host")
@pytest.mark.parametrize("tail", [b"0x55fbe88", b"via P2P/CUMEM 0x55fbe88", b"3"])
def test_the_tail_of_a_torn_line_before_a_prefix_makes_no_host(tail: bytes) -> None:
    glued = tail + b"vm:11:11 [0] NCCL INFO cudaDriverVersion 13000\n"
    assert [host.name for host in nccl_inspect.read(CHANNEL + glued).hosts] == ["vm"]


def test_a_sound_line_without_a_production_is_unrecognised_not_damaged() -> None:
    source = nccl_inspect.read(b"vm:1:1 [0] NCCL INFO a line that no release prints\n" + CHANNEL).sources[0]
    assert (source.nccl_lines, source.unrecognised_lines, source.damaged_lines) == (2, 1, 0)


def test_lines_of_others_are_counted_and_left_alone() -> None:
    source = nccl_inspect.read(b"{'loss': 2.1}\n\nuses NCCL backend\n" + CHANNEL).sources[0]
    assert (source.lines, source.nccl_lines, source.typed_lines) == (4, 1, 1)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_prefix(data: bytes) -> None:
    if found := prefix.split(data):
        head, rest = found
        assert head + b" NCCL " + rest == data
        prefix.parse(head)


@given(st.lists(st.sampled_from([b"vm:1:2 [3]", b" NCCL INFO ", b" NCCL WARN ", b"x.cc:3", b" ", b"\n", b"[", b":1"])))
def test_no_mixture_of_prefixes_breaks_reading(pieces: list[bytes]) -> None:
    job = nccl_inspect.read(b"".join(pieces) + b"\n" + CHANNEL)
    source = job.sources[0]
    assert source.typed_lines + source.unrecognised_lines + source.damaged_lines == source.nccl_lines


# --- bytes


@given(st.binary(max_size=200))
def test_bytes_that_are_not_utf8_survive_as_text(data: bytes) -> None:
    assert encode(decode(data)) == data


def test_undecodable_bytes_and_control_characters_are_shown_not_sent_to_the_terminal() -> None:
    assert printable(decode(b"peer <\xff\x1b[31m\x9c>")) == "peer <\\xff\\x1b[31m\\x9c>"
    assert printable("naïve") == "naïve"


def test_a_line_that_is_not_utf8_is_kept_in_events_byte_for_byte() -> None:
    line = b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to \xff\xfe\x80"
    (event,) = nccl_inspect.events(line)
    assert encode(event.message) == line.partition(b"NCCL INFO ")[2]


def test_windows_line_ends_are_taken_off() -> None:
    assert lines_of(b"a\r\n\r\nb\r\nc\r") == [b"a", b"", b"b", b"c"]
    assert nccl_inspect.read(CHANNEL.replace(b"\n", b"\r\n")).paths.between(0, 1).detail == "P2P/CUMEM"


@pytest.mark.parametrize(
    "name", ["p2p-direct-threads", "efa-provider-missing-socket-fallback", "torch-watchdog-timeout"]
)
@pytest.mark.parametrize("padding", [b" ", b"    ", b"\t "])
def test_lines_filled_up_with_blanks_say_the_same(name: str, padding: bytes) -> None:
    """As a terminal or a table pads them; messages of NCCL itself may end with one blank."""
    (log,) = sample_data.contents(name)
    whole, padded = nccl_inspect.read(log), nccl_inspect.read(log.replace(b"\n", padding + b"\n"))
    assert padded.verdict == whole.verdict
    assert [one.rule for one in padded.findings] == [one.rule for one in whole.findings]
    assert [(one.src, one.dst, one.detail) for one in padded.paths] == [(p.src, p.dst, p.detail) for p in whole.paths]


@pytest.mark.parametrize("name", ["socket-2node-tp4-dp2", "peer-killed"])
def test_blanks_of_a_web_page_are_blanks(name: str) -> None:
    (data,) = sample_data.contents(name)
    job, pasted = nccl_inspect.read(data), nccl_inspect.read(data.replace(b" ", b"\xc2\xa0"))
    assert job.sources[0].typed_lines == pasted.sources[0].typed_lines
    assert [path.detail for path in job.paths] == [path.detail for path in pasted.paths]


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_a_line_end_may_lie_on_the_border_of_two_blocks(shift: int) -> None:
    first = b"x" * (blocks.BLOCK - 1 + shift)
    assert lines_of(first + b"\r\n" + CHANNEL) == [first, CHANNEL[:-1]]


def test_lines_are_whole_wherever_a_block_ends() -> None:
    lines = [b"%d " % number + b"y" * (number % 977) for number in range(5000)]
    assert lines_of(b"\n".join(lines)) == lines
    assert lines_of(b"\n".join(lines) + b"\n") == lines


@pytest.mark.parametrize("size", [blocks.BLOCK - 1, blocks.BLOCK, blocks.BLOCK + 1, 5_000_000])
def test_a_very_long_line_is_one_line_and_the_numbers_after_it_are_right(size: int) -> None:
    job = nccl_inspect.read(b"z" * size + b"\n" + CHANNEL)
    assert job.sources[0].lines == 2
    assert job.paths.between(0, 1).evidence[0].line == 2
    assert job.sources[0].bytes == size + 1 + len(CHANNEL)


def test_a_very_long_nccl_line_is_still_one_line() -> None:
    job = nccl_inspect.read(CHANNEL[:-1] + b"z" * 5_000_000 + b"\n" + CHANNEL)
    assert (job.sources[0].lines, job.sources[0].nccl_lines) == (2, 2)
    assert job.sources[0].typed_lines == 1


def test_the_last_line_needs_no_line_end() -> None:
    job = nccl_inspect.read(CHANNEL[:-1])
    assert len(job.paths) == 1
    assert job.sources[0].bytes == len(CHANNEL) - 1


# --- files


def test_gzip_is_told_by_its_content_not_by_its_name(tmp_path: Path) -> None:
    packed, plain = tmp_path / "packed.log", tmp_path / "plain.log.gz"
    packed.write_bytes(gzip.compress(CHANNEL))
    plain.write_bytes(CHANNEL)
    for file in (packed, plain):
        assert nccl_inspect.read(file).paths.between(0, 1).detail == "P2P/CUMEM"


def test_gzip_of_several_members_is_read_to_its_end() -> None:
    data = gzip.compress(CHANNEL) + gzip.compress(CHANNEL.replace(b"0[0] -> 1[1]", b"1[1] -> 0[0]"))
    assert len(nccl_inspect.read(data).paths) == 2


def test_a_broken_off_gzip_gives_what_it_holds_and_then_an_error() -> None:
    lines = [b"a", b"b", b"c", *(random.Random(1).randbytes(1000).hex().encode() for _ in range(2000))]
    data = gzip.compress(b"\n".join(lines) + random.Random(2).randbytes(2 * blocks.BLOCK), compresslevel=1)
    (source,) = blocks.find(data[: len(data) // 2])
    read: list[bytes] = []
    with pytest.raises(NoInputError, match="the compressed data is damaged"):
        for block in blocks.blocks(source):
            read += block
    assert len(read) > 3
    assert read[: len(lines) - 1] == lines[:-1][: len(read)]


def test_a_gzip_with_damage_in_the_middle_is_an_error() -> None:
    data = bytearray(gzip.compress(CHANNEL * 1000))
    data[30:40] = b"\xff" * 10
    with pytest.raises(NoInputError, match="the compressed data is damaged"):
        nccl_inspect.read(bytes(data))


def test_a_folder_gives_its_logs_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("rank1.log", "rank0.log", "deeper/stdout.log", "deeper/job.log.gz", "notes.md", "deeper/weights.bin"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(CHANNEL)
    names = [Path(source.name).relative_to(tmp_path).as_posix() for source in blocks.find(str(tmp_path))]
    assert names == ["deeper/job.log.gz", "deeper/stdout.log", "rank0.log", "rank1.log"]


def test_several_inputs_are_parts_of_one_job(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(CHANNEL)
    other = CHANNEL.replace(b"vm:11:12", b"vm:21:22").replace(b"0[0] -> 1[1]", b"1[1] -> 0[0]")
    job = nccl_inspect.read([str(tmp_path / "a.log"), other, io.BytesIO(b"nothing of NCCL\n")])
    assert [(path.src, path.dst) for path in job.paths] == [(0, 1), (1, 0)]
    assert [source.name for source in job.sources][1:] == ["<bytes>", "<stream>"]


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match=r"gone\.log: no such file; check the path"):
        nccl_inspect.read(tmp_path / "gone.log")


def test_a_folder_without_logs_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(NoInputError, match="the folder holds no log"):
        nccl_inspect.read(tmp_path)


def test_an_empty_input_is_an_error_that_says_so() -> None:
    with pytest.raises(NoInputError, match="empty"):
        nccl_inspect.read(b"")


@pytest.mark.parametrize("data", [b"no line of it\n" * 3, bytes(range(256)) * 5000, b"\x7fELF" + b"\0" * 3_000_000])
def test_an_input_without_nccl_lines_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(NoInputError, match="no NCCL line among"):
        nccl_inspect.read(data)


def test_standard_input_is_read_by_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CHANNEL)))
    job = nccl_inspect.read("-")
    assert job.sources[0].name == "<stdin>"
    assert len(job.paths) == 1


def test_a_file_object_is_read_and_named(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_bytes(CHANNEL)
    with file.open("rb") as stream:
        assert nccl_inspect.read(stream).sources[0].name == str(file)
