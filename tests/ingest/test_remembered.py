"""What is remembered of prefixes says what parsing them anew would."""

from __future__ import annotations

from envelope_samples import samples_of
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.timestamps import Timed

# --- prefixes: one is told by what stands around its time exactly as it is parsed

LAUNCHERS = [
    *(
        one
        for envelope in envelopes.list_envelopes().values()
        for one in samples_of(envelope)
        if b"LINE" not in one and b"\n" not in one
    ),
    *(b"", b"[2026-11-20 23:13:07] ", b"[2026-11-20 23:13:07.071868] ", b"1763680387.123456 ", b"23:13:07 "),
    *(b"2026-11-20 23:13:07,071 | INFO | worker-3 | ", b"Nov 20 23:13:07 vm kernel: ", b"at 23:13:07 and 23:13:07: "),
    b"[pod/llama-0/23:13:07] 2026-11-20T23:13:07.071868123Z ",
]
HOSTS = [b"vm:17:18 [0]", b"vm:17:18", b"h-10:20:30 [3]", b"10:20:30:40 [1]", b"vm:17:18 [0] socket.cc:4 (f)", b"vm:1"]
PRINTERS = [
    *(*HOSTS, b"12:7:22 [0]", b"007:007:22 [15]", b"hostname:1:2 [0]", b"xxx:7:9999999999 [1]", b"gpu_01:33:1 [00]")
]
BESIDE = b"vm:5:6 [7] 23:13:07.071868 > "
"""What is left of a line that another one was run into."""


def ask_exports(timed: Timed, head: bytes) -> None:
    known, parsed = timed.recall_origin(head), prefix.parse(head)
    assert known is None or known == parsed
    assert timed.mask_time(head) in (head, timed.key(head))
    if parsed is not None:
        timed.learn(head, parsed)


def run_later(data: st.DataObject, head: bytes) -> bytes:
    """Return the same with other digits, mostly those of a time."""
    marks = [at for at in range(len(head)) if head[at : at + 1] in (b":", b".")]
    near = {place for at in marks for place in range(at - 2, at + 4) if 0 <= place < len(head)}
    changed = bytearray(head)
    for at in range(len(head)) if data.draw(st.integers(0, 9)) == 0 else sorted(near):
        if chr(changed[at]).isdigit() and data.draw(st.booleans()):
            changed[at] = data.draw(st.sampled_from(b"0123456789"))
    return bytes(changed)


@given(st.data())
def test_the_origin_is_that_of_parsing(data: st.DataObject) -> None:
    timed = Timed(1000, 1 << 20)
    head = data.draw(st.sampled_from(LAUNCHERS)) + data.draw(st.sampled_from(HOSTS))
    for _ in range(6):
        ask_exports(timed, head)
        head = run_later(data, head)


@given(st.sampled_from([*LAUNCHERS, BESIDE]), st.lists(st.sampled_from(PRINTERS), min_size=6, max_size=20))
def test_the_origin_of_other_printers_is_that_of_parsing(launcher: bytes, printers: list[bytes]) -> None:
    timed = Timed(1000, 1 << 20)
    for number, printer in enumerate(printers):
        ask_exports(timed, launcher.replace(b"23:13:07", b"23:13:%02d" % number) + printer)
