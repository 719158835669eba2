"""What launchers and collectors put around lines is taken off, in any mixture, and tells what it knows."""

from __future__ import annotations

import json
import random
from types import ModuleType

import pytest
from envelope_samples import MODULES, PREFIXES, WHOLE, filled, wrapper
from hypothesis import given, settings
from hypothesis import strategies as st
from wrapped_logs import CAPTURES, LINE, capture, first_origin, plain, summary

import nccl_inspect
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.envelope_fields import NOTHING, Stated

# --- each module


@pytest.mark.parametrize("name", MODULES)
def test_an_envelope_takes_off_its_samples_and_states_what_they_say(name: str) -> None:
    module: ModuleType = MODULES[name]
    assert module.__doc__, "a module says whose envelope it is"
    assert module.SAMPLES, "a module has samples"
    for sample, stated in module.SAMPLES.items():
        assert sample[:1] in {bytes([first]) for first in module.FIRST}
        if hasattr(module, "PATTERN"):
            found = module.PATTERN.match(sample + LINE)
            assert found, f"{sample!r} does not match"
            assert found.end() == len(sample), f"takes {found[0]!r}"
            assert not module.PATTERN.match(LINE)
            assert envelopes.peel(sample + LINE) == (LINE, stated)
        else:
            line = filled(sample, LINE)
            assert module.OPENING.match(line)
            (inner,) = module.READ(line)
            assert inner.text.rstrip(b"\n") == LINE
            assert inner.stated == stated
            assert not module.OPENING.match(LINE)


@pytest.mark.parametrize("name", [*PREFIXES, *WHOLE])
def test_what_an_envelope_states_is_kept_with_the_origin(name: str) -> None:
    module = MODULES[name.rpartition("-")[0]]
    stated: Stated = module.SAMPLES[PREFIXES[name] if name in PREFIXES else WHOLE[name]]
    origin = first_origin(wrapper(name)(LINE))
    assert origin is not None
    assert (origin.process[:2], origin.tid, origin.device) == (("vm", 11), 12, 0)
    assert (origin.time, origin.label, origin.rank) == stated[:3]


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if hasattr(module, "PARTS")])
def test_a_line_in_parts_is_put_together(name: str) -> None:
    samples: dict[bytes, Stated] = MODULES[name].SAMPLES
    parts: list[tuple[bytes, Stated]] = [(sample, stated) for sample, stated in samples.items() if stated.partial]
    assert parts or MODULES[name].PARTS.least, "a module has a sample of a part, unless only its length shows it"
    for sample, stated in parts:
        end = next(last for last, of in samples.items() if of[1:] == (*stated[1:4], False))
        for cut in range(1, len(LINE)):
            data = _put(name, sample, LINE[:cut]) + b"\n" + _put(name, end, LINE[cut:]) + b"\n"
            job = nccl_inspect.read(data)
            assert [(path.src, path.dst, path.detail) for path in job.paths] == [(0, 1, "P2P/CUMEM")], cut


def _put(name: str, sample: bytes, text: bytes) -> bytes:
    return sample + text if hasattr(MODULES[name], "PATTERN") else filled(sample, text)


def test_a_line_keeps_its_own_time() -> None:
    origin = first_origin(b"2026-11-20T23:13:07Z [2026-11-20 01:02:03] vm:1:2 [3] init.cc:9 NCCL WARN x")
    assert origin is not None
    assert (origin.time, origin.location) == ("2026-11-20 01:02:03", "init.cc:9")


def test_nested_envelopes_join_what_they_know() -> None:
    line = b'{"log":"[rank3]:%s","stream":"stdout","time":"T"}' % LINE
    origin = first_origin(b"[pod/llama-0/trainer] " + line)
    assert origin is not None
    assert (origin.label, origin.rank, origin.time) == ("pod/llama-0/trainer", 3, "T")
    origin = first_origin(b"(EngineCore_0 pid=123) (Worker_TP0 pid=124) " + LINE)
    assert origin is not None
    assert origin.label == "EngineCore_0 pid=123 Worker_TP0 pid=124"
    assert origin.head == b"(EngineCore_0 pid=123) (Worker_TP0 pid=124) vm:11:12 [0]"


# --- whole logs


@pytest.mark.parametrize("sample", CAPTURES)
@pytest.mark.parametrize("name", [*PREFIXES, *WHOLE])
def test_a_wrapped_log_gives_the_same_job(name: str, sample: str) -> None:
    wrap = wrapper(name)
    assert summary(b"\n".join(map(wrap, capture(sample)))) == plain(sample)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from([*PREFIXES, *WHOLE]), st.sampled_from([*PREFIXES, *WHOLE]), st.sampled_from(CAPTURES))
def test_a_log_in_two_envelopes_gives_the_same_job(outer: str, inner: str, sample: str) -> None:
    around, within = wrapper(outer), wrapper(inner)
    assert summary(b"\n".join(around(within(line)) for line in capture(sample))) == plain(sample)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from(CAPTURES))
def test_a_mixture_of_envelopes_in_one_log_gives_the_same_job(seed: int, sample: str) -> None:
    names = [*PREFIXES, *WHOLE]
    choose = random.Random(seed)
    lines = [wrapper(choose.choice(names))(line) for line in capture(sample)]
    assert summary(b"\n".join(lines)) == plain(sample)


@pytest.mark.parametrize("sample", CAPTURES)
def test_an_export_that_is_printed_pretty_gives_the_same_job(sample: str) -> None:
    found = [{"timestamp": 1795216387071, "message": line.decode("utf-8")} for line in capture(sample) if line]
    lines = [line for line in capture(sample) if line]
    assert summary(json.dumps({"events": found}, indent=4).encode())[:4] == summary(b"\n".join(lines))[:4]
    in_one_line = summary(json.dumps({"events": found}).encode())
    assert in_one_line[0] == summary(b"\n".join(lines))[0]


@given(st.binary(max_size=200), st.sampled_from([b"{", b'{"log":"', b'"', b"[", b"0: ", b"<13>", b"(a pid=1) ", b""]))
def test_no_bytes_break_the_envelopes(data: bytes, lead: bytes) -> None:
    line = lead + data
    envelopes.contents(line)
    list(envelopes.layers(line))
    prefix.parse(line)
    assert envelopes.contents(LINE) == []
    assert prefix.parse(LINE.partition(b" NCCL ")[0]) is not None
    assert NOTHING.within(NOTHING) == NOTHING


@given(
    st.lists(st.sampled_from(sorted({*PREFIXES.values(), b" NCCL INFO ", b"vm:1:2 [3]", b'{"log":"', b'"}', b"\n"})))
)
def test_no_mixture_breaks_reading(pieces: list[bytes]) -> None:
    nccl_inspect.read(b"".join(pieces) + b"\n" + LINE)


def test_what_a_text_means_does_not_depend_on_who_asked_first() -> None:
    """A line in backticks, the same one torn, and one that only ends with a backtick."""
    line = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`"
    wrapped, torn = b"- `" + line, b"9:13999 [0 NCCL INFO " + line.partition(b"INFO ")[2]
    for lines in ([wrapped, torn, line], [torn, line, wrapped], [line, torn, wrapped]):
        job = nccl_inspect.read(b"\n".join(lines))
        assert [(path.src, path.dst, path.detail) for path in job.paths] == [(0, 1, "P2P/CUMEM")]
        assert (job.sources[0].typed_lines, job.sources[0].damaged_lines) == (2, 1)  # as an excerpt also the last one


def test_a_long_record_takes_no_long_time() -> None:
    line = b'msg="x" ' + b"a=" * 400_000 + b'" NCCL INFO nothing'
    assert nccl_inspect.read(b"\n".join([LINE, line])).paths
