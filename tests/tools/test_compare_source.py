"""The tools that compare source code, releases or a library with the grammar, on small ones made up for them."""

from __future__ import annotations

import json
from pathlib import Path

import compare_source
import library_calls
import pytest
import source_calls
from compare_source import Result
from source_calls import Call

SOURCE = Path(__file__).with_name("source")
"""Small ones made up for these tests."""
MOON = 'The moon is made of %s, says "%d"'
THREADS = "NET/Socket: Using %d threads and %d sockets per thread"
VERDICTS = {
    "Call to %s failed: %s": "recognised",
    "cudaDriverVersion %d": "recognised",
    MOON: "unrecognised",
    THREADS: "recognised",
    "%s": "dynamic",
    "Kettle %s is on": "unrecognised",
    "Kettle is off": "unrecognised",
    "Sugar 0x%lx was added": "unrecognised",
}
FORMATS = {
    '"a" "b"': ["ab"],
    '"a %" PRIu64 " b"': ["a %lu b"],
    '"a " NAME(1) " b"': ["a %s b"],
    'x == 3 ? "a" : "b"': ["a", "b"],
    r'"tab\tquote\"line\n"': ['tab\tquote"line\n'],
    "buffer": ["%s"],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "one.cc").write_text((SOURCE / "printf.cc").read_text())
    (folder / "src" / "notes.txt").write_text('INFO(NCCL_INIT, "not source code");')
    return folder


def judge_calls(*texts: str, level: str = "INFO") -> list[str]:
    results = compare_source.judge([Call(level, ("INIT",), text, "x.cc", 1) for text in texts], "nccl")
    return [result.verdict for result in results]


def test_each_format_has_its_verdict_level_subsystems_and_place(tree: Path) -> None:
    results = compare_source.judge(compare_source.collect(tree, None, "nccl"), "nccl")
    found: dict[str, Result] = {result.call.format: result for result in results}
    assert {text: result.verdict for text, result in found.items()} == VERDICTS
    assert found["cudaDriverVersion %d"].message.startswith("cudaDriverVersion ")
    moon, threads = found[MOON].call, found[THREADS].call
    assert (moon.level, moon.subsystems, moon.file, moon.line) == ("INFO", ("NET",), "src/one.cc", 9)
    assert (threads.subsystems, threads.is_default, moon.is_default) == (("INIT", "NET"), True, False)
    assert found["Sugar 0x%lx was added"].call.level == "WARN"
    assert {argument: source_calls.formats(argument) for argument in FORMATS} == FORMATS


def test_a_plugin_has_calls_and_a_prefix_of_its_own(tmp_path: Path) -> None:
    source = 'NCCL_OFI_INFO(NCCL_INIT | NCCL_NET, "Using Libfabric version %u.%u", a, b);'
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ofi.c").write_text(source)
    (call,) = compare_source.collect(tmp_path, None, "aws-ofi-nccl")
    assert call.format == "NET/OFI Using Libfabric version %u.%u"
    (result,) = compare_source.judge([call], "aws-ofi-nccl")
    assert result.verdict == "recognised"


def test_every_word_of_every_line_has_to_be_recognised() -> None:
    head = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size %ld : CUDA error %d '%s'."
    advice = "This is usually caused by a system or configuration error in the Fabric Manager or NVSwitches."
    assert judge_calls(f"{head}\n{advice}", f"{head}\nPray.", level="WARN") == ["recognised", "unrecognised"]
    texts = ["NET/Plugin: Could not find: %s", "NET/Plugin: Could not find: a needle in %s"]
    assert judge_calls(*texts) == ["recognised", "unrecognised"], "a production would take the words for any text"
    assert all(reason for one in source_calls.DIALECTS for reason in compare_source.exclusions(one).values())


def test_the_table_counts_and_the_list_names_the_place(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_source.main([str(tree), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[-3:] for line in lines if line.startswith(("INFO", "WARN"))]
    assert rows == [["4", "2", "50.0"], ["1", "0", "0.0"], ["2", "1", "50.0"]]
    assert "1 dynamic formats, 0 excluded ones are not counted." in lines
    assert r'  src/one.cc:9 INFO NET "The moon is made of %s, says \"%d\""' in lines
    assert compare_source.main([str(tree), "--format", "json", "--level", "INFO", "--subsys", "NET"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [entry["verdict"] for entry in shown["formats"]] == ["unrecognised", "recognised"]
    assert [group["percent"] for group in shown["groups"]] == [100.0, 0.0]


def test_check_fails_below_a_percentage_and_without_a_log_call(tree: Path) -> None:
    assert [compare_source.main([str(tree), "--check", percent]) for percent in ("0", "50")] == [0, 1]
    with pytest.raises(SystemExit, match=r"no log call of hpcx in .*; is --dialect right\?"):
        compare_source.main([str(tree / "src"), "--dialect", "hpcx", "--check", "100"])


def test_streams_and_errors_are_read_line_by_line(tmp_path: Path) -> None:
    for file in ("dxs/one.cc", "buffer_mgmt_daemon/fastrak_gpu_mem_importer.cc"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(
            (SOURCE / "streams.cc").read_text()
            if file.startswith("dxs")
            else 'LOG(INFO) << "x"; absl::InternalError("y");'
        )
    calls = compare_source.collect(tmp_path, None, "tcpxo")
    found = {f"{call.level} {call.format.replace('NET/FasTrak %s: ', '@')}" for call in calls}
    assert found == set((SOURCE / "streams.txt").read_text().splitlines())


# --- a library: instructions of one (2.32.3, shortened)

TEXTS = {0x20: "Connected all rings, use ring PXN %d GDR %d", 0x30: "Call to %s failed", 0x40: "x.cc"}
LOG = "bba90 <_Z20ncclDebugLogInternal17ncclDebugLogLevelmPKcS1_iS1_z>"
INSTRUCTIONS = (SOURCE / "library.txt").read_text().splitlines()


def test_a_call_in_a_library_is_read_with_its_level_subsystems_and_place() -> None:
    ring, failed = library_calls.find_calls(INSTRUCTIONS, TEXTS.get)
    assert ring == Call("INFO", ("INIT", "COLL"), TEXTS[0x20], "unknown", 0)
    assert failed == Call("WARN", (), TEXTS[0x30], "x.cc", 0x44)
    again = [*INSTRUCTIONS[:8], f"  19b8ff:\tcall   {LOG}"]
    assert len(list(library_calls.find_calls(again, TEXTS.get))) == 1, "what is left over is not taken for arguments"
