"""A call of NCCL failed, and nothing in the log says why."""

from nccl_inspect.judging.engine import Account, Facts, Finding, Results, Rule

RULE = Rule(
    name="failure-unexplained",
    category="log quality",
    tells=("unexplained",),
    severity="info",
    title="A call of NCCL failed, and the log does not say why",
)


def judge(_: Facts) -> Results:
    """Judge nothing: only the story of a job knows that nothing else explains its end."""
    yield from ()


def tell(_: Facts, account: Account) -> Finding:
    """Name what failed without a reason."""
    return RULE.finding(
        f"a call of NCCL failed, and the log does not say why: {account.words}",
        cause="the statements that precede a failure are missing: they were not printed, were filtered out, or are in "
        "the output of another rank",
        impact="the job is dead, and its reason is not known",
        fix=[
            "NCCL_DEBUG=INFO   # on all ranks, and run again: the first warning names the reason",
            "kubectl logs --tail=-1 <pod>   # the whole output of every rank: the first that failed knows more",
        ],
        ranks=account.ranks,
        hosts=account.hosts,
        evidence=account.evidence,
    )
