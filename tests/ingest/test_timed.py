"""A prefix is told by what stands around its time exactly as it is parsed."""

from __future__ import annotations

from importlib import import_module

from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.timestamps import Timed
from nccl_inspect.util.discovery import modules

LAUNCHERS = [
    sample
    for name in modules(envelopes.__file__)
    for sample in import_module(f"{envelopes.__name__}.{name}").SAMPLES
    if b"LINE" not in sample and b"\n" not in sample
]
OTHERS = [
    b"",
    b"[2026-11-20 23:13:07] ",
    b"[2026-11-20 23:13:07.071868] ",
    b"2026-11-20 23:13:07,071 | INFO | worker-3 | ",
    b"1763680387.123456 ",
    b"Nov 20 23:13:07 vm kernel: ",
    b"23:13:07 ",
    b"at 23:13:07 and 23:13:07: ",
    b"[pod/llama-0/23:13:07] 2026-11-20T23:13:07.071868123Z ",
]
HOSTS = [b"vm:17:18 [0]", b"vm:17:18", b"h-10:20:30 [3]", b"10:20:30:40 [1]", b"vm:17:18 [0] socket.cc:4 (f)", b"vm:1"]


def later(data: st.DataObject, head: bytes) -> bytes:
    """The same with other digits, mostly those of a time."""
    times = [*range(len(head))] if data.draw(st.integers(0, 9)) == 0 else _times(head)
    changed = bytearray(head)
    for at in times:
        if chr(changed[at]).isdigit() and data.draw(st.booleans()):
            changed[at] = data.draw(st.sampled_from(b"0123456789"))
    return bytes(changed)


def _times(head: bytes) -> list[int]:
    found = [at for at in range(len(head)) if head[at : at + 1] in (b":", b".")]
    return sorted({near for at in found for near in range(at - 2, at + 4) if 0 <= near < len(head)})


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_origin_is_that_of_parsing(data: st.DataObject) -> None:
    timed = Timed(1000, 1 << 20)
    launcher, host = data.draw(st.sampled_from(LAUNCHERS + OTHERS)), data.draw(st.sampled_from(HOSTS))
    head = launcher + host
    for _ in range(6):
        known, parsed = timed.known(head), prefix.parse(head)
        assert known is None or known == parsed
        assert timed.without(head) in (head, timed.key(head))
        if parsed is not None:
            timed.learn(head, parsed)
        head = later(data, head)


def test_what_collectors_put_before_lines_is_parsed_twice_at_most() -> None:
    timed = Timed(1000, 1 << 20)
    for second in range(10):
        head = b"2026-11-20T23:13:%02d.071868123Z stdout F vm:17:18 [0]" % second
        known, parsed = timed.known(head), prefix.parse(head)
        assert parsed is not None
        assert known == (parsed if second > 1 else None)
        timed.learn(head, parsed)


def test_launchers_put_times_before_lines() -> None:
    assert sum(b":07" in launcher for launcher in LAUNCHERS) > 5


def test_times_are_seen_at_once_behind_labels_of_several_widths() -> None:
    timed = Timed(1000, 1 << 20)
    heads = [b"[pod/llama-%d] 2026-11-20T23:13:07.07186812%dZ vm:17:18 [0]" % (pod, pod % 10) for pod in (9, 10, 100)]
    keys = [timed.key(head) for head in heads]
    assert [timed.without(head + b" NCCL INFO 23:13:07.1") for head in heads] == [
        (key or b"") + b" NCCL INFO 23:13:07.1" for key in keys
    ]
    assert timed.without(b"23:13:07.1 vm:17:18 [0]") == b"23:13:07.1 vm:17:18 [0]"


def test_a_time_far_behind_is_not_remembered() -> None:
    """Else what stands before it, line by line another one, would fill the memory."""
    timed = Timed(1000, 1 << 20)
    head = b"x" * 1000 + b" 23:13:07.071868 vm:17:18 [0]"
    assert timed.key(head) != head
    assert timed.without(head) == head


PRINTERS = [
    *HOSTS,
    b"12:7:22 [0]",
    b"007:007:22 [15]",
    b"hostname:1:2 [0]",
    b"xxx:7:9999999999 [1]",
    b"gpu_01:33:1 [00]",
]
BESIDE = b"vm:5:6 [7] 23:13:07.071868 > "
"""What is left of a line that another one was run into."""


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_origin_of_other_printers_is_that_of_parsing(data: st.DataObject) -> None:
    timed = Timed(1000, 1 << 20)
    launcher = data.draw(st.sampled_from([*LAUNCHERS, *OTHERS, BESIDE]))
    printers = data.draw(st.lists(st.sampled_from(PRINTERS), min_size=6, max_size=20))
    for number, printer in enumerate(printers):
        head = launcher.replace(b"23:13:07", b"23:13:%02d" % number) + printer
        known, parsed = timed.known(head), prefix.parse(head)
        assert known is None or known == parsed
        if parsed is not None:
            timed.learn(head, parsed)


def test_a_host_that_reads_as_the_hours_of_a_time_proves_nothing_for_others() -> None:
    timed = Timed(1000, 1 << 20)
    for second in range(3):
        head = BESIDE.replace(b"07", b"%02d" % second) + b"12:7:22 [0]"
        if parsed := prefix.parse(head):
            timed.learn(head, parsed)
    other = BESIDE + b"node:7:22 [0]"
    assert (timed.known(other), prefix.parse(other)) == (None, None)
