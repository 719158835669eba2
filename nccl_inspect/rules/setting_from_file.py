"""A file beside the log sets the variable that another finding blames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect import artifacts
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.job import Setting
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.wording import listed

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Pod, Variable
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Results, Rule

RULE = Rule(
    name="setting-from-file",
    category="environment",
    severity="warning",
    title="The manifest or script sets a variable that another finding blames",
    may_cause=("setting",),
    nest_under_effect=True,
)
_OUTSIDE = ("environment", "unknown")
"""Sources of a variable that a pod or script may have set; a plugin and nccl.conf are others."""


class Source(NamedTuple):
    """A place in a file that sets a variable."""

    file: str
    variable: Variable
    step: str
    """How to remove it."""


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge the variables that findings blame by whether manifests and scripts set them to the same value."""
    effects = workloads.faults(RULE, effects)
    sources = _sources(facts) if effects else []
    blamed = {effect.rule: _blamed(facts, effect, sources) for effect in effects}
    shown = [effect for effect in effects if blamed[effect.rule]]
    if not shown:
        yield from _overridden(facts, effects, sources)
        return
    causes = list(dict.fromkeys(source for effect in shown for source in blamed[effect.rule]))
    names = listed(dict.fromkeys(f"{source.variable.name}={source.variable.value}" for source in causes))
    first = causes[0]
    yield workloads.finding_of(
        RULE,
        facts,
        [],
        shown,
        f"{names} is set in {first.file.rpartition('/')[2]}:{first.variable.line} ({first.variable.owner})",
        cause="the log shows the value that this file sets",
        fix=list(dict.fromkeys(source.step for source in causes)),
        evidence=[
            Evidence(file, variable.line, f"{variable.owner}: {variable.name}={variable.value}")
            for file, variable, _ in causes
        ],
    )


def _overridden(facts: Facts, effects: Sequence[Finding], sources: Sequence[Source]) -> Iterator[Finding]:
    """The first variable of a finding that files set to another value than the log shows."""
    by_name = grouped((source.variable.name, source) for source in sources)
    for effect in effects:
        for setting in _settings(facts, effect):
            others = by_name.get(setting.name, [])
            values = [source.variable.value for source in others]
            if not others or any(value is None or value == setting.value or "$" in value for value in values):
                continue  # a value that is filled in later is unknown
            first = others[0]
            place = f"{first.file.rpartition('/')[2]}:{first.variable.line}"
            yield workloads.finding_of(
                RULE,
                facts,
                [],
                [effect],
                f"{place} sets {setting.name}={values[0]}, but the log shows {setting.name}={setting.value}",
                cause="the value in the file did not reach the processes: they started before it was applied, or "
                "something sets the variable later, such as a script, the image's entry point or nccl.conf",
                fix=[
                    f"grep -rn {setting.name} /etc/nccl.conf ~/.nccl.conf <script>   # in the container: what sets it?",
                    "kubectl get pod <pod> -o yaml   # the pod's actual spec",
                ],
                evidence=[
                    Evidence(first.file, first.variable.line, f"{first.variable.owner}: {setting.name}={values[0]}"),
                    *setting.evidence[:1],
                ],
                confidence="likely",
            )
            return


def _sources(facts: Facts) -> list[Source]:
    sources = [
        Source(pod.file, variable, _step(pod.file, variable, pod))
        for pod in workloads.pods(facts)
        for container in pod.containers
        for variable in container.env
    ]
    for script in artifacts.of(facts.job.artifacts, "slurm_script"):
        sources += [Source(script.name, variable, _step(script.name, variable)) for variable in script.env]
    return sources


def _step(file: str, variable: Variable, pod: Pod | None = None) -> str:
    """Return how to remove a variable: with a command if the pod template can be changed."""
    if pod and pod.kind in workloads.MERGED:
        own = workloads.in_namespace(pod.namespace)
        return f"kubectl {own}set env {pod.kind.lower()}/{pod.name} {variable.name}-{COMMENT}removes it"
    return f"unset {variable.name}{COMMENT}{file.rpartition('/')[2]}:{variable.line}: delete it there"


def _blamed(facts: Facts, effect: Finding, sources: list[Source]) -> list[Source]:
    """The places that set what the finding blames: it names the variable, or shows the line that states it."""
    return [
        source
        for setting in _settings(facts, effect)
        for source in sources
        if (source.variable.name, source.variable.value) == (setting.name, setting.value)
    ]


def _settings(facts: Facts, effect: Finding) -> list[Setting]:
    """The settings from outside that a finding blames."""
    lines = {(line.source, line.line) for line in effect.evidence}
    return [
        setting for setting in facts.job.environment if setting.source in _OUTSIDE and _is_about(effect, setting, lines)
    ]


def _is_about(effect: Finding, setting: Setting, lines: set[tuple[str, int]]) -> bool:
    shown = any((line.source, line.line) in lines for line in setting.evidence)
    return setting.name in effect.summary or setting.name in effect.cause or shown
