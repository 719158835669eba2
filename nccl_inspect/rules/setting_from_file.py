"""A file beside the log sets the variable that another finding blames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect import artifacts
from nccl_inspect.judging.engine import Evidence, Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.job import Setting
from nccl_inspect.util.grouping import grouped

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Pod, Variable

_OUTSIDE = ("environment", "unknown")
"""Sources of a variable that a pod or script may have set; a plugin and nccl.conf are others."""


class Source(NamedTuple):
    """A place in a file that sets a variable."""

    file: str
    variable: Variable
    step: str
    """How to remove it."""

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{self.file.rpartition('/')[2]}:{self.variable.line}"

    @property
    def line(self) -> Evidence:
        """The line as evidence."""
        own = self.variable
        return Evidence(self.file, own.line, f"{own.owner}: {own.name}={own.value}")


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find the variables that findings blame in manifests and scripts, set to the same value or to another one."""
    effects = workloads.faults("setting-from-file", findings)
    sources = grouped((source.variable.name, source) for source in _sources(facts)) if effects else {}
    settings = [(effect, setting) for effect in effects for setting in _settings(facts, effect)]
    blamed = [
        (effect, source)
        for effect, setting in settings
        for source in sources.get(setting.name, ())
        if source.variable.value == setting.value
    ]
    if blamed:
        causes = list(dict.fromkeys(source for _, source in blamed))
        yield Hit(
            named={
                "names": [f"{source.variable.name}={source.variable.value}" for source in causes],
                "place": causes[0].place,
                "owner": causes[0].variable.owner,
                "steps": list(dict.fromkeys(source.step for source in causes)),
            },
            evidence=[source.line for source in causes],
            effects=list({id(effect): effect for effect, _ in blamed}.values()),
        )
        return
    for effect, setting in settings:
        others = sources.get(setting.name, [])
        if others and all(source.variable.value is not None and "$" not in source.variable.value for source in others):
            first = others[0]  # a value that is filled in later is unknown
            named = {"place": first.place, "name": setting.name, "value": first.variable.value, "other": setting.value}
            yield Hit(named=named, evidence=[first.line, *setting.evidence[:1]], effects=[effect])
            return


def _sources(facts: Facts) -> Iterator[Source]:
    for pod in workloads.pods(facts):
        for variable in (variable for container in pod.containers for variable in container.env):
            yield Source(pod.file, variable, _step(pod.file, variable, pod))
    for script in artifacts.of(facts.job.artifacts, "slurm_script"):
        yield from (Source(script.name, variable, _step(script.name, variable)) for variable in script.env)


def _step(file: str, variable: Variable, pod: Pod | None = None) -> str:
    """Return how to remove a variable: with a command if the pod template can be changed."""
    if pod and pod.kind in workloads.MERGED:
        own = workloads.in_namespace(pod.namespace)
        return f"kubectl {own}set env {pod.kind.lower()}/{pod.name} {variable.name}-{COMMENT}removes it"
    return f"unset {variable.name}{COMMENT}{file.rpartition('/')[2]}:{variable.line}: delete it there"


def _settings(facts: Facts, effect: Finding) -> Iterator[Setting]:
    """The settings from outside that a finding blames: it names the variable, or shows the line that states it."""
    lines = {(line.source, line.line) for line in effect.evidence}
    for setting in facts.job.environment:
        shown = any((line.source, line.line) in lines for line in setting.evidence)
        if setting.source in _OUTSIDE and (shown or setting.name in effect.summary or setting.name in effect.cause):
            yield setting
