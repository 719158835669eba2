"""A tuner plugin that was requested, or that has data for this platform, is not used."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.event.types import PluginStatus
from nccl_inspect.judging.engine import Effects, Evidence, Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import as_shell, evidence_of_settings
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.model.job import Setting
from nccl_inspect.util.records import Frozen, frozen

RULE = Rule(
    name="tuner-plugin-not-loaded",
    category="plugins",
    severity="info",
    title="A tuner plugin was requested, but does not choose algorithm and protocol",
    local=True,
)
_INSTEAD = "tuner instead"
"""The end of the message about the last search for an interface."""
_TUNED = ("p5", "p6")
"""Types for which aws-ofi-nccl has tuning data."""


@frozen
class _Reason(Frozen):
    """Why no plugin's tuner is in use."""

    cause: str
    fix: tuple[str, ...]
    confidence: str = "certain"


_NOT_STARTED = _Reason(
    "the plugin's tuner could not start: it got no memory, or does not support this job",
    ("Nothing to fix if the speed is as expected; otherwise try a current release of the plugin.",),
)
_OTHER_SIZE = _Reason(
    "aws-ofi-nccl has no tuning data for this number of ranks and nodes",
    ("Nothing to fix; try a current release of aws-ofi-nccl.",),
)
_OTHER_MACHINE = _Reason(
    "aws-ofi-nccl has tuning data for p5 and later only; on other machines this is normal", (NOTHING,)
)
_NO_INTERFACE = _Reason(
    "the library that NCCL opened, usually the network plugin's, has no tuner with an interface that this release "
    "supports; that is normal if the plugin has no tuner, or has it in another library",
    (NOTHING, "NCCL_TUNER_PLUGIN=<library>   # if the plugin has its tuner in another library"),
)


def judge(facts: Facts) -> Results:
    """Judge the plugin's messages, and a library that was requested but not loaded; no tuner at all is normal.

    NCCL also looks for a tuner in the network plugin's library, and reports if the last search finds none.
    """
    overridden = facts.notices("aws-ofi-nccl/ofi-tuner-overridden")
    unavailable = facts.notices("aws-ofi-nccl/ofi-tuner-not-available")
    requested = [s for s in facts.settings("NCCL_TUNER_PLUGIN") if s.value not in ("none", "")]
    missed = [] if facts.plugin("TUNER", "loaded") else facts.plugin("TUNER", "not-found", "probe")
    if failed := facts.errors_of_rule(RULE.name):
        yield Effects(failed)
        yield _finding(failed, _NOT_STARTED)
    elif overridden:
        yield _finding(overridden, _overridden(facts.user_settings("NCCL_ALGO", "NCCL_PROTO")))
    elif unavailable:
        is_tuned = any(str(value(notice, "platform")).startswith(_TUNED) for notice in unavailable)
        yield _finding(unavailable, _OTHER_SIZE if is_tuned else _OTHER_MACHINE)
    elif missed and (requested or _has_data(facts)):
        yield _finding(missed, _missing(requested), evidence_of_settings(requested, 1))
    elif ended := [notice for notice in missed if _INSTEAD in notice.message and _is_probe(notice)]:
        yield _finding(ended, _NO_INTERFACE)


def _overridden(settings: list[Setting]) -> _Reason:
    return _Reason(
        f"{as_shell(settings) or 'NCCL_ALGO or NCCL_PROTO'} is set, which disables the tuner of aws-ofi-nccl",
        ("unset NCCL_ALGO NCCL_PROTO   # unless you need them",),
    )


def _missing(requested: list[Setting]) -> _Reason:
    return _Reason(
        f"{as_shell(requested)} names a library that is missing or has no tuner"
        if requested
        else "no library with a tuner is loaded; aws-ofi-nccl has data for this machine",
        (
            "NCCL_TUNER_PLUGIN=libnccl-ofi-tuner.so   # aws-ofi-nccl up to 1.15; later releases set it",
            "ldconfig -p | grep tuner   # inside the container: the library must be on LD_LIBRARY_PATH",
        ),
        "likely",
    )


def _is_probe(notice: Notice) -> bool:
    return isinstance(notice.event, PluginStatus) and notice.event.status == "probe"


def _has_data(facts: Facts) -> bool:
    """Whether this is a machine that aws-ofi-nccl has tuning data for, and the plugin is in use."""
    tuned = facts.platform is not None and facts.platform.name.startswith(_TUNED)
    return tuned and any("Libfabric" in kind.detail for kind in facts.inter_host_net_paths().kinds)


def _finding(notices: list[Notice], reason: _Reason, more: Sequence[Evidence] = ()) -> Finding:
    return RULE.finding(
        "NCCL's own tuner chooses algorithm and protocol, not a plugin's",
        cause=reason.cause,
        impact="usually small; a plugin's tuner makes better choices for some message sizes on its network",
        fix=reason.fix,
        confidence=reason.confidence,
        notices=notices,
        evidence=[*more, *first_evidence(notices)[:3]],
    )
