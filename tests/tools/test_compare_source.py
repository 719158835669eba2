"""The tool that compares source code with the grammar, on a small source tree made up for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import compare_source
import pytest
import source_calls
from compare_source import Result

SOURCE = r"""
#define CHECK(call, name) do { \
    if (call) WARN("Call to " name " failed: %s", strerror(errno)); \
  } while (0)
#define WARN(...) ncclDebugLog(NCCL_LOG_WARN, NCCL_ALL, __FILE__, __LINE__, __VA_ARGS__)
// INFO(NCCL_INIT, "in a comment");
void one(int* x) {
  INFO(NCCL_INIT, "cudaDriverVersion %d", version);
  INFO(NCCL_NET, "The moon is made of %s, says \"%d\"", cheese, 3);
  INFO(NCCL_INIT|NCCL_NET, "NET/Socket: Using %d threads "
       "and %d sockets per " /* a comment, in between */ "thread", f(1, "a"), x[2]);
  INFO(NCCL_GRAPH, "%s", line);
  INFO(NCCL_INIT, found ? "Kettle %s is on" : "Kettle is off", name);
  WARN("Sugar 0x%" PRIx64 " was added", (uint64_t)sugar);
  TRACE(NCCL_NET, "Never asked for %d", 1);
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "one.cc").write_text(SOURCE)
    (folder / "src" / "notes.txt").write_text('INFO(NCCL_INIT, "not source code");')
    return folder


def judged(tree: Path) -> dict[str, Result]:
    results = compare_source.judge(compare_source.collect(tree, None, "nccl"), "nccl")
    return {result.call.format: result for result in results}


def test_each_format_has_its_verdict(tree: Path) -> None:
    assert {text: result.verdict for text, result in judged(tree).items()} == {
        "Call to %s failed: %s": "recognised",
        "cudaDriverVersion %d": "recognised",
        'The moon is made of %s, says "%d"': "unrecognised",
        "NET/Socket: Using %d threads and %d sockets per thread": "recognised",
        "%s": "dynamic",
        "Kettle %s is on": "unrecognised",
        "Kettle is off": "unrecognised",
        "Sugar 0x%lx was added": "unrecognised",
    }


def test_level_subsystems_and_place_are_read(tree: Path) -> None:
    found = judged(tree)
    net = found['The moon is made of %s, says "%d"'].call
    assert (net.level, net.subsystems, net.file, net.line) == ("INFO", ("NET",), "src/one.cc", 9)
    assert not net.is_default
    both = found["NET/Socket: Using %d threads and %d sockets per thread"].call
    assert both.subsystems == ("INIT", "NET")
    assert both.is_default
    assert found["Sugar 0x%lx was added"].call.level == "WARN"


def test_a_recognised_format_comes_with_a_message(tree: Path) -> None:
    assert judged(tree)["cudaDriverVersion %d"].message.startswith("cudaDriverVersion ")


@pytest.mark.parametrize(
    ("argument", "formats"),
    [
        ('"a" "b"', ["ab"]),
        ('"a %" PRIu64 " b"', ["a %lu b"]),
        ('"a " NAME(1) " b"', ["a %s b"]),
        ('x == 3 ? "a" : "b"', ["a", "b"]),
        (r'"tab\tquote\"line\n"', ['tab\tquote"line\n']),
        ("buffer", ["%s"]),
    ],
)
def test_literals_are_joined(argument: str, formats: list[str]) -> None:
    assert source_calls.formats(argument) == formats


def test_a_plugin_has_calls_and_a_prefix_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    source = 'NCCL_OFI_INFO(NCCL_INIT | NCCL_NET, "Using Libfabric version %u.%u", a, b);'
    (tmp_path / "src" / "ofi.c").write_text(source)
    (call,) = compare_source.collect(tmp_path, None, "aws-ofi-nccl")
    assert call.format == "NET/OFI Using Libfabric version %u.%u"
    (result,) = compare_source.judge([call], "aws-ofi-nccl")
    assert result.verdict == "recognised"


def test_every_line_of_a_message_has_to_be_recognised() -> None:
    head = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size %ld : CUDA error %d '%s'."
    advice = "This is usually caused by a system or configuration error in the Fabric Manager or NVSwitches."
    for text, verdict in ((f"{head}\n{advice}", "recognised"), (f"{head}\nPray.", "unrecognised")):
        (result,) = compare_source.judge([source_calls.Call("WARN", (), text, "x.cc", 1)], "nccl")
        assert result.verdict == verdict


def test_the_table_counts_and_the_list_names_the_place(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_source.main([str(tree), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-3:] for line in lines if line.startswith(("INFO", "WARN"))] == [
        ["4", "2", "50.0"],
        ["1", "0", "0.0"],
        ["2", "1", "50.0"],
    ]
    assert "1 dynamic formats, 0 excluded ones are not counted." in lines
    assert r'  src/one.cc:9 INFO NET "The moon is made of %s, says \"%d\""' in lines


def test_json_level_and_subsystem(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_source.main([str(tree), "--format", "json", "--level", "INFO", "--subsys", "NET"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [entry["verdict"] for entry in shown["formats"]] == ["unrecognised", "recognised"]
    assert [group["percent"] for group in shown["groups"]] == [100.0, 0.0]


@pytest.mark.parametrize(("percent", "status"), [("0", 0), ("50", 1)])
def test_check_fails_below_a_percentage(tree: Path, percent: str, status: int) -> None:
    assert compare_source.main([str(tree), "--check", percent]) == status


def test_a_tree_without_a_log_call_passes_no_check(tree: Path) -> None:
    with pytest.raises(SystemExit, match=r"no log call of hpcx in .*; is --dialect right\?"):
        compare_source.main([str(tree / "src"), "--dialect", "hpcx", "--check", "100"])


def test_formats_that_are_new_since_a_tag(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tree), *identity, *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "v1")
    (tree / "src" / "two.cc").write_text('INFO(NCCL_INIT, "New %d", 1);\nINFO(NCCL_INIT, "cudaDriverVersion %d", v);')
    assert compare_source.main([str(tree), "--new-since", "v1", "--list"]) == 0
    out = capsys.readouterr().out
    assert "src/two.cc:1" in out
    assert "one.cc" not in out
    assert {call.file for call in compare_source.collect(tree, "v1", "nccl")} == {"src/one.cc"}


def test_exclusions_have_a_reason() -> None:
    for dialect in source_calls.DIALECTS:
        assert all(compare_source.exclusions(dialect).values())


def test_a_word_that_a_production_would_take_for_any_text_is_not_known() -> None:
    texts = ["NET/Plugin: Could not find: %s", "NET/Plugin: Could not find: a needle in %s"]
    found = compare_source.judge([source_calls.Call("INFO", ("INIT",), text, "x.cc", 1) for text in texts], "nccl")
    assert [result.verdict for result in found] == ["recognised", "unrecognised"]


STREAMS = r"""
#define HEADER "Profiler-" << index_ << ": "
// LOG(INFO) << "in a comment";
absl::Status one() {
  LOG(INFO) << "RxDM " << (found ? "is" : "is not") << " here";
  LOG_IF(WARNING, x > 1) << absl::StrFormat("%d of %s\n%s", n, name(1), Rest());
  PLOG(ERROR) << HEADER << "close failed";
  LOG(LEVEL(level())) << absl::StrCat("Found ", count, " NICs");
  LOG(ERROR) << status;
  VLOG(1) << "never asked for";
  RETURN_IF_ERROR(Check(a, "b")).LogWarning() << "while listening on " << port;
  ASSIGN_OR_RETURN(auto x, Two(), _ << "\nGave up");
  if (bad) return absl::FailedPreconditionError(absl::StrFormat("No NIC %d", 1));
  return absl::ErrnoToStatus(errno, absl::StrCat("Cannot open ", path));
}
"""


def test_streams_and_errors_are_read_line_by_line(tmp_path: Path) -> None:
    for file in ("dxs/one.cc", "buffer_mgmt_daemon/fastrak_gpu_mem_importer.cc"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(
            STREAMS if file.startswith("dxs") else 'LOG(INFO) << "x"; absl::InternalError("y");'
        )
    found = compare_source.collect(tmp_path, None, "tcpxo")
    assert {(call.level, call.format.replace("NET/FasTrak %s: ", "@")) for call in found} == {
        ("INFO", "@RxDM is here"),
        ("INFO", "@RxDM is not here"),
        ("WARN", "@%d of %s"),
        ("WARN", "@Profiler-%s: close failed: %s [%d]"),
        ("INFO", "@Found %s NICs"),
        ("WARN", "%s"),
        ("WARN", "@%s; while listening on %s"),
        ("WARN", "Gave up"),
        ("WARN", "@FAILED_PRECONDITION: No NIC %d"),
        ("WARN", "@%s: Cannot open %s: %s"),
        ("WARN", "@INTERNAL: y"),
    }
