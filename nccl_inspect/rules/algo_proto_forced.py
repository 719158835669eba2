"""The user forces NCCL's algorithm, protocol or buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nccl_inspect.judging.clouds import is_google_network, may_be_google_network
from nccl_inspect.judging.engine import Facts, Finding, Needs, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.judging.impact import MEASURED, Estimate, Rate, estimate
from nccl_inspect.judging.networks.fabrics import efa_hints
from nccl_inspect.judging.remedies import EFA_RELEASES
from nccl_inspect.model.job import Setting
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="algo-proto-forced",
    category="environment",
    severity="info",
    title="A setting forces the algorithm or the protocol",
    may_cause=("slow", "ring-crosses-nodes"),
    nest_under_effect=True,
    shows=("setting",),
)
_CHOICES = ("NCCL_ALGO", "NCCL_PROTO")
_SIZES = ("NCCL_NTHREADS", "NCCL_BUFFSIZE")
_BY_SIZE = (
    "NCCL, or a tuner plugin, can no longer choose by message size and topology: what is best for large messages is "
    "slow for small ones, and vice versa. The log does not show how much this costs"
)
_OF_LL = Rate(150, 150, "all-reduce of 1 GiB on 4 H200, LL", MEASURED)
_OF_ALL = Rate(354, 354, "the same by NCCL's own choice", MEASURED)
_LITTLE = "little or none on its own; the defaults change with releases and machines, a fixed value does not"
_UNCHECKED = (
    "enables LL128 without NCCL's own check: between GPUs without NVLink, of different kinds or before Volta, or with "
    "a NIC on the other side of the CPU, results may be silently wrong"
)
"""NCCL enables LL128 by default only where it was tested (src/graph/tuning.cc: 'may cause silent data corruption')."""
_LL = estimate(
    f"LL sends 8 bytes for each 4 of data: large messages get less than half, {_OF_LL} instead of {_OF_ALL} bus "
    "bandwidth; small ones lose nothing",
    _OF_LL,
    _OF_ALL,
)
_COMPARE = "Before keeping the setting, run nccl-tests with and without it over the message sizes of the job."


@frozen
class _Origin(Frozen):
    """Holds where settings come from."""

    words: str
    fix: tuple[str, ...] = ()
    """What to do instead of removing them."""
    confirm: str = ""
    confidence: str = "certain"
    """That the user overrides NCCL's choice."""


_GUIDE = _Origin(
    "; Google's guide for this network requires it",
    ("Nothing to fix: use the values from the guide for this machine type and plugin release.",),
)
_LEFT = _Origin("; often left over from tuning another machine or release")
_LEFT_OR_GUIDE = _Origin(
    ": left over from tuning another machine or release, or required by the guide for the network",
    confirm="Look for 'Using network': Google's guides for FasTrak and GPUDirect-TCPX require such values.",
    confidence="possible",
)


@frozen
class _Override(Frozen):
    """Settings that override NCCL's choice."""

    settings: list[Setting]
    origin: _Origin
    narrow: Sequence[Setting] = ()
    """Those that leave only one choice."""
    unchecked: Sequence[Setting] = ()
    """Those that enable LL128 without NCCL's check."""
    harmful: Sequence[Setting] = ()
    """The narrow ones that only some ranks have, LL alone, and the unchecked ones for GPUs without P2P."""


def judge(facts: Facts) -> Results:
    """Judge settings of the user; a plugin needs its own, such as NCCL_PROTO=simple of aws-ofi-nccl."""
    if unsafe_notices := facts.errors_of_rule(RULE.name):
        yield _unsafe(facts, unsafe_notices)
        return
    settings = facts.user_settings(*_CHOICES, *_SIZES)
    unclear = [setting for setting in settings if _may_be_of_plugin(facts, setting)]
    if unclear:
        yield RULE.undecided(
            f"{as_shell(unclear)} is set; aws-ofi-nccl sets it where a network needs it, but the log lacks the lines "
            "in which it says so",
            Needs("the log of every rank from its start", all_ranks=True),
        )
    if forced := [setting for setting in settings if setting not in unclear]:
        yield _finding(facts, _override(facts, forced))


def _override(facts: Facts, settings: list[Setting]) -> _Override:
    if is_google_network(facts):
        return _Override(settings, _GUIDE)
    narrow = [setting for setting in settings if _is_narrow(facts, setting)]
    unchecked = [setting for setting in settings if _is_unchecked(facts, setting)]
    unsafe = unchecked if facts.paths("intra", "SHM") else []
    if narrow and not unsafe and may_be_google_network(facts):
        return _Override(narrow, _LEFT_OR_GUIDE, narrow, unchecked)
    harmful = [
        setting
        for setting in settings
        if setting in unsafe or _leaves_only_ll(setting) or (setting in narrow and setting.ranks is not None)
    ]
    return _Override(settings, _LEFT, narrow, unchecked, harmful)


def _finding(facts: Facts, override: _Override) -> Finding:
    settings, origin, harmful = override.settings, override.origin, override.harmful
    return RULE.finding(
        f"NCCL's own choice is overridden: {as_shell(harmful or settings)}",
        cause=f"{as_shell(settings)} in the {listed(setting.source for setting in settings)}{origin.words}",
        impact=_impact(override),
        fix=origin.fix or [*unset_steps(settings), _COMPARE],
        confirm=origin.confirm,
        severity="warning" if harmful else "info",
        confidence="likely" if harmful else origin.confidence,
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=evidence_of_settings(harmful or settings),
    )


def _impact(override: _Override) -> str | Estimate:
    if any(map(_leaves_only_ll, override.harmful)):
        return _LL
    speed = _BY_SIZE if override.narrow else _LITTLE
    return f"{as_shell(override.unchecked)} {_UNCHECKED}. {speed}" if override.unchecked else speed


def _unsafe(facts: Facts, notices: list[Notice]) -> Finding:
    """A plugin reports that the forced protocol is unsafe on its network (aws-ofi-nccl 1.7 to 1.14)."""
    return RULE.finding(
        "NCCL_PROTO forces a protocol that is unsafe on this network: results may be silently wrong",
        cause="LL and LL128 need stores to arrive in order, 128 bytes at a time; libfabric cannot guarantee that here",
        impact="data may be corrupted without any error",
        fix=["unset NCCL_PROTO   # the plugin then chooses a safe protocol", EFA_RELEASES],
        severity="error",
        notices=notices,
        evidence=[*first_evidence(notices), *evidence_of_settings(facts.user_settings("NCCL_PROTO"), 1)],
        explains_errors=notices,
    )


def _may_be_of_plugin(facts: Facts, setting: Setting) -> bool:
    """Whether aws-ofi-nccl may have set it, in a process whose log does not show the plugin's start."""
    if (
        setting.name != "NCCL_PROTO"
        or setting.value != "simple"
        or "Libfabric" not in (facts.job.network.name or "Libfabric")
    ):
        return False
    plugin_processes = {process for notice in facts.plugin("NET", "loading") for process in notice.processes}
    return not plugin_processes.issuperset(setting.processes)


def _is_unchecked(facts: Facts, setting: Setting) -> bool:
    """Whether it names LL128 or only excludes others: both enable it on machines not known to have NVLink."""
    has_nvlink = (facts.platform and facts.platform.nvlink) or facts.with_role("nvswitch")
    if setting.name != "NCCL_PROTO" or has_nvlink:
        return False
    return any("LL128" in protocols for protocols in _protocols(setting))


def _leaves_only_ll(setting: Setting) -> bool:
    return setting.name == "NCCL_PROTO" and all(protocols == {"LL"} for protocols in _protocols(setting))


def _protocols(setting: Setting) -> Iterator[set[str]]:
    """Yield the protocols that NCCL_PROTO allows, for each of its parts: ``allreduce:ll;^ll128``."""
    for entry in setting.value.split(";"):
        words = entry.rpartition(":")[2].upper()
        named = set(words.removeprefix("^").split(","))
        yield {"LL", "LL128", "SIMPLE"} - named if words.startswith("^") else named


def _is_narrow(facts: Facts, setting: Setting) -> bool:
    """Whether it leaves only one choice; with EFA that is NCCL_PROTO=simple anyway."""
    if setting.name not in _CHOICES or setting.value.startswith("^") or "," in setting.value:
        return False
    return not (setting.name == "NCCL_PROTO" and setting.value.lower() == "simple" and efa_hints(facts))
