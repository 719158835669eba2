"""A tuner plugin that was asked for, or that this platform has data for, does not choose."""

from collections.abc import Iterator

from nccl_inspect.event.types import PluginStatus
from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts, first_said, lines_of, words_of
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="tuner-plugin-not-loaded",
    category="plugins",
    severity="info",
    title="A tuner plugin was asked for and does not choose algorithm and protocol",
    local=True,
)
_INSTEAD = "tuner instead"
"""How the last search for an interface ends."""
_TUNED = ("p5", "p6")
"""Types for which aws-ofi-nccl has tuning data."""


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what the plugin says, and a library that was asked for and not loaded; none at all is normal.

    NCCL also looks for a tuner in the library of the network plugin, and says where the last search ends in vain.
    """
    overridden = facts.notices("aws-ofi-nccl/ofi-tuner-overridden")
    unavailable = facts.notices("aws-ofi-nccl/ofi-tuner-not-available")
    asked = [s for s in facts.settings("NCCL_TUNER_PLUGIN") if s.value not in ("none", "")]
    missed = [] if facts.plugin("TUNER", "loaded") else facts.plugin("TUNER", "not-found", "probe")
    if failed := facts.leading_to(RULE.name):
        yield Effects(failed)
        yield _finding(
            failed,
            cause="the tuner of the plugin could not start: it got no memory, or does not know this job",
            fix=["Nothing to fix where speed is as expected; else compare a current release of the plugin."],
        )
    elif overridden:
        yield _finding(
            overridden,
            cause=f"{words_of(facts.chosen('NCCL_ALGO', 'NCCL_PROTO')) or 'NCCL_ALGO or NCCL_PROTO'} is set; the "
            "tuner of aws-ofi-nccl then stays out",
            fix=["unset NCCL_ALGO NCCL_PROTO   # unless they are wanted"],
        )
    elif unavailable:
        tuned = any(str(value(notice, "platform")).startswith(_TUNED) for notice in unavailable)
        yield _finding(
            unavailable,
            cause="aws-ofi-nccl has no tuning data for this number of ranks and nodes"
            if tuned
            else "aws-ofi-nccl has tuning data for p5 and later only; on other machines this is normal",
            fix=["Nothing to fix: compare a current release of aws-ofi-nccl." if tuned else NOTHING],
        )
    elif missed and (asked or _has_data(facts)):
        yield _finding(
            missed,
            cause=f"{words_of(asked)} names a library that is not there or holds no tuner"
            if asked
            else "no library with a tuner is loaded; aws-ofi-nccl would have data for this machine",
            fix=[
                "NCCL_TUNER_PLUGIN=libnccl-ofi-tuner.so   # aws-ofi-nccl up to 1.15; later ones set it themselves",
                "ldconfig -p | grep tuner   # inside the container: the library must be on LD_LIBRARY_PATH",
            ],
            more=lines_of(asked, 1),
            confidence="likely",
        )
    elif ended := [notice for notice in missed if _INSTEAD in notice.message and _is_probe(notice)]:
        yield _finding(
            ended,
            cause="the library that NCCL opened, most often that of the network plugin, holds no tuner of an interface "
            "that this release knows; that is normal where the plugin has none, or in a library of its own",
            fix=[NOTHING, "NCCL_TUNER_PLUGIN=<library>   # where the plugin has its tuner in another library"],
        )


def _is_probe(notice: Notice) -> bool:
    return isinstance(notice.event, PluginStatus) and notice.event.status == "probe"


def _has_data(facts: Facts) -> bool:
    """Whether this is a machine that aws-ofi-nccl has tuning data for, and the plugin is in use."""
    tuned = facts.platform is not None and facts.platform.name.startswith(_TUNED)
    return tuned and any("Libfabric" in kind.detail for kind in facts.leaving().kinds)


def _finding(
    told: list[Notice], cause: str, fix: list[str], more: list[Evidence] | None = None, confidence: str = "certain"
) -> Finding:
    return RULE.finding(
        "NCCL's own tuner chooses algorithm and protocol, not that of a plugin",
        cause=cause,
        impact="mostly small; a tuner knows the machine's network better for some message sizes",
        fix=fix,
        confidence=confidence,
        notices=told,
        evidence=[*(more or []), *first_said(told)[:3]],
    )
