"""Steps that several rules propose, and the command that captures what a log lacks.

A step is either code to paste (a command, a setting, a piece of a pod's spec), with a comment after ``   # ``; or a
sentence with a capital and a period. Reports show the former as code.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path as File

from nccl_inspect.errors import PageError
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

COMMENT = "   # "  # separates code to paste from its comment
_OPEN_PLACEHOLDER = re.compile(r"<(?!(?:stdin|bytes|stream)>:\d)[A-Za-z][^<>]*>")
"""A placeholder; ``<stdin>:7`` is a line of a log that has no name."""


def order_steps(findings: list[Finding], most: int) -> list[Finding]:
    """Return the findings, each with the best step first: that of a nested cause, else one to type as it is."""
    ordered = []
    for finding in findings:
        nests = finding.root and not (finding.confidence == "certain" and finding.fatal)
        causes = [other for other in findings if nests and other.rule in finding.because and other.root]
        # The first without a placeholder comes first; later steps are less likely to help.
        each = [other.fix for other in (*causes, finding) if other.confidence != "possible" or other is finding]
        steps = [[one for one in fix[:3] if not _OPEN_PLACEHOLDER.search(one)] or fix for fix in each]
        first = [own[0] for own in steps if own and own[0]][:1]
        ordered.append(finding.with_fields(fix=list(dict.fromkeys([*first, *finding.fix]))[:most]))
    return ordered


def is_sentence(step: str) -> bool:
    """Return whether a step is a sentence and not code to paste."""
    return step.endswith(".")


@cache
def _list_steps() -> dict[str, str]:
    entries = File(__file__).with_name("steps.txt").read_text(encoding="utf-8").replace("\n  ", " ").split("\n")
    return {name: step for name, _, step in (entry.partition(": ") for entry in entries)}


def look_up(text: str) -> str:
    """Return a text, or what several rules say under a name: ``@NAME``.

    Raises:
        PageError: there is no such name.
    """
    if text.startswith("@") and text[1:] not in _list_steps():
        raise PageError(f"'{text}': judging/steps.txt has no {text[1:]}")
    return _list_steps()[text[1:]] if text.startswith("@") else text


_SUBSYSTEMS = ("INIT", "ENV", "BOOTSTRAP", "NET", "GRAPH", "P2P", "SHM", "COLL", "TUNING")
_LOGS = "/logs"


def capture_command(job: Job) -> str | None:
    """Return the command that answers the open questions; None if there are none, or no log would answer them.

    ``<the job>`` stands for the launch command, ``NAME`` for the machine type.
    """
    needs = [entry.lacks for entry in job.not_judged]
    asked = {name for need in needs for name in need.subsystems}
    everyone = any(need.all_ranks for need in needs)
    topology = any(need.topology for need in needs)
    platform = any(need.platform for need in needs)
    own = job.sources[0].name if len(job.sources) == 1 else ""
    log = shlex.quote(own) if own and not own.startswith("<") else "<the log>"
    steps = []
    if asked or everyone:  # the job again, with a fuller log
        log = _LOGS if everyone else "job.log"
        more = sorted(asked.difference(_SUBSYSTEMS))
        names = [*(name for name in _SUBSYSTEMS if name in {"INIT", "ENV", "NET", *asked}), *more]
        file = f" NCCL_DEBUG_FILE={_LOGS}/nccl.%h.%p.log" if everyone else ""
        into = "" if everyone else " 2>&1 | tee job.log"
        steps.append(f"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS={','.join(names)}{file} <the job>{into}")
    if topology:
        steps += ["nvidia-smi topo -m > topo.txt", f"nccl-inspect summarize {log} --topology topo.txt"]
    elif steps or platform:
        steps.append(f"nccl-inspect summarize {log}" + (" --platform NAME" if platform else ""))
    return "; ".join(steps) or None
