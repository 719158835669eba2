"""A log with only NCCL's version and warnings."""

from nccl_inspect.judging.engine import Facts, Results, Rule, first_evidence
from nccl_inspect.util.levels import STATEMENTS

RULE = Rule(
    name="debug-level-too-low",
    category="log quality",
    severity="info",
    title="NCCL_DEBUG is below INFO: the log does not show which paths are used",
    shows=("setting",),
)


def judge(facts: Facts) -> Results:
    """Judge logs whose NCCL lines are all warnings or the version line."""
    sparse = [notice for notice in facts.job.notices if notice.level in (*STATEMENTS, "VERSION")]
    lines = sum(source.nccl_lines for source in facts.job.sources)
    if not sparse or sum(notice.count for notice in sparse) < lines or facts.job.excerpt:
        return  # excerpts omit lines
    only = "the version line" if all(notice.level == "VERSION" for notice in sparse) else "warnings"
    yield RULE.finding(
        f"the log contains only {only} of NCCL",
        cause="NCCL_DEBUG is not set, or is VERSION, WARN or ATTN; or the other lines were removed",
        impact="paths, networks, rings and settings cannot be judged; warnings lack the lines that led to them",
        fix=[
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH   # on all ranks: mpirun -x, pod spec 'env:'",
            "With NCCL 2.22 and later, run past the first collective: connections are made there.",
        ],
        evidence=first_evidence(sparse),
    )
