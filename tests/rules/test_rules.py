"""What single rules say, and when."""

import pytest
from repository import ROOT
from rule_pages import examples
from short_logs import G6E_TOPOLOGY, P2P_OFF, SHM, SOCKET, completion, found, line, names, read

import nccl_inspect


def cuda_failure(rank: int, place: str, text: str) -> str:
    version = line(rank, "NCCL version 2.27.3+cuda12.9")
    return f"{version}vm:{100 + rank}:{100 + rank} [{rank}] {place} NCCL WARN Cuda failure {text}\n"


@pytest.mark.parametrize(
    ("place", "text", "rule"),
    [
        ("transport/p2p.cc:275", "1 'invalid argument'", "p2p-import-failed"),
        ("/build/src/transport/p2p.cc:275 (ncclP2pImportShareableBuffer)", "'invalid argument'", "p2p-import-failed"),
        ("transport/p2p.cc:275", "711 'peer mapping resources exhausted'", "peer-mapping-exhausted"),
        (
            "transport/shm.cc:619",
            "217 'peer access is not supported between these two devices'",
            "shm-cumem-host-failed",
        ),
        ("transport/nvls.cc:255", "1 'invalid argument'", "nvls-fabric-manager"),
        ("transport/nvls.cc:255", "802 'system not yet initialized'", "fabric-manager-down"),
        ("init.cc:438", "'no CUDA-capable device is detected'", "cuda-init-error"),
        ("enqueue.cc:100", "'no kernel image is available for execution on the device'", "nccl-too-old"),
    ],
)
def test_a_cuda_failure_belongs_to_one_rule_by_place_and_code(place: str, text: str, rule: str) -> None:
    job = read(cuda_failure(0, place, text))
    assert names(job) == [rule]
    assert job.verdict == "failed"
    assert not job.unexplained


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("transport/net_ib/p2p.cc:275", "1 'invalid argument'"),
        ("transport/p2p.cc:275", "'out of memory'"),
        ("transport/nvls.cc:255", "2 'out of memory'"),
        ("transport/nvls.cc:255", "700 'an illegal memory access was encountered'"),
    ],
)
def test_other_cuda_failures_are_not_taken_for_a_fault_of_the_path(place: str, text: str) -> None:
    specific = {"p2p-import-failed", "nvls-fabric-manager", "shm-cumem-host-failed", "cuda-init-error"}
    assert not specific & set(names(read(cuda_failure(0, place, text))))


def test_the_same_text_from_two_places_is_two_statements() -> None:
    text = "1 'invalid argument'"
    job = read(cuda_failure(0, "transport/p2p.cc:275", text) + cuda_failure(0, "transport/nvls.cc:255", text))
    assert names(job) == ["p2p-import-failed", "nvls-fabric-manager"]


def test_nvls_given_up_by_some_ranks_only_is_an_error() -> None:
    start = (
        "ncclCommInitRank comm 0x{0} rank {0} nranks 2 cudaDev {0} nvmlDev {0} busId {0}0 commId 0x2 - Init COMPLETE"
    )
    given_up = (
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2 : CUDA error 1 'invalid argument'. "
        "Proceeding without NVLS support."
    )
    begun = "".join(line(rank, start.format(rank)) for rank in (0, 1))
    assert found(read(begun + line(0, given_up)), "nvls-fabric-manager").severity == "error"
    both = begun + line(0, given_up) + line(1, given_up)
    assert found(read(both), "nvls-fabric-manager").severity == "warning"


PLUGIN_FAILED = line(0, "NET/OFI aws-ofi-nccl initialization failed", "node-a").replace("INFO", "WARN")
NO_PROTOCOL = line(0, "NET/OFI Unable to find a protocol that worked.  Failing initialization.", "node-a").replace(
    "INFO", "WARN"
)
TOO_OLD = line(0, "NET/OFI EFA provider requires at least libfabric version 1.22.0.", "node-a").replace("INFO", "WARN")


def test_the_plugin_that_fails_is_told_by_its_most_specific_rule() -> None:
    assert names(read(PLUGIN_FAILED + SOCKET)) == ["socket-instead-of-efa", "efa-init-failed"]
    assert names(read(TOO_OLD + PLUGIN_FAILED + SOCKET)) == ["socket-instead-of-efa", "efa-libfabric-incompat"]
    assert names(read(NO_PROTOCOL + PLUGIN_FAILED + SOCKET)) == ["socket-instead-of-efa", "efa-provider-missing"]


def test_a_plugin_that_finds_no_provider_is_fatal_only_where_nothing_follows() -> None:
    dies = "NCCL version 2.28.9+cuda13.0\n" + NO_PROTOCOL + PLUGIN_FAILED
    assert read(dies).verdict == "failed"
    assert found(read(dies), "efa-provider-missing").confidence == "likely", "a log that was cut looks the same"
    assert read(dies + line(0, "Using network Socket", "node-a")).verdict != "failed"
    assert read(dies.replace("2.28.9", "2.27.3")).verdict != "failed", "other releases go on without the plugin"


def test_a_setting_is_told_where_the_hardware_has_no_p2p_anyway() -> None:
    (found,) = read(P2P_OFF + SHM, topology=G6E_TOPOLOGY).findings
    assert (found.rule, found.severity) == ("shm-instead-of-p2p", "info")
    assert "NCCL_P2P_DISABLE=1" in found.cause
    assert any("NCCL_P2P_DISABLE" in line.text for line in found.evidence)
    assert "NCCL does not read NCCL_P2P_LEVEL" in found.fix[0]
    assert "NCCL_P2P_DISABLE" not in "".join(read(SHM, topology=G6E_TOPOLOGY).findings[0].fix)


def test_transfers_that_were_refused_are_told_with_each_status() -> None:
    job = read("".join(completion(status, rank) for rank, status in enumerate((19, 11, 11, 5))))
    told = found(job, "ib-completion-error")
    assert told.summary == "3 transfers failed: fatal error (status 19), remote operation error (status 11)"
    assert told.cause == "the card or its driver failed"


def test_a_wait_between_two_ranks_is_laid_to_the_other_one_only() -> None:
    job = nccl_inspect.read(str(ROOT / "sample_logs" / "torch-size-mismatch"))
    finding = found(job, "watchdog-timeout")
    assert finding.ranks == [0]
    assert "rank 1 waited 15 s for RECV" in finding.summary


@pytest.mark.parametrize(("processes", "times"), [(1, 1), (1, 2), (16, 1), (16, 2)])
def test_a_job_that_ends_without_a_provider_failed_however_large_it_is(processes: int, times: int) -> None:
    """2.28.9 dies there without an error; a container that is started again says the same once more."""
    said = (
        "node-{0}:9305:9305 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
        "node-{0}:9305:9305 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2\n"
        "node-{0}:9305:9305 [0] NCCL INFO NET/OFI No eligible providers were found\n"
        "[2026-11-20 23:21:18] node-{0}:9305:9305 [0] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):352 "
        "NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n"
        "node-{0}:9305:9305 [0] NCCL INFO Failed to initialize NET plugin Libfabric\n"
    )
    job = nccl_inspect.read("".join(said.format(node) * times for node in range(processes)).encode())
    assert job.verdict == "failed"
    assert job.findings[0].rule == "efa-provider-missing"


def test_where_the_plugin_for_efa_is_not_in_the_image_the_cure_begins_there() -> None:
    line = "a:1:1 [0] NCCL INFO {}\n"
    missing = line.format("NET/Plugin: Could not find: libnccl-net-aws-ofi.so. ")
    channel = "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [{}] via NET/Socket/0\n"
    job = nccl_inspect.read(
        f"{missing}a:1:1 [0] {channel.format('send')}b:1:1 [0] {channel.format('receive')}".encode()
    )
    found = next(finding for finding in job.findings if finding.rule == "socket-instead-of-efa")
    assert "did not find its file" in found.cause
    assert "into the image" in found.fix[0]


@pytest.mark.parametrize(
    ("release", "worded"),
    [("2.11.4", "7, and the limit is 4 (PXB)"), ("2.21.5", "7 (SYS), and the limit is 4 (PXB)"), ("2.28.9", "7 (PXN)")],
)
def test_a_nic_that_is_too_far_away_needs_no_kernel_module(release: str, worded: str) -> None:
    """NCCL measures the distance after it has found that the drivers support GPUDirect; the numbers change."""
    job = read(
        f"NCCL version {release}+cuda12.4\n"
        + line(0, "GPU Direct RDMA Disabled for GPU 18000 / HCA 0 (distance 7 > 4)", "a")
        + line(0, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0", "a")
        + line(1, "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0", "b")
    )
    finding = found(job, "gdr-disabled")
    assert worded in finding.cause
    assert not any("peermem" in step for step in finding.fix)


def test_a_setting_that_names_cards_does_not_show_any() -> None:
    job = read(line(0, "NCCL_IB_HCA set to mlx5_bond", "node-a") + SOCKET)
    finding = found(job, "socket-instead-of-ib")
    assert finding.cause.startswith("NCCL_IB_HCA=mlx5_bond names NICs")
    assert finding.fix[0].startswith("ibv_devices")
    assert finding.fix[1].startswith("unset NCCL_IB_HCA")


@pytest.mark.parametrize(
    ("level", "platform", "suspected"),
    [("NVL", None, True), ("PIX", None, True), ("SYS", None, False), ("NVL", "p5.48xlarge", False)],
)
def test_a_level_that_leaves_pairs_out_is_a_suspect(level: str, platform: str | None, suspected: bool) -> None:
    """Below PXB, NCCL's own choice; pairs on NVLink it does not leave out."""
    text = line(0, f"NCCL_P2P_LEVEL set by environment to {level}") + SHM
    finding = found(nccl_inspect.read(text.encode(), platform=platform), "shm-instead-of-p2p")
    assert ("NCCL_P2P_LEVEL" in finding.cause) == suspected
    assert finding.fix[0].startswith("unset NCCL_P2P_LEVEL") == suspected


@pytest.mark.parametrize(
    ("net", "platform", "daemon"),
    [("FasTrak", "a3-megagpu-8g", "tcpxo-daemon"), ("GPUDirectTCPX_v7", "a3-highgpu-8g", "tcpx-daemon")],
)
def test_plugins_of_google_need_no_kernel_module(net: str, platform: str, daemon: str) -> None:
    """Their guide sets PIX, which is no limit to be lifted there."""
    level = line(0, "NCCL_NET_GDR_LEVEL set by environment to PIX", "node-a")
    job = nccl_inspect.read((level + SOCKET.replace("NET/Socket", f"NET/{net}")).encode(), platform=platform)
    steps = found(job, "gdr-disabled").fix
    assert not any("peermem" in step or "unset" in step for step in steps)
    assert any(f"-c {daemon}" in step for step in steps)


def test_ranks_that_nccl_names_with_other_releases_are_told_with_them() -> None:
    said = "init.cc:729 NCCL WARN Mismatched NCCL version detected : rank 0 version 22705 rank 4 version 22703"
    job = read(line(0, "NCCL version 2.27.5+cuda12.9") + f"vm:100:140 [0] {said}\n")
    finding = found(job, "version-mismatch")
    assert finding.summary.endswith("2.27.3, 2.27.5")
    assert finding.cause == "rank 4 has 2.27.3; rank 0 has 2.27.5"


@pytest.mark.parametrize(
    ("error", "rule", "step"),
    [
        ("peer access is not supported between these two devices", "cuda-failure-in-connect", "NCCL_P2P_DISABLE=1"),
        ("API call is not supported in the installed CUDA driver", "cuda-failure-in-connect", "newer driver"),
        ("forward compatibility was attempted on non supported HW", "cuda-init-error", "LD_LIBRARY_PATH"),
        ("CUDA-capable device(s) is/are busy or unavailable", "cuda-init-error", "compute_mode"),
    ],
)
def test_an_error_of_cuda_that_is_the_cause_leads_to_no_search_for_a_broken_gpu(
    error: str, rule: str, step: str
) -> None:
    job = read(f"vm:100:140 [0] init.cc:1783 NCCL WARN Cuda failure '{error}'\n")
    finding = found(job, rule)
    assert "unknown from this log" not in finding.cause
    assert any(step in one for one in finding.fix)
    assert not any("xid" in one.lower() for one in finding.fix)


def test_ranks_that_wait_in_different_calls_are_told_with_their_calls() -> None:
    (log,) = [one.log for one in examples("watchdog-timeout") if b"_ALLGATHER_BASE" in one.log]
    finding = found(nccl_inspect.read(log), "watchdog-timeout")
    assert "rank 3 waited 600 s for _ALLGATHER_BASE (work 88" in finding.summary
    assert "rank 5 for ALLREDUCE (work 89) and timed out" in finding.summary
    assert "suspect" not in finding.summary  # each is inside a call: the log does not tell which is wrong
    assert [line.line for line in finding.evidence] == [1, 3]


@pytest.mark.parametrize("name", ["loopback-between-hosts", "mixed-networks"])
def test_what_stops_a_job_is_fatal_only_where_no_initialisation_was_finished(name: str) -> None:
    log = next(one.log for one in examples(name) if b"Init START" in one.log and b"WARN" not in one.log)
    stuck = nccl_inspect.read(log)
    assert (stuck.verdict, found(stuck, name).confidence) == ("failed", "likely")
    starts = [line for line in log.splitlines(keepends=True) if b"Init START" in line]
    done = nccl_inspect.read(log + b"".join(starts).replace(b"START", b"COMPLETE"))
    assert not found(done, name).fatal
    assert done.verdict == "degraded"


def test_a_setting_without_an_effect_in_the_log_does_not_hide_paths_that_lack_something() -> None:
    settings = line(0, "NCCL_NET_GDR_LEVEL set by environment to LOC") + line(0, "NCCL_ALGO set by environment to Ring")
    job = read(settings + line(0, "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0"))
    assert [finding.rule for finding in job.findings][:2] == ["gdr-disabled", "algo-proto-forced"]
    assert job.findings[0].fix[0].startswith("unset NCCL_NET_GDR_LEVEL ")
    assert not [step for step in job.findings[0].fix[1:] if step.startswith("unset")]


def test_a_number_of_nics_that_no_host_has_is_not_counted() -> None:
    found_nics = "NET/OFI Selected provider is efa, fabric is efa (found %d nics)"
    job = nccl_inspect.read(
        b"a:1:1 [0] NCCL INFO "
        + (found_nics % 10**15).encode()
        + b"\nb:1:1 [0] NCCL INFO "
        + (found_nics % 4).encode()
        + b"\n"
    )
    assert not [finding for finding in job.findings if finding.rule == "nic-asymmetry"]
