"""The rules: every page is complete and its examples come out as it says, and the engine joins findings."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import engine as grammar
from nccl_inspect.model.job import Finding, Job
from nccl_inspect.platforms import named
from nccl_inspect.rules import engine

HERE = Path(__file__).parent
FIELD_NOTES = HERE.parent / "sample_logs" / "field-notes"
G6E_TOPOLOGY = str(HERE / "data" / "g6e.nvidia-smi-topo.txt")
RULES = {entry.rule.name: entry.rule for entry in engine.registered()}
HEADINGS = [
    "What it means",
    "Why it matters",
    "What to do",
    "When to ignore it",
    "What it does not prove",
    "Examples",
]
OUTCOMES = {"raises", "silent", "undecided"}
OPTIONS = {"severity", "confidence", "platform", "topology", "repeat"}
BLOCK = re.compile(r"^```log (?P<info>.*)\n(?P<log>(?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A fenced log of a page with what must come out of it."""

    rule: str
    number: int
    outcome: str
    options: dict[str, str]
    log: bytes

    def read(self) -> Job:
        topology = self.options.get("topology")
        return nccl_inspect.read(
            self.log * int(self.options.get("repeat", 1)),
            platform=self.options.get("platform"),
            topology=str(HERE / "data" / f"{topology}.nvidia-smi-topo.txt") if topology else (),
        )


def examples(name: str) -> Iterator[Example]:
    for number, block in enumerate(BLOCK.finditer(RULES[name].page), 1):
        outcome, *options = block["info"].split()
        values = dict(option.split("=", 1) for option in options)
        yield Example(name, number, outcome, values, block["log"].encode())


EXAMPLES = [pytest.param(e, id=f"{e.rule}-{e.number}-{e.outcome}") for name in RULES for e in examples(name)]


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
    parts = re.split(r"^#.*$", page, flags=re.MULTILINE)
    assert all(part.strip() for part in parts[1:])
    assert max(map(len, prose.splitlines())) <= 120
    kinds = {example.outcome for example in examples(name)}
    assert {"raises", "silent"} <= kinds <= OUTCOMES


def test_every_page_has_a_rule() -> None:
    pages = {path.stem.replace("_", "-") for path in Path(engine.__file__).parent.glob("*.md")}
    assert pages == set(RULES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_comes_out_as_its_page_says(example: Example) -> None:
    assert example.options.keys() <= OPTIONS
    job = example.read()
    sound = all(source.unrecognised_lines == source.damaged_lines == 0 for source in job.sources)
    assert sound or example.rule == "lines-damaged"
    findings = [finding for finding in job.findings if finding.rule == example.rule]
    open_questions = [question for question in job.not_judged if question.rule == example.rule]
    if example.outcome == "raises":
        (finding,) = findings
        assert example.options.get("severity", finding.severity) == finding.severity
        assert example.options.get("confidence", finding.confidence) == finding.confidence
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


def line(rank: int, message: str, host: str = "vm") -> str:
    return f"{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {message}\n"


SHM = line(0, "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct")
P2P = line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
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
    assert {*rule.because, *rule.echo_of, *rule.specific} <= set(RULES)
    assert rule.severity in engine.SEVERITIES


def test_verdicts() -> None:
    assert read(P2P).verdict == "ok"
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
    assert names(job) == ["one-gpu-per-pod"]
    finding = job.findings[0]
    assert finding.severity == "error"
    assert "NVLink idle" in finding.impact
    assert all(path.detail == "NET/Libfabric" and path.gdr is True for path in job.paths)


def test_field_notes_g6e_over_efa() -> None:
    job = field_note("g6e-4x4-efa-libfabric.log", platform="g6e.12xlarge", topology=G6E_TOPOLOGY)
    assert job.verdict == "ok"
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
    for file in sorted(Path(engine.__file__).parent.glob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "notices":
                names = {argument.value for argument in call.args if isinstance(argument, ast.Constant)}
                assert names <= known, file.name
