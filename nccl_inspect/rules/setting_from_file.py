"""A file beside the log sets the variable that another finding blames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect import artifacts
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import listed

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Pod, Variable

RULE = Rule(
    name="setting-from-file",
    category="environment",
    severity="warning",
    title="The manifest or script sets a variable that another finding blames",
    explains=(
        "algo-proto-forced",
        "bootstrap-no-interface",
        "bootstrap-wrong-interface",
        "channel-limit-by-env",
        "debug-level-too-low",
        "env-mismatch-across-ranks",
        "gdr-disabled",
        "ib-bad-device",
        "ib-disabled-by-env",
        "ib-gid-index",
        "loopback-between-hosts",
        "network-not-found",
        "p2p-disabled-by-env",
        "setting-invalid",
        "setting-refused",
        "shm-disabled-by-env",
        "socket-instead-of-efa",
        "tcpxo-settings",
        "topo-file-bad",
    ),
    folds=True,
)
_OUTSIDE = ("environment", "unknown")
"""Where a variable of the pod or script may have come from: a plugin and nccl.conf are others."""


class Source(NamedTuple):
    """A variable where a file sets it."""

    file: str
    variable: Variable
    step: str
    """How it is removed."""


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge the variables that findings are about by what manifests and scripts set, with the same value."""
    effects = workloads.faults(effects)
    sources = _sources(facts) if effects else []
    blamed = {effect.rule: _blamed(facts, effect, sources) for effect in effects}
    shown = [effect for effect in effects if blamed[effect.rule]]
    if not shown:
        yield from _overridden(facts, effects, sources)
        return
    found = list(dict.fromkeys(source for effect in shown for source in blamed[effect.rule]))
    names = listed(dict.fromkeys(f"{one.variable.name}={one.variable.value}" for one in found))
    first = found[0]
    yield workloads.explained(
        RULE,
        facts,
        [],
        shown,
        f"{names} is set in {first.file.rpartition('/')[2]}:{first.variable.line} ({first.variable.owner})",
        cause="the log shows the value that this file gives to the processes",
        fix=list(dict.fromkeys(source.step for source in found)),
        evidence=[
            Evidence(one.file, one.variable.line, f"{one.variable.owner}: {one.variable.name}={one.variable.value}")
            for one in found
        ],
    )


def _overridden(facts: Facts, effects: Sequence[Finding], sources: Sequence[Source]) -> Iterator[Finding]:
    """The first variable of a finding that files set to something else than the log shows."""
    by_name: dict[str, list[Source]] = {}
    for source in sources:
        by_name.setdefault(source.variable.name, []).append(source)
    for effect in effects:
        for setting in _settings(facts, effect):
            others = by_name.get(setting.name, [])
            values = [source.variable.value for source in others]
            if not others or any(value is None or value == setting.value or "$" in value for value in values):
                continue  # a value that is filled in later may be any
            first = others[0]
            place = f"{first.file.rpartition('/')[2]}:{first.variable.line}"
            yield workloads.explained(
                RULE,
                facts,
                [],
                [effect],
                f"{place} sets {setting.name}={values[0]}, and the log shows {setting.name}={setting.value}",
                cause="what the file says did not reach the processes: they began before it was applied, or something "
                "sets the variable later, such as a script, the entry point of the image or nccl.conf",
                fix=[
                    f"grep -rn {setting.name} /etc/nccl.conf ~/.nccl.conf <script>   # in the container: what sets it?",
                    "kubectl get pod <pod> -o yaml   # what the pod was given",
                ],
                evidence=[
                    Evidence(first.file, first.variable.line, f"{first.variable.owner}: {setting.name}={values[0]}"),
                    *setting.evidence[:1],
                ],
                confidence="likely",
            )
            return


def _sources(facts: Facts) -> list[Source]:
    found = []
    for pod in workloads.pods(facts):
        for container in pod.containers:
            for variable in container.env:
                found.append(Source(pod.file, variable, _step(pod.file, variable, pod)))
    for script in artifacts.of(facts.job.artifacts, "slurm_script"):
        found += [Source(script.name, one, _step(script.name, one)) for one in script.env]
    return found


def _step(file: str, variable: Variable, pod: Pod | None = None) -> str:
    """How a variable is removed: by a command where the template of pods may be changed."""
    if pod and pod.kind in workloads.MERGED:
        own = workloads.in_namespace(pod.namespace)
        return f"kubectl {own}set env {pod.kind.lower()}/{pod.name} {variable.name}-{COMMENT}removes it"
    return f"unset {variable.name}{COMMENT}{file.rpartition('/')[2]}:{variable.line}: delete it there"


def _blamed(facts: Facts, effect: Finding, sources: list[Source]) -> list[Source]:
    """The places that set what the finding is about: it names the variable, or shows the line that states it."""
    return [
        source
        for setting in _settings(facts, effect)
        for source in sources
        if (source.variable.name, source.variable.value) == (setting.name, setting.value)
    ]


def _settings(facts: Facts, effect: Finding) -> list[Setting]:
    """The settings from outside that a finding is about."""
    lines = {(line.source, line.line) for line in effect.evidence}
    return [
        setting for setting in facts.job.environment if setting.source in _OUTSIDE and _is_about(effect, setting, lines)
    ]


def _is_about(effect: Finding, setting: Setting, lines: set[tuple[str, int]]) -> bool:
    shown = any((line.source, line.line) in lines for line in setting.evidence)
    return setting.name in effect.summary or setting.name in effect.cause or shown
