"""The rules: every page is complete and its examples come out as it says, and the engine joins findings."""

import ast
import re
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest
from repository import ROOT, TESTS
from rule_pages import EXAMPLES, RULES, Example, examples

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import engine as grammar
from nccl_inspect.judging import engine
from nccl_inspect.judging.relations import Relations, relations
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.platforms import named

FIELD_NOTES = ROOT / "sample_logs" / "field-notes"
G6E_TOPOLOGY = str(TESTS / "data" / "g6e.nvidia-smi-topo.txt")
HEADINGS = [
    "What it means",
    "Why it matters",
    "What to do",
    "When to ignore it",
    "What it does not prove",
    "Examples",
]
OUTCOMES = {"raises", "silent", "undecided"}
OPTIONS = {"severity", "confidence", "clue", "platform", "topology", "repeat", "beside", "ranks", "line"}
RANK_IN_FRONT = "the rank stands in front of the line only"
RANK_IN_TEXT = "the rank stands in the message only"
OTHER_LINE = "the line that shows it is not among those quoted"
SHORT = {
    "bootstrap-failed-1-raises": RANK_IN_TEXT,
    "container-killed-1-raises": "of the ranks in the pod those are left out that wrote nothing after the start",
    "cuda-init-error-10-raises": RANK_IN_FRONT,
    "duplicate-gpu-10-raises": RANK_IN_TEXT,
    "few-channels-1-raises": OTHER_LINE,
    "few-channels-5-raises": OTHER_LINE,
    "gdr-one-sided-1-raises": "the lines quoted are those of the sound ends",
    "gpu-hardware-error-2-raises": RANK_IN_FRONT,
    "gpu-hardware-error-7-raises": RANK_IN_FRONT,
    "internal-error-2-raises": RANK_IN_FRONT,
    "invalid-usage-7-raises": RANK_IN_FRONT,
    "nccl-check-failed-2-raises": RANK_IN_TEXT,
    "nic-asymmetry-3-raises": RANK_IN_TEXT,
    "nic-asymmetry-8-raises": RANK_IN_TEXT,
    "nic-shared-1-raises": OTHER_LINE,
    "no-transport-1-raises": RANK_IN_TEXT,
    "no-transport-2-raises": RANK_IN_TEXT,
    "no-transport-3-raises": RANK_IN_TEXT,
    "nonblocking-timeout-1-raises": RANK_IN_FRONT,
    "one-gpu-per-pod-2-raises": "a rank without a connection in the log is left out",
    "process-unresponsive-1-raises": "the answer of RAS names the rank, far below its first line",
    "ring-crosses-nodes-too-often-1-raises": OTHER_LINE,
    "rings-disagree-1-raises": OTHER_LINE,
    "rings-disagree-2-raises": OTHER_LINE,
    "unhandled-cuda-error-1-raises": RANK_IN_FRONT,
    "unhandled-system-error-1-raises": RANK_IN_FRONT,
    "version-mismatch-2-raises": RANK_IN_TEXT,
    "version-mismatch-3-raises": RANK_IN_TEXT,
}
"""Examples whose finding says less than the log: their pages state what is true."""


def found(job: Job, rule: str) -> Finding:
    matches = [finding for finding in job.findings if finding.rule == rule]
    assert len(matches) == 1, [finding.rule for finding in job.findings]
    return matches[0]


def names(job: Job) -> list[str]:
    return [finding.rule for finding in job.findings]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_a_complete_page(name: str) -> None:
    page = RULES[name].page
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    assert page.startswith(f"# {name}\n\n")
    assert re.findall(r"^## (.*)$", prose, re.MULTILINE) == HEADINGS
    plain = re.sub(r"^```.*?^```$", "example", page, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#.*$", plain, flags=re.MULTILINE)
    assert all(part.strip() for part in parts[1:])
    assert max(map(len, prose.splitlines())) <= 120
    kinds = {example.outcome for example in examples(name)}
    assert {"raises", "silent"} <= kinds <= OUTCOMES


def test_every_page_has_a_rule() -> None:
    pages = {path.stem.replace("_", "-") for path in (Path(engine.__file__).parents[1] / "rules").glob("*.md")}
    assert pages == set(RULES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_comes_out_as_its_page_says(example: Example) -> None:
    assert example.options.keys() <= OPTIONS
    job = example.read()
    sound = all(source.unrecognised_lines == source.damaged_lines == 0 for source in job.sources)
    assert sound or example.rule in ("lines-damaged", "lines-cut-off")
    findings = [finding for finding in job.findings if finding.rule == example.rule]
    open_questions = [question for question in job.not_judged if question.rule == example.rule]
    if example.outcome == "raises":
        (finding,) = findings
        assert example.options.get("severity", finding.severity) == finding.severity
        assert example.options.get("confidence", finding.confidence) == finding.confidence
        assert finding.clue == (example.options.get("clue") == "true")
        if finding.clue:
            assert finding.confidence != "certain"
            assert finding.confirm
        assert finding.evidence
        assert finding.summary
        assert finding.cause
        assert finding.impact
        assert finding.fix
    elif example.outcome == "silent":
        assert not findings
    else:
        assert open_questions
        assert all(question.reason and question.needs for question in open_questions)
        assert all(finding.confidence == "possible" for finding in findings)


def _known(example: Example) -> object:
    reason = SHORT.get(example.id)
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    return pytest.param(example, id=example.id, marks=marks)


@pytest.mark.parametrize(
    "example", [_known(example) for name in RULES for example in examples(name) if example.outcome == "raises"]
)
def test_the_finding_of_an_example_names_its_ranks_and_quotes_the_line_that_shows_it(example: Example) -> None:
    (finding,) = [finding for finding in example.read().findings if finding.rule == example.rule]
    assert finding.ranks == example.ranks
    quoted = {(Path(one.source).name, one.line) for one in finding.evidence}
    source, _, number = example.options["line"].rpartition(":")
    assert (source or "<bytes>", int(number)) in quoted


def test_examples_that_say_less_than_the_log_exist() -> None:
    assert SHORT.keys() <= {example.id for name in RULES for example in examples(name)}


def line(rank: int, message: str, host: str = "vm") -> str:
    return f"{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {message}\n"


SHM = line(0, "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct")
P2P = line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
COMPLETE = line(0, "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE")
CONNECTED = line(0, "Connected all rings, use ring PXN 0 GDR 1")
P2P_OFF = line(0, "NCCL_P2P_DISABLE set by environment to 1")
SOCKET = "".join(
    f"node-{host}:{pid}:{pid} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [{side}] via NET/Socket/0\n"
    for host, pid, side in (("a", 1, "send"), ("b", 2, "receive"))
)


def read(text: str, **options: str | list[str]) -> Job:
    return nccl_inspect.read(text.encode(), **options)  # type: ignore[arg-type]


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


def cuda_failure(rank: int, place: str, text: str) -> str:
    version = line(rank, "NCCL version 2.27.3+cuda12.9")
    return f"{version}vm:{100 + rank}:{100 + rank} [{rank}] {place} NCCL WARN Cuda failure {text}\n"


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
    assert names(job) == ["nvls-fabric-manager", "p2p-import-failed"]


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


def test_a_specific_rule_silences_the_generic_one() -> None:
    assert names(read(SOCKET)) == ["socket-instead-of-rdma"]
    assert names(read(SOCKET, platform="p5.48xlarge")) == ["socket-instead-of-efa"]
    assert names(read(SOCKET, platform="p5.48xlarge", ignore=["socket-instead-of-efa"])) == ["socket-instead-of-rdma"]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["p2p-disabled-by-env"], {"p2p-disabled-by-env"}),
        (["shm-*"], {"shm-instead-of-p2p"}),
        (["intra-node path"], {"p2p-disabled-by-env", "shm-instead-of-p2p"}),
        (["Intra-Node Path"], {"p2p-disabled-by-env", "shm-instead-of-p2p"}),
        (["network"], set()),
    ],
)
def test_rules_are_selected_and_ignored_by_name_glob_and_category(select: list[str], expected: set[str]) -> None:
    assert set(names(read(P2P_OFF + SHM, select=select))) == expected
    assert set(names(read(P2P_OFF + SHM, ignore=select))) == {"p2p-disabled-by-env", "shm-instead-of-p2p"} - expected


def test_ignore_takes_away_from_select() -> None:
    left = {entry.rule.name for entry in engine.selected(["socket-*"], ["*-ib"])}
    assert left == {"socket-instead-of-efa", "socket-instead-of-rdma"}


@pytest.mark.parametrize("option", ["select", "ignore"])
def test_an_unknown_rule_is_an_error(option: str) -> None:
    with pytest.raises(NcclInspectError, match="no rule 'no-such-rule'"):
        read(SHM, **{option: ["no-such-rule"]})


def test_rules_are_ordered_by_category_and_name() -> None:
    order = [(engine.CATEGORIES.index(rule.category), rule.name) for rule in RULES.values()]
    assert all(before < after for before, after in pairwise(order))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_names_others_that_exist(rule: engine.Rule) -> None:
    assert set(rule.explains) <= set(RULES)
    assert rule.severity in engine.SEVERITIES


def test_every_effect_that_a_rule_names_exists() -> None:
    assert relations().unknown() == []


def test_no_rule_is_an_echo_of_its_own_echoes() -> None:
    TopologicalSorter({name: relations().leads(name) for name in RULES}).prepare()  # a cycle raises


def test_a_new_cause_names_its_effects_by_a_glob_and_edits_none_of_them() -> None:
    new = replace(RULES["plugin-not-found"], name="new-failure", causes=(), echoes=("watchdog-*",))
    known = Relations([*RULES.values(), new])
    assert "new-failure" in known.leads("watchdog-stuck") and "new-failure" in known.leads("watchdog-timeout")
    assert "new-failure" not in relations().leads("watchdog-stuck")


def test_verdicts() -> None:
    assert read(P2P).verdict == "unknown"  # an excerpt: it does not show that a communicator came up
    begun = line(0, "cudaDriverVersion 13000") + COMPLETE
    both = "".join(
        line(rank, "cudaDriverVersion 13000")
        + line(rank, f"comm 0x{rank} rank {rank} nranks 2 cudaDev {rank} busId {rank} commId 0x2 - Init COMPLETE")
        for rank in (0, 1)
    )
    assert read(both + P2P + CONNECTED).verdict == "ok"
    assert read(begun + P2P + CONNECTED).verdict == "unknown"  # rank 1 has no line
    assert read(COMPLETE + P2P + CONNECTED).verdict == "unknown"  # the end of a log
    assert read(begun + P2P).verdict == "unknown"  # the log ends while ranks connect
    assert read(SHM).verdict == "unknown"
    assert read(P2P_OFF + SHM).verdict == "degraded"
    assert read(line(0, "NCCL version 2.27.3+cuda12.9")).verdict == "unknown"
    start = line(0, "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x2 - Init START")
    assert read(start).verdict == "unknown"
    assert read(start + "launcher: timeout, killing 2 ranks\n").verdict == "failed"


def test_path_verdicts() -> None:
    job = read(P2P_OFF + SHM + P2P.replace("0[0] -> 1[1]", "1[1] -> 2[2]"))
    assert job.paths.between(0, 1).verdict == "fallback"
    assert job.paths.between(0, 1).rules == ["p2p-disabled-by-env", "shm-instead-of-p2p"]
    assert job.paths.between(1, 2).verdict == "ok"
    assert not job.paths.between(1, 2).rules
    assert read(SHM).paths.between(0, 1).verdict == "unknown"
    assert read(SHM, topology=G6E_TOPOLOGY).paths.between(0, 1).verdict == "ok"


@pytest.mark.parametrize(
    "machine",
    [{"platform": "p5en.48xlarge"}, {"topology": str(TESTS / "data" / "p4d.nvidia-smi-topo.txt")}],
    ids=lambda machine: next(iter(machine)),
)
def test_a_setting_leads_before_the_nvlink_that_it_keeps_idle(machine: dict[str, str]) -> None:
    job = read(P2P_OFF + SHM, **machine)
    assert [(one.rule, one.root) for one in job.findings if one.root] == [("p2p-disabled-by-env", True)]
    assert {"p2p-disabled-by-env", "nvlink-not-used"} <= {one.rule for one in job.findings}


def test_a_setting_is_told_where_the_hardware_has_no_p2p_anyway() -> None:
    (found,) = read(P2P_OFF + SHM, topology=G6E_TOPOLOGY).findings
    assert (found.rule, found.severity) == ("shm-instead-of-p2p", "info")
    assert "NCCL_P2P_DISABLE=1" in found.cause
    assert any("NCCL_P2P_DISABLE" in line.text for line in found.evidence)
    assert "NCCL does not read NCCL_P2P_LEVEL" in found.fix[0]
    assert "NCCL_P2P_DISABLE" not in "".join(read(SHM, topology=G6E_TOPOLOGY).findings[0].fix)


SEGMENT = "shared memory segment /dev/shm/nccl-hBUaf7 (size 33030528)"


def completion(status: int, rank: int = 0) -> str:
    said = f"NET/IB: Got completion from peer 10.0.0.2<40000> with status={status} opcode=0 len=0 vendor err 129 (Send)"
    return f"node-a:{100 + rank}:{100 + rank} [{rank}] transport/net_ib.cc:2449 NCCL WARN {said} hca mlx5_{rank}\n"


@pytest.mark.parametrize("status", [9, 10, 11, 13])
def test_a_transfer_that_was_refused_leads_to_transfers_without_an_answer(status: int) -> None:
    after = read(completion(12) + completion(status, rank=1))
    assert found(after, "ib-timeout-err12").confidence == "possible"
    assert f"(status {status})" in found(after, "ib-completion-error").summary
    before = read(completion(status, rank=1) + completion(12))
    assert "ib-timeout-err12" not in names(before)
    assert f"(status {status})" in found(before, "ib-completion-error").summary
    assert not before.unexplained


def test_transfers_that_were_refused_are_told_with_each_status() -> None:
    job = read("".join(completion(status, rank) for rank, status in enumerate((19, 11, 11, 5))))
    told = found(job, "ib-completion-error")
    assert told.summary == "3 transfers failed: fatal error (status 19), remote operation error (status 11)"
    assert told.cause == "the card or its driver failed"


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


def test_a_status_without_a_rule_stays_visible() -> None:
    alone = read(completion(6))
    assert [notice.message for notice in alone.unexplained] == [alone.notices[0].message]


def test_what_a_rule_explains_is_not_called_unexplained_when_the_rule_is_left_out() -> None:
    job = read(completion(12), ignore=["ib-timeout-err12"])
    assert names(job) == ["debug-level-too-low"]
    assert not job.unexplained
    assert job.verdict == "unknown"


def test_an_exception_that_only_announces_what_a_finding_quotes_is_not_unexplained() -> None:
    job = read(
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled cuda error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\nFailed to CUDA calloc async 24 bytes\n"
    )
    assert found(job, "gpu-out-of-memory").confidence == "possible"
    assert not job.unexplained


def test_the_status_that_came_first_is_the_root() -> None:
    job = read(completion(4) + completion(12, rank=1) + completion(5, rank=2))
    cause, effect = found(job, "ib-error4-acs"), found(job, "ib-timeout-err12")
    assert cause.root
    assert not effect.root
    assert "peer-death" not in names(job)
    assert not job.unexplained


def field_note(name: str, **options: str) -> Job:
    return nccl_inspect.read(FIELD_NOTES / name, **options)


def test_field_notes_p4d_one_pod() -> None:
    job = field_note("p4d-1pod-4gpu.log")
    assert job.verdict == "ok"
    assert names(job) == ["p2p-read-mode"]
    assert found(job, "p2p-read-mode").severity == "info"
    assert {path.detail for path in job.paths} == {"P2P/CUMEM/read"}
    assert not job.not_judged


def test_field_notes_p4d_four_pods() -> None:
    job = field_note("p4d-4pod-1gpu-efa.log")
    assert job.verdict == "degraded"
    assert names(job) == ["one-gpu-per-pod", "protocol-forced-by-plugin", "tuner-plugin-not-loaded"]
    finding, *notes = job.findings
    assert {note.severity for note in notes} == {"info"}
    assert finding.severity == "error"
    assert "NVLink idle" in finding.impact
    assert all(path.detail == "NET/Libfabric" and path.gdr is True for path in job.paths)


def test_field_notes_g6e_over_efa() -> None:
    job = field_note("g6e-4x4-efa-libfabric.log", platform="g6e.12xlarge", topology=G6E_TOPOLOGY)
    assert job.excerpt and job.verdict == "unknown"
    assert {path.verdict for path in job.paths} == {"ok"}
    assert sorted(names(job)) == ["gdr-not-possible", "shm-instead-of-p2p"]
    assert {finding.severity for finding in job.findings} == {"info"}
    assert "NODE" in found(job, "shm-instead-of-p2p").cause
    assert named("g6e.12xlarge").name in found(job, "gdr-not-possible").cause


@pytest.mark.parametrize("name", ["g6e-4x4-eni-socket.log", "g6e-4x4-eni-socket-trees.log"])
def test_field_notes_g6e_over_sockets(name: str) -> None:
    job = field_note(name, platform="g6e.12xlarge", topology=G6E_TOPOLOGY)
    assert job.verdict == "degraded"
    assert names(job) == ["socket-instead-of-efa", "shm-instead-of-p2p"]
    assert found(job, "shm-instead-of-p2p").severity == "info"
    assert any("vpc.amazonaws.com/efa" in step for step in found(job, "socket-instead-of-efa").fix)


@pytest.mark.parametrize(
    "name", ["g6e-4x4-efa-libfabric.log", "g6e-4x4-eni-socket.log", "g6e-4x4-eni-socket-trees.log"]
)
def test_field_notes_without_platform_and_topology_nothing_is_certain(name: str) -> None:
    job = field_note(name)
    assert found(job, "shm-instead-of-p2p").confidence == "possible"
    assert "shm-instead-of-p2p" in {question.rule for question in job.not_judged}
    assert all(finding.confidence != "certain" for finding in job.findings)
    with_topology = found(field_note(name, topology=G6E_TOPOLOGY), "shm-instead-of-p2p")
    assert (with_topology.severity, with_topology.confidence) == ("info", "certain")


def test_productions_that_rules_ask_for_exist() -> None:
    """Rules look for statements by the name of their production; a name that no file has is never found."""
    known = {production.name for production in grammar.shipped().productions}
    for file in sorted((Path(engine.__file__).parents[1] / "rules").glob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "notices":
                names = {argument.value for argument in call.args if isinstance(argument, ast.Constant)}
                assert names <= known, file.name


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
    assert finding.cause.startswith("NCCL_IB_HCA=mlx5_bond names cards")
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
