"""What reports say of the job in words: who has a setting, which hosts have ranks, what leads."""

from __future__ import annotations

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, load, text
from nccl_inspect.report.digest import facts, reason


def line(host: str, rank: int, message: str) -> str:
    return f"{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {message}\n"


def start(host: str, rank: int, nranks: int) -> str:
    said = f"ncclCommInitRank comm 0x{rank + 1}000 rank {rank} nranks {nranks} cudaDev {rank} nvmlDev {rank} busId 10"
    return line(host, rank, f"{said} commId 0x77 - Init START")


def read(*lines: str) -> Job:
    return nccl_inspect.read("".join(lines).encode())


def fact(job: Job, label: str) -> str:
    return dict(facts(job))[label]


def test_a_setting_says_who_has_it_unless_all_do() -> None:
    job = read(
        *(start("vm", rank, 3) for rank in range(3)),
        *(line("vm", rank, "NCCL_NVLS_ENABLE set by environment to 0") for rank in range(3)),
        *(line("vm", rank, "NCCL_ALGO set by environment to Tree") for rank in (1, 2)),
        line("vm", 0, "NCCL_ALGO set by environment to Ring"),
    )
    assert fact(job, "environment") == "NCCL_ALGO=Ring (rank 0), NCCL_ALGO=Tree (ranks 1-2), NCCL_NVLS_ENABLE=0"


def test_a_setting_of_processes_without_a_rank_says_the_host() -> None:
    job = read(line("a", 0, "NCCL_ALGO set by environment to Tree"), line("b", 1, "cudaDriverVersion 13000"))
    assert fact(job, "environment") == "NCCL_ALGO=Tree (a)"


def test_hosts_without_a_rank_are_told_apart() -> None:
    job = read(start("a", 0, 2), start("b", 1, 2), line("c", 2, "cudaDriverVersion 13000"))
    assert fact(job, "job") == "2 ranks on 2 hosts (a, b) and, without a known rank, 1 host (c)"
    assert fact(read(line("c", 2, "cudaDriverVersion 13000")), "job") == (
        "world size and ranks not in the log; 1 host (c)"
    )


def test_a_rank_without_a_line_may_be_a_process_that_names_none() -> None:
    one = line("b", 9, "cudaDriverVersion 13000")
    assert "; rank 1 has no line in this log; " in fact(read(start("a", 0, 2)), "job")
    assert "; rank 1 is probably pid 109 on b; " in fact(read(start("a", 0, 2), one), "job")
    assert "ranks 1-2 have no line in this log (unless in those of one process that names no rank);" in fact(
        read(start("a", 0, 3), one), "job"
    )


def test_communicators_say_how_far_they_came_and_what_nccl_takes_for_a_node() -> None:
    nodes = "".join(
        line("a", rank, f"comm 0x{rank + 1}000 rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0")
        for rank in (0, 1)
    )
    job = read(start("a", 0, 2), start("a", 1, 2), nodes)
    assert fact(job, "communicator") == (
        "world: 2 ranks on 2 nodes as NCCL counts (1 host name), initialisation not finished"
    )


def test_a_headline_names_the_suspect() -> None:
    shown = text.render(sample_data.job("torch-watchdog-timeout"), Style(width=100)).split("\n\n")[0]
    assert "and timed out; suspect: rank 3 where rank 3 on vm, pid 1349" in " ".join(shown.split())


def test_collectives_that_differ_are_told_in_one_line() -> None:
    job = sample_data.job("torch-collectives-differ")
    shown = text.render(job, Style(width=100)).splitlines()[0]
    assert shown == "FAILED: ranks are in different calls: call 1 is ALLREDUCE on ranks 1-3; BROADCAST on rank 0"


def test_a_long_message_is_cut_in_a_summary_and_whole_in_the_evidence() -> None:
    words = "x" * 2000
    job = read(f"vm:1:1 [0] NCCL WARN Call to bind failed : {words}\n")
    (finding,) = [finding for finding in job.findings if finding.rule == "bootstrap-failed"]
    assert len(finding.summary) == 300
    assert finding.summary.endswith("…")
    assert words in finding.evidence[0].text


def test_a_pair_without_a_path_is_an_error_that_says_so() -> None:
    paths = read(line("vm", 0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")).paths
    for (src, dst), more in {(1, 0): "; there is one in the other direction", (0, 9): ""}.items():
        with pytest.raises(KeyError) as raised:
            paths.between(src, dst)
        assert isinstance(raised.value, NcclInspectError)
        assert str(raised.value) == f"no connection line from rank {src} to rank {dst}{more}"


def test_words_about_a_command_stay_a_comment_when_they_are_wrapped() -> None:
    shown = text.render(sample_data.job("v2.30.7-shm-4gpu"), Style(width=60))
    assert "  fix       unset NCCL_P2P_DISABLE\n              # pod spec 'env:', image, launch script,\n" in shown
    _, _, effect = shown.partition("  effect    shm-instead-of-p2p")
    assert effect and "fix:" not in effect, "an effect repeats no steps of its cause"


def test_errors_that_no_rule_explains_come_with_what_they_mean_and_the_worst_leads() -> None:
    job = read(
        "vm:1:2 [0] graph/topo.cc:600 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:00\n",
        "vm:1:2 [0] net.cc:1 NCCL WARN something that no release prints\n",
        "vm:1:1 [0] NCCL INFO init.cc:1 -> 2\n",
    )
    assert reason(job).endswith("the log says: something that no release prints")
    for form in ("text", "markdown", "html"):
        assert "as usual in virtual machines: harmless." in " ".join(load(form).render(job, Style()).split()), form


def test_what_an_exception_says_leads_and_not_how_its_traceback_begins() -> None:
    code = b"[rank0]: RuntimeError: NCCL Error 7: operation in progress\n"
    job = nccl_inspect.read(b"[rank0]: Traceback (most recent call last):\n" + code)
    assert reason(job).endswith(code.decode().strip())


def test_a_log_without_prefixes_has_hosts_without_names() -> None:
    job = read(*(f"[{rank}] NCCL INFO {start('', rank, 2).partition('INFO ')[2]}" for rank in range(2)))
    assert fact(job, "job") == "2 ranks on hosts that the log does not name"


def test_a_doubt_does_not_hide_that_the_paths_are_good() -> None:
    connected = line("vm", 0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    ended = "slurmstepd: error: *** JOB 4711 ON vm CANCELLED AT 2026-11-20T23:13:07 DUE TO TIME LIMIT ***\n"
    ended_by = "possibly: the job was ended: its time limit was reached"
    assert reason(read(start("vm", 0, 2), connected, ended)) == (
        f"{ended_by}; every path that the log shows is as good as expected"
    )
    begun = line("vm", 0, "cudaDriverVersion 13000")
    assert reason(read(begun, ended)) == ended_by
