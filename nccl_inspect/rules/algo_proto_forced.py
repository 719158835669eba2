"""The user forces NCCL's algorithm, protocol or buffers."""

from collections.abc import Iterator

from nccl_inspect.judging.clouds import vendor_asks, vendor_may_ask
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, lines_of, unset, words_of
from nccl_inspect.judging.networks.fabrics import efa_hints
from nccl_inspect.judging.remedies import EFA_RELEASES
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="algo-proto-forced",
    category="environment",
    severity="warning",
    title="A setting forces the algorithm or the protocol",
    causes=("bandwidth-low", "ring-crosses-nodes-too-often"),
)
_CHOICES = ("NCCL_ALGO", "NCCL_PROTO")
_SIZES = ("NCCL_NTHREADS", "NCCL_BUFFSIZE")
_BY_SIZE = (
    "NCCL chooses by message size and topology, and a tuner plugin no longer can: what is best for large messages is "
    "slow for small ones, and the other way round. How much is not in the log"
)
_LITTLE = "little or none by itself; the defaults change with releases and machines, a fixed value does not"
_UNCHECKED = (
    "allows LL128 without NCCL's own check: between GPUs without NVLink, of different kinds or before Volta, or with a "
    "NIC beyond the CPU, results may silently be wrong"
)
"""By itself NCCL takes LL128 only where it was tested (src/graph/tuning.cc: 'may cause silent data corruption')."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what the user set; what a plugin sets, such as NCCL_PROTO=simple of aws-ofi-nccl, it needs."""
    if unsafe_here := facts.leading_to(RULE.name):
        yield _refused(facts, unsafe_here)
        return
    found = facts.chosen(*_CHOICES, *_SIZES)
    open_ones = [setting for setting in found if _is_perhaps_of_plugin(facts, setting)]
    if open_ones:
        yield RULE.undecided(
            f"{words_of(open_ones)} is set; aws-ofi-nccl does so itself where a network needs it, and the lines in "
            "which it would say so are not in the log",
            Needs("the log of every rank from its beginning", all_ranks=True),
        )
    forced = [setting for setting in found if setting not in open_ones]
    if not forced:
        return
    asked = vendor_asks(facts)
    narrow = [] if asked else [setting for setting in forced if _is_narrow(facts, setting)]
    unchecked = [] if asked else [setting for setting in forced if _is_unchecked(facts, setting)]
    unsafe = unchecked if facts.paths("intra", "SHM") else []
    told = [setting for setting in forced if setting in narrow or setting in unsafe]
    if told and not unsafe and vendor_may_ask(facts):
        yield _clue(facts, told, unchecked)
        return
    yield RULE.finding(
        f"NCCL's own choice is overridden: {words_of(told or forced)}",
        cause=f"{words_of(forced)} in the {listed(setting.source for setting in forced)}; "
        + (
            "Google's guide for this network asks for it"
            if asked
            else "often left over from tuning another machine or release"
        ),
        impact=". ".join(
            [*([f"{words_of(unchecked)} {_UNCHECKED}"] if unchecked else []), _BY_SIZE if narrow else _LITTLE]
        ),
        fix=["Nothing to fix: take the values of the guide for this machine type and plugin release."]
        if asked
        else [*unset(forced), "Compare both with nccl-tests over the message sizes of the job before keeping it."],
        severity="warning" if told else "info",
        confidence="likely" if told else "certain",
        ranks=facts.ranks_with(forced),
        hosts={host for setting in forced for host in setting.hosts},
        evidence=lines_of(told or forced),
    )


def _clue(facts: Facts, told: list[Setting], unchecked: list[Setting]) -> Finding:
    """The network is not known, and there are some whose guides ask for it."""
    return RULE.clue(
        f"NCCL's own choice is overridden: {words_of(told)}",
        cause=f"{words_of(told)} in the {listed(setting.source for setting in told)}: left over from tuning another "
        "machine or release, or asked for by the guide of the network",
        impact=". ".join([*([f"{words_of(unchecked)} {_UNCHECKED}"] if unchecked else []), _BY_SIZE]),
        fix=[*unset(told), "Compare both with nccl-tests over the message sizes of the job before keeping it."],
        confirm="Look for 'Using network': Google's guides for FasTrak and GPUDirect-TCPX ask for such values.",
        severity="warning",
        confidence="possible",
        ranks=facts.ranks_with(told),
        hosts={host for setting in told for host in setting.hosts},
        evidence=lines_of(told),
    )


def _refused(facts: Facts, said: list[Notice]) -> Finding:
    """A plugin says that the protocol that is forced is not safe on its network (aws-ofi-nccl 1.7 to 1.14)."""
    return RULE.finding(
        "NCCL_PROTO forces a protocol that is not safe on this network: results may silently be wrong",
        cause="LL and LL128 need stores that arrive in order, 128 bytes at a time; libfabric cannot promise that here",
        impact="data may arrive damaged without any error",
        fix=["unset NCCL_PROTO   # the plugin then chooses what is safe", EFA_RELEASES],
        severity="error",
        notices=said,
        evidence=[*first_said(said), *lines_of(facts.chosen("NCCL_PROTO"), 1)],
        explains_errors=said,
    )


def _is_perhaps_of_plugin(facts: Facts, setting: Setting) -> bool:
    """Whether it is what aws-ofi-nccl sets, of a process whose log does not show the plugin's start."""
    if (
        setting.name != "NCCL_PROTO"
        or setting.value != "simple"
        or "Libfabric" not in (facts.job.network.name or "Libfabric")
    ):
        return False
    begun = {process for notice in facts.plugin("NET", "loading") for process in notice.processes}
    return not begun.issuperset(setting.processes)


def _is_unchecked(facts: Facts, setting: Setting) -> bool:
    """Whether it names LL128, or leaves out others only: both allow it on machines not known to have NVLink, too."""
    known = (facts.platform and facts.platform.nvlink) or facts.with_role("nvswitch")
    if setting.name != "NCCL_PROTO" or known:
        return False
    lists = [entry.rpartition(":")[2].upper() for entry in setting.value.split(";")]
    return any(words.startswith("^") != ("LL128" in words.removeprefix("^").split(",")) for words in lists)


def _is_narrow(facts: Facts, setting: Setting) -> bool:
    """Whether it leaves one choice only; with EFA that is NCCL_PROTO=simple anyway."""
    if setting.name not in _CHOICES or setting.value.startswith("^") or "," in setting.value:
        return False
    return not (setting.name == "NCCL_PROTO" and setting.value.lower() == "simple" and efa_hints(facts))
