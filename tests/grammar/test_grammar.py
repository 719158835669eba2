"""The grammar files: every production reads and writes its samples, and nobody else's."""

import pytest

import nccl_inspect
from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine, notation
from nccl_inspect.grammar.production import Production
from nccl_inspect.grammar.types import field_type
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.scanning import meaning

GRAMMAR = engine.shipped()
PRODUCTIONS = [pytest.param(p, id=f"{p.dialect}-{p.name}") for p in GRAMMAR.productions]


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_samples_are_read_and_written_back_byte_for_byte(production: Production) -> None:
    assert production.samples, "a production needs a sample"
    for sample in production.samples:
        message = sample.encode()
        match = production.match(message)
        if match is None:
            end = production.matched_up_to(message)
            pytest.fail(f"\n{sample}\n{'-' * end}^ matched up to here")
        assert production.render(match) == message


def _parse(production: Production, sample: str) -> engine.Parsed | None:
    """A line without a prefix is parsed by itself, not as a message."""
    if production.foreign:
        among = GRAMMAR.traced if production.traced else GRAMMAR.last if production.last else None
        return GRAMMAR.parse_foreign(sample.encode(), among)
    return GRAMMAR.parse_bare(sample.encode()) if production.follows else GRAMMAR.parse(sample.encode())


def _candidates(production: Production, sample: str) -> list[Production]:
    if production.traced:
        return [next(other for other in GRAMMAR.traced if other.match(sample.encode()))]
    if production.last:
        return GRAMMAR.last
    if production.foreign:
        others = (other for other in GRAMMAR.productions if other.foreign and not (other.traced or other.last))
        return [other for other in others if (other.general, other.rest) <= (production.general, production.rest)]
    if production.follows:
        return [other for other in GRAMMAR.productions if other.bare]
    return list(GRAMMAR.candidates(sample.encode()))


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_sample_is_claimed_by_one_production_only(production: Production) -> None:
    for sample in production.samples:
        claims = {f"{p.dialect}/{p.name}" for p in _candidates(production, sample) if p.match(sample.encode())}
        assert claims == {f"{production.dialect}/{production.name}"}


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_production_makes_its_event(production: Production) -> None:
    kind = events.KINDS[production.event]
    for sample in production.samples:
        parsed = _parse(production, sample)
        assert parsed is not None
        assert isinstance(parsed.event, kind)


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_pattern_is_linear_and_has_a_fixed_literal(production: Production) -> None:
    nodes = notation.parse(production.line)
    has_literal = len(notation.needle(nodes).strip()) >= 2 or min(map(len, notation.leads(nodes))) >= 4
    assert has_literal or production.foreign, "no fixed literal"
    assert _free_texts_before_a_literal(nodes) <= 2, "several free texts make matching slow"


def _free_texts_before_a_literal(nodes: notation.Sequence) -> int:
    """The number of free texts that a message can have, of the alternatives one, but for one at its end."""
    counts = [_free_texts(node) for node in nodes if not isinstance(node, notation.Literal)]
    return sum(counts) - bool(counts and counts[-1])


def _free_texts(node: notation.Node) -> int:
    if isinstance(node, notation.Choice):
        return max(sum(map(_free_texts, option)) for option in node.options)
    if not isinstance(node, notation.Field) or node.spec.startswith("*"):
        return 0
    return int(field_type(node.spec).free)


@pytest.mark.parametrize("production", PRODUCTIONS)
def test_a_production_says_what_it_means(production: Production) -> None:
    assert production.says.endswith((".", ")")), "a sentence for people"
    assert production.subsys


def test_names_are_unique_within_a_dialect() -> None:
    names = [(p.dialect, p.name) for p in GRAMMAR.productions]
    assert len(names) == len(set(names))


def test_what_a_line_goes_on_with_exists() -> None:
    names = {(p.dialect, p.name) for p in GRAMMAR.productions}
    assert all((p.dialect, p.follows) in names for p in GRAMMAR.productions if p.follows)


def test_a_message_of_several_lines_is_one_event() -> None:
    head = next(p for p in GRAMMAR.productions if p.name == "enabled-matrix")
    rows = [p for p in GRAMMAR.productions if p.follows == head.name]
    lines = [f"vm:1:1 [0] NCCL INFO {head.samples[0]}", *(sample for row in rows for sample in row.samples)]
    found = list(nccl_inspect.events("\n".join(lines).encode()))
    assert [event.production for event in found] == ["enabled-matrix"]
    assert found[0].message.count("\n") == len(lines) - 1


FOREIGN = [
    pytest.param(p, id=f"{p.dialect}-{p.name}") for p in GRAMMAR.productions if p.foreign and not (p.traced or p.last)
]


@pytest.mark.parametrize("production", FOREIGN)
def test_a_line_of_another_program_is_found_by_a_literal_that_other_text_does_not_hold(production: Production) -> None:
    for sign in production.signs:
        assert len(sign) >= (len("Error: ") if production.general else 8) or b"\t" in sign, "tabs divide columns only"
    for sample in production.samples:
        line = sample.encode()
        parsed = GRAMMAR.parse_foreign(line)
        assert parsed is not None
        assert parsed.production is production
        assert GRAMMAR.parse_bare(line) is None, "it would be taken for a line of NCCL"
        assert prefix.split(line) is None, "it would be taken for a line of NCCL"


def test_lines_of_nccl_are_not_taken_for_those_of_other_programs() -> None:
    samples = [sample for p in GRAMMAR.productions if not p.foreign for sample in p.samples]
    taken = [sample for sample in samples if GRAMMAR.parse_foreign(sample.encode())]
    # Without NCCL's prefix, with which it always comes, it has the form of an exception.
    assert taken == ["ncclCommSetAsyncError: error comm 0x7f01a0 sets state 3"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{'loss': 2.1, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}",
        b"***** Running training *****",
        b"  Num examples = 1,000",
        b"[bench] world allreduce 268435456 bytes time 1.352 ms algbw 198.55 GB/s busbw 347.45 GB/s",
        b"rank 3: InitRank(&c,n,sh->id,rank) failed rc 3",
        b"launcher: timeout, killing 4 ranks",
        b"   268435456      67108864     float",
        b"see https://ofiwg.github.io/libfabric: providers <warn> text",
        b"Last error: connection refused, will try again",
        b"waiting for the watchdog thread to be joined",
        b"epoch 3  time      : 12.1 s",
        b"srun: job 123456 queued and waiting for resources",
    ],
)
def test_a_line_of_an_application_is_nobodys(line: bytes) -> None:
    assert GRAMMAR.parse_foreign(line) is None


def test_an_exception_of_an_application_proves_nothing() -> None:
    parsed = GRAMMAR.parse_foreign(b"RuntimeError: shapes do not match")
    assert parsed is not None
    assert isinstance(parsed.event, events.Notice)
    assert parsed.event.tone == "loose", "it may have been caught"


def test_a_row_of_nccl_tests_is_read_by_position() -> None:
    row = (
        b"   536870912     134217728     float     sum      -1"
        b"   2983.3  179.96  314.93       0   2979.1  180.21  315.37     N/A"
    )
    (event,) = nccl_inspect.events(row)
    assert isinstance(event, events.NcclTestResult)
    assert (event.size, event.count, event.dtype, event.redop, event.root) == (536870912, 134217728, "float", "sum", -1)
    assert (event.time_us, event.algbw, event.busbw, event.wrong) == (2983.3, 179.96, 314.93, 0.0)
    assert (event.in_place_time_us, event.in_place_busbw, event.in_place_wrong) == (2979.1, 315.37, None)


def test_a_timeout_tells_who_waited_for_what() -> None:
    line = (
        b"[rank11]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] "
        b"[Rank 3] Watchdog caught collective operation timeout: "
        b"WorkNCCL(SeqNum=64, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000)"
        b" ran for 600052 milliseconds before timing out."
    )
    (event,) = nccl_inspect.events(line)
    assert isinstance(event, events.CollectiveTimeout)
    assert (event.global_rank, event.rank, event.group, event.seq, event.operation) == (11, 3, None, 64, "ALLREDUCE")
    assert (event.numel_in, event.numel_out, event.timeout_ms, event.ran_ms) == (8, 8, 600000, 600052)


@pytest.mark.parametrize(
    ("message", "release"),
    [
        ("Net : Unsupported address family type", "2.4.2"),
        ("User asked for a minimum of 128 channels, limiting to 64", "2.5.6"),
        ("Invalid NCCL_NTHREADS 100 (must be a multiple of 32)", "2.5.6"),
        ("Could not open XML topology file /etc/topo.xml : No such file or directory", "2.6.4"),
        ("Unable to open /nowhere/topo.xml, not dumping topology.", "2.6.4"),
        ("Connection to proxy localRank 1 -> connection 0x7fe690004d30", "2.12.7"),
        ("NCCL_CGA_CLUSTER_SIZE value 16 is too big. Limiting value to 8.", "2.15.1"),
        ("bootstrapSplit: rank 0 nranks 2 color 0 key 0 prev 1 next 1 - DONE", "2.18.1"),
        ("NCCL version mismatch with remote peer 10.0.0.2<40000> (local: 22403, remote 22605)", "2.24.3"),
    ],
)
def test_a_production_begins_with_the_first_release_that_prints_it(message: str, release: str) -> None:
    """Releases are inferred from it where no line tells them (tags of github.com/NVIDIA/nccl)."""
    parsed = GRAMMAR.parse(message.encode())
    assert parsed is not None
    assert parsed.production.versions.partition("..")[0] == release


def test_a_warning_of_old_releases_does_not_spoil_what_is_inferred() -> None:
    """A warning until 2.26 and a note since 2.27.3, in the same words: src/graph/xml.cc."""
    log = (
        "vm:1:1 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.2<0>\n"
        "vm:1:1 [0] NCCL INFO Using network Socket\n"
        "vm:1:1 [0] graph/xml.cc:378 NCCL WARN Could not open XML topology file /etc/topo.xml : No such file\n"
        "vm:1:20 [0] NCCL INFO Channel 00/02 :    0   1\n"
    )
    assert nccl_inspect.read(log.encode()).nccl_versions == ["2.8.3 to 2.22.3 (inferred)"]


@pytest.mark.parametrize(
    "line",
    [
        "vm:1:1 [0] xml.cc:419 NCCL WARN Could not find real path of /sys/class/pci_bus/fffffff/../../fffffff:ff:f",
        "vm:1:1 [0] proxy.cc:1600 NCCL WARN [Service thread] shm close failed",
        "vm:1:1 [0] os/linux.cc:80 NCCL WARN sched_setaffinity failed with error: Invalid argument",
    ],
)
def test_a_warning_that_is_harmless_is_no_reason_to_worry(line: str) -> None:
    found = meaning.of_line(line, GRAMMAR)
    assert found is not None
    assert "armless" in found.production.says
    assert found.worry.startswith("it depends")
