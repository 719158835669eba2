"""What to do about a job for what was found in it, in one word that a restart agent can obey.

The page of a rule may state the word (``action:``, also by case); else the layer of what it finds decides. What is said
of a job that ended, or stands still for good, says what comes before the next start; in a job that continues there is
nothing to restart. A word is only as strong as its finding: see :func:`decide`.
"""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging.engine import CATEGORIES, Rule, list_rules
from nccl_inspect.model.finding import ACTIONS, Finding

DRAIN, MEND, RESTART, WAIT, NONE = ACTIONS
_MENDED = (Layer.SYSTEM, Layer.SETTING, Layer.PROGRAM, Layer.RESOURCE)
"""Layers at which the next start fails as this one did."""


def settle(findings: Iterable[Finding], is_dead: bool, has_ended: bool, hosts: int) -> list[Finding]:
    """Return the findings of a job with their actions, the leading one first.

    Args:
        findings: in the order of the report.
        is_dead: whether the verdict is that the job failed.
        has_ended: whether the log shows that it ended.
        hosts: of the job.
    """
    rules = {entry.rule.name: entry.rule for entry in list_rules()}
    return [
        finding.with_fields(
            action=decide(
                finding,
                rules[finding.rule],
                is_dead and (finding.fatal or not place),
                has_ended=has_ended,
                hosts=hosts,
            )
        )
        for place, finding in enumerate(findings)
    ]


def decide(finding: Finding, rule: Rule, is_dead: bool, *, has_ended: bool, hosts: int) -> str:
    """Return the action for a finding.

    A host is only drained for a finding that is certain or likely, is not a clue, names the host, and names few: what
    most hosts share is the network, a setting, or a maintenance. What is only possible is no reason to hold a job back.

    Args:
        finding: with its causes.
        rule: its rule.
        is_dead: whether the job ended for it, or never continues.
        has_ended: whether the log shows that the job ended.
        hosts: of the job.
    """
    if not finding.root:
        return NONE  # that of its cause counts
    is_sure = finding.confidence != "possible" and not finding.clue
    stated = finding.action
    if not is_dead:
        if finding.fatal or stated in (WAIT, NONE):
            return stated if stated == NONE else WAIT  # it may be dead: look whether it still runs
        counts = is_sure and finding.severity != "info" and rule.category != CATEGORIES[-1] and stated != RESTART
        return NONE if not counts else DRAIN if stated == DRAIN and _is_about_few(finding, hosts) else MEND
    if finding.open_end and not has_ended:
        return WAIT
    if not stated:
        mended = MEND if rule.reach in _MENDED and not rule.tells else RESTART
        stated = DRAIN if rule.reach == Layer.HARDWARE else mended
    if stated == DRAIN and not (is_sure and _is_about_few(finding, hosts)):
        return RESTART
    return RESTART if stated == MEND and not is_sure else stated


def _is_about_few(finding: Finding, hosts: int) -> bool:
    return 0 < len(finding.hosts) <= max(1, hosts // 2)
