"""Which finding leads: causes before their effects, and effects that name their causes."""

import pytest
from repository import TESTS
from short_logs import P2P_OFF, SHM, SOCKET, completion, found, line, names, read

from nccl_inspect.model.job import Job


def test_a_setting_leads_and_its_effect_names_it() -> None:
    job = read(P2P_OFF + SHM)
    cause, effect = found(job, "p2p-disabled-by-env"), found(job, "shm-instead-of-p2p")
    assert job.findings[0] is cause
    assert cause.root
    assert not cause.because
    assert not effect.root
    assert effect.because == ["p2p-disabled-by-env"]


def test_a_slow_path_leads_and_names_the_plugin_that_is_missing() -> None:
    job = read(line(0, "NET/Plugin: Could not find: libnccl-net-aws-ofi.so.", "node-a") + SOCKET)
    assert names(job) == ["socket-instead-of-efa", "plugin-not-found"]
    assert job.findings[0].because == ["plugin-not-found"]
    assert all(finding.root for finding in job.findings)


def test_a_slow_path_leads_also_where_its_cause_is_more_severe() -> None:
    missing = "libfabric.so.1: cannot open shared object file: No such file or directory"
    broken = line(0, f"NET/Plugin: libnccl-net.so: {missing}", "node-a")
    job = read(broken + SOCKET)
    assert names(job) == ["socket-instead-of-rdma", "plugin-load-failed"]
    assert [finding.severity for finding in job.findings] == ["warning", "error"]
    assert "NET/Socket" in job.findings[0].summary


def roots(job: Job) -> list[str]:
    return [finding.rule for finding in job.findings if finding.root]


UPSET = "vm:100:110 [0] bootstrap.cc:73 NCCL WARN Message truncated : received 1195725856 bytes instead of 136\n"
FULL = "vm:{pid}:{pid} [0] include/alloc.h:185 NCCL WARN Cuda failure 2 'out of memory'\n"


def test_what_follows_an_upset_set_up_is_its_effect() -> None:
    job = read(UPSET + FULL.format(pid=100))
    assert job.findings[0].rule == "bootstrap-failed"
    assert found(job, "gpu-out-of-memory").because == ["bootstrap-failed"]
    assert not found(job, "gpu-out-of-memory").root


@pytest.mark.parametrize("log", [FULL.format(pid=100) + UPSET, UPSET + FULL.format(pid=101)])
def test_an_error_before_the_set_up_failed_or_of_another_process_is_no_effect(log: str) -> None:
    assert "gpu-out-of-memory" in roots(read(log))


def test_an_excerpt_without_prefixes_is_ordered_by_its_lines() -> None:
    job = read("".join(part.partition("[0] ")[2] for part in (UPSET, FULL)))
    assert roots(job)[:1] == ["bootstrap-failed"]


def test_idle_nvlink_folds_under_the_setting_that_causes_it() -> None:
    assert roots(read(SHM, platform="p5.48xlarge")) == ["nvlink-not-used"]
    job = read(P2P_OFF + SHM, platform="p5.48xlarge")
    assert roots(job) == ["p2p-disabled-by-env"]
    assert found(job, "nvlink-not-used").because == ["p2p-disabled-by-env"]
    assert found(job, "shm-instead-of-p2p").because == ["nvlink-not-used", "p2p-disabled-by-env"]


def test_a_slow_path_names_the_refusal_of_the_driver() -> None:
    refused = line(0, "Could not enable P2P between dev 0(=60) and dev 1(=70)")
    job = read(refused + SHM, platform="dgx-a100")
    assert roots(job) == ["nvlink-not-used", "p2p-disabled-driver"]
    assert job.findings[0].because == ["p2p-disabled-driver"]


def test_network_within_a_host_folds_under_the_settings_that_leave_nothing_else() -> None:
    shm_off = line(0, "NCCL_SHM_DISABLE set by environment to 1.")
    net = line(0, "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0")
    net += line(1, "Channel 00/0 : 0[0] -> 1[1] [receive] via NET/Socket/0")
    job = read(P2P_OFF + shm_off + net)
    assert roots(job) == ["shm-disabled-by-env", "p2p-disabled-by-env"]
    assert found(job, "net-instead-of-p2p").because == ["shm-disabled-by-env", "p2p-disabled-by-env"]


def test_an_interface_that_reaches_nobody_leads_over_what_comes_of_it() -> None:
    job = read(
        line(0, "Bootstrap: Using virbr0:192.168.122.1<0>", "node-a")
        + line(1, "Bootstrap: Using virbr0:192.168.122.1<0>", "node-b")
        + line(
            1,
            "socketPollConnect: connect to 192.168.122.1<39543> returned No route to host, exceeded error retry count "
            "after 35 attempts",
            "node-b",
        ).replace("INFO", "WARN")
    )
    assert names(job) == ["bootstrap-wrong-interface", "bootstrap-no-route"]
    assert not found(job, "bootstrap-no-route").root


def test_a_cause_is_named_only_when_it_was_looked_for() -> None:
    job = read(P2P_OFF + SHM, ignore=["p2p-disabled-by-env"])
    assert found(job, "shm-instead-of-p2p").root
    assert not found(job, "shm-instead-of-p2p").because


@pytest.mark.parametrize(
    "machine",
    [{"platform": "p5en.48xlarge"}, {"topology": str(TESTS / "data" / "p4d.nvidia-smi-topo.txt")}],
    ids=lambda machine: next(iter(machine)),
)
def test_a_setting_leads_before_the_nvlink_that_it_keeps_idle(machine: dict[str, str]) -> None:
    job = read(P2P_OFF + SHM, **machine)
    assert [(one.rule, one.root) for one in job.findings if one.root] == [("p2p-disabled-by-env", True)]
    assert {"p2p-disabled-by-env", "nvlink-not-used"} <= {one.rule for one in job.findings}


SEGMENT = "shared memory segment /dev/shm/nccl-hBUaf7 (size 33030528)"


@pytest.mark.parametrize("status", [9, 10, 11, 13])
def test_a_transfer_that_was_refused_leads_to_transfers_without_an_answer(status: int) -> None:
    after = read(completion(12) + completion(status, rank=1))
    assert found(after, "ib-timeout-err12").confidence == "possible"
    assert f"(status {status})" in found(after, "ib-completion-error").summary
    before = read(completion(status, rank=1) + completion(12))
    assert "ib-timeout-err12" not in names(before)
    assert f"(status {status})" in found(before, "ib-completion-error").summary
    assert not before.unexplained


def test_a_transfer_that_was_refused_is_an_echo_of_a_rank_that_failed() -> None:
    cuda = "enqueue.cc:1402 NCCL WARN Cuda failure 'an illegal memory access was encountered'"
    job = read(completion(11) + f"node-b:200:200 [0] {cuda}\n")
    assert names(job)[0] == "cuda-failure-in-launch"
    assert not found(job, "ib-completion-error").root


@pytest.mark.parametrize(
    ("said", "effect"),
    [
        ("misc/ipcsocket.cc:52 NCCL WARN UDS: Socket creation error : {}", "p2p-import-failed"),
        (f"misc/shmutils.cc:131 NCCL WARN Error while creating {SEGMENT}, error: {{}}", "shm-segment-failed"),
        (f"misc/shmutils.cc:131 NCCL WARN Error while attaching to {SEGMENT}, error: {{}}", "shm-attach-failed"),
        ("misc/socket.cc:574 NCCL WARN ncclSocketInit: Socket creation failed: {}", "bootstrap-failed"),
    ],
)
def test_no_more_open_files_lead_to_whatever_needs_one(said: str, effect: str) -> None:
    job = read(f"node-a:100:120 [0] {said.format('Too many open files (24)')}\n")
    assert names(job)[0] == "open-files-limit"
    assert not any(finding.root for finding in job.findings if finding.rule == effect)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("enqueue.cc:1402 NCCL WARN Cuda failure 'an illegal memory access was encountered'", "cuda-failure-in-launch"),
        ("misc/ibvwrap.cc:171 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory", "ib-memlock"),
        ("transport.cc:50 NCCL WARN No transport found for rank 0[1b000] -> rank 1[1c000]", "no-transport"),
        ("misc/socket.cc:574 NCCL WARN Call to accept failed: Too many open files", "open-files-limit"),
    ],
)
def test_ranks_that_wait_for_one_that_failed_are_no_cause(said: str, cause: str) -> None:
    waiting = (
        "[rank1]:[E313 04:00:00.111000000 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=9001, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 "
        "milliseconds before timing out.\n"
    )
    job = read(f"node-a:100:120 [0] {said}\n{waiting}")
    assert names(job)[0] == cause
    assert found(job, "watchdog-timeout").because == [cause]


def test_the_status_that_came_first_is_the_root() -> None:
    job = read(completion(4) + completion(12, rank=1) + completion(5, rank=2))
    cause, effect = found(job, "ib-error4-acs"), found(job, "ib-timeout-err12")
    assert cause.root
    assert not effect.root
    assert "peer-death" not in names(job)
    assert not job.unexplained
