"""CollNet (in-network reduction) is asked for and not there."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, lines_of, unset, words_of
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import Notice, Setting

RULE = Rule(
    name="collnet-unavailable",
    category="network",
    severity="info",
    title="CollNet (in-network reduction) is asked for and not there",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge where it is asked for: mostly NCCL goes on without a word; forced by NCCL_ALGO alone, nothing is left."""
    asked = [*facts.switched_on("NCCL_COLLNET_ENABLE"), *_forced(facts)]
    stuck = [n for n in facts.notices("nccl/no-algorithm") if "collnet" in str(value(n, "settings")).lower()]
    refused = facts.notices("nccl/collnet-unavailable")
    if stuck or refused:
        yield _finding(asked, [*stuck, *refused], "certain", stuck=bool(stuck))
        return
    there = facts.notices("nccl/collnet-connected", "nccl/collnet-chains")
    if not asked or there or not facts.several_hosts():
        return
    sought = facts.plugin("COLLNET", "probe") or facts.plugin("NET", "not-found")
    if sought and not facts.plugin("COLLNET", "loaded"):
        yield _finding(asked, sought[:2], "likely", stuck=False)
    else:
        yield RULE.undecided(
            f"{words_of(asked)} asks for CollNet; whether it is in use is not in this log",
            Needs("the log past the first all-reduce: look for 'Connected CollNet'", subsystems=("INIT", "ENV", "NET")),
        )


def _forced(facts: Facts) -> list[Setting]:
    """``NCCL_ALGO`` where it names CollNet, and not to leave it out."""
    return [s for s in facts.chosen("NCCL_ALGO") if "collnet" in s.value.lower() and "^" not in s.value]


def _finding(asked: list[Setting], said: list[Notice], confidence: str, *, stuck: bool) -> Finding:
    offered = "no plugin that offers it was loaded, or the communicator does not fit it (too few nodes, too many GPUs)"
    return RULE.finding(
        "CollNet is asked for and not used" + (f" ({words_of(asked)})" if asked else ""),
        cause=f"NCCL_ALGO leaves CollNet only, and it is not there: {offered}" if stuck else offered,
        impact="the collective fails, and with it the job"
        if stuck
        else "NCCL uses rings and trees as it would without the setting",
        fix=[
            "CollNet needs InfiniBand switches with SHARP and the plugin of HPC-X, which says 'Loaded "
            "collnet plugin SHARP'.",
            "ldconfig -p | grep libnccl-net   # inside the container: which plugin is there?",
            *unset(asked),
        ],
        severity="error" if stuck else "info",
        confidence=confidence,
        notices=said,
        evidence=[*first_said(said)[:3], *lines_of(asked, 1)],
        fatal=stuck,
    )
