"""RCCL cannot use an algorithm for MSCCL."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="msccl-unusable",
    category="environment",
    severity="info",
    title="RCCL cannot use a prepared algorithm (MSCCL)",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what RCCL says of the files and of its limits: it then takes its own rings and trees."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    yield RULE.finding(
        f"RCCL cannot use an MSCCL algorithm: {said[0].message}",
        cause="the files with prepared algorithms are missing, damaged, or made for another number of GPUs, or a "
        "limit of "
        "RCCL does not allow them",
        impact="RCCL goes on with rings and trees, somewhat slower for small messages",
        fix=[
            "unset MSCCL_ALGO_DIR MSCCL_ALGO_FILE   # takes the files of RCCL's own package",
            "ls /opt/rocm/share/rccl/msccl-algorithms   # inside the container: is the package complete?",
            "RCCL_MSCCL_ENABLE=0   # goes without them",
        ],
        confidence="likely",
        notices=said,
        explains_errors=said,
    )
