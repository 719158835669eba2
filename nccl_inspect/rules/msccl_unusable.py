"""RCCL cannot use an algorithm for MSCCL."""

from nccl_inspect.judging.engine import Facts, Results, Rule

RULE = Rule(
    name="msccl-unusable",
    category="environment",
    severity="info",
    title="RCCL cannot use a prepared algorithm (MSCCL)",
)


def judge(facts: Facts) -> Results:
    """Judge RCCL's lines about the files and its limits: it then uses its own rings and trees."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    yield RULE.finding(
        f"RCCL cannot use an MSCCL algorithm: {notices[0].message}",
        cause="the files with prepared algorithms are missing, damaged, or made for another number of GPUs, or "
        "exceed a limit of RCCL",
        impact="RCCL continues with rings and trees, somewhat slower for small messages",
        fix=[
            "unset MSCCL_ALGO_DIR MSCCL_ALGO_FILE   # uses the files of RCCL's own package",
            "ls /opt/rocm/share/rccl/msccl-algorithms   # inside the container: is the package complete?",
            "RCCL_MSCCL_ENABLE=0   # disables them",
        ],
        confidence="likely",
        notices=notices,
        explains_errors=notices,
    )
