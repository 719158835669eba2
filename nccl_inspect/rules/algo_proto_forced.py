"""The user forces NCCL's algorithm, protocol or buffers."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging.clouds import is_google_network, may_be_google_network
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.impact import MEASURED, Rate
from nccl_inspect.judging.networks.fabrics import efa_hints
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import listed

_CHOICES = ("NCCL_ALGO", "NCCL_PROTO")
_SIZES = ("NCCL_NTHREADS", "NCCL_BUFFSIZE")
_OF_LL = Rate(150, 150, "all-reduce of 1 GiB on 4 H200, LL", MEASURED)
_OF_ALL = Rate(354, 354, "the same by NCCL's own choice", MEASURED)


def find(facts: Facts) -> Iterator[Hit]:
    """Find settings of the user; a plugin needs its own, such as NCCL_PROTO=simple of aws-ofi-nccl."""
    if unsafe := facts.errors_of_rule("algo-proto-forced"):
        lines = evidence_of_settings(facts.user_settings("NCCL_PROTO"), 1)
        yield Hit(unsafe, known=("unsafe",), evidence=[*first_evidence(unsafe), *lines])
        return
    settings = facts.user_settings(*_CHOICES, *_SIZES)
    if unclear := [setting for setting in settings if _may_be_of_plugin(facts, setting)]:
        yield Hit(named={"unclear": unclear})
    if forced := [setting for setting in settings if setting not in unclear]:
        yield _find_override(facts, forced)


def _find_override(facts: Facts, settings: list[Setting]) -> Hit:
    narrow = [setting for setting in settings if _is_narrow(facts, setting)]
    unchecked = [setting for setting in settings if _is_unchecked(facts, setting)]
    unsafe = unchecked if facts.paths("intra", "SHM") else []
    known, harmful = [], list[Setting]()
    if is_google_network(facts):
        known, narrow, unchecked = ["required"], [], []
    elif narrow and not unsafe and may_be_google_network(facts):
        known, settings = ["perhaps required"], narrow
    else:
        in_part = [setting for setting in narrow if setting.ranks is not None]
        harmful = [one for one in settings if one in unsafe or one in in_part or _leaves_only_ll(one)]
    named = {
        "chosen": settings,
        "shown": harmful or settings,
        "sources": listed(setting.source for setting in settings),
        "narrow": narrow,
        "unchecked": unchecked,
        "harmful": harmful,
        "LL alone": any(map(_leaves_only_ll, harmful)),
        "ll": _OF_LL,
        "own": _OF_ALL,
    }
    evidence = evidence_of_settings(harmful or settings)
    return Hit([], named, known, evidence=evidence, settings=settings)


def _may_be_of_plugin(facts: Facts, setting: Setting) -> bool:
    """Whether aws-ofi-nccl may have set it, in a process whose log does not show the plugin's start."""
    if (setting.name, setting.value) != ("NCCL_PROTO", "simple"):
        return False
    if "Libfabric" not in (facts.job.network.name or "Libfabric"):
        return False
    plugin_processes = {process for notice in facts.plugin("NET", "loading") for process in notice.processes}
    return not plugin_processes.issuperset(setting.processes)


def _is_unchecked(facts: Facts, setting: Setting) -> bool:
    """Whether it names LL128 or only excludes others: both enable it on machines not known to have NVLink.

    NCCL enables LL128 by default only where it was tested (src/graph/tuning.cc: 'may cause silent data corruption').
    """
    has_nvlink = (facts.platform and facts.platform.nvlink) or facts.with_role("nvswitch")
    return not has_nvlink and any("LL128" in protocols for protocols in _protocols(setting))


def _leaves_only_ll(setting: Setting) -> bool:
    return setting.name == "NCCL_PROTO" and all(protocols == {"LL"} for protocols in _protocols(setting))


def _protocols(setting: Setting) -> Iterator[set[str]]:
    """Yield the protocols that NCCL_PROTO allows, for each of its parts: ``allreduce:ll;^ll128``."""
    for entry in setting.value.split(";") if setting.name == "NCCL_PROTO" else ():
        words = entry.rpartition(":")[2].upper()
        named = set(words.removeprefix("^").split(","))
        yield {"LL", "LL128", "SIMPLE"} - named if words.startswith("^") else named


def _is_narrow(facts: Facts, setting: Setting) -> bool:
    """Whether it leaves only one choice; with EFA that is NCCL_PROTO=simple anyway."""
    if setting.name not in _CHOICES or setting.value.startswith("^") or "," in setting.value:
        return False
    return not (setting.name == "NCCL_PROTO" and setting.value.lower() == "simple" and efa_hints(facts))
