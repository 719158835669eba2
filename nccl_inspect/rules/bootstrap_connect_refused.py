"""Nobody listens at the address that ranks connect to."""

from nccl_inspect.judging.connecting import (
    REFUSED,
    addresses,
    failed_connections,
    has_built_communicator,
    retried_connections,
)
from nccl_inspect.judging.engine import Facts, Finding, Layer, Needs, Notice, Results, Rule, first_evidence, value

RULE = Rule(
    name="bootstrap-connect-refused",
    category="bootstrap",
    layer=Layer.LOSS,
    title="Connections to another rank are refused: nobody listens there",
    shows=("refused",),
)

_START = 5
"""Attempts that a rank may need while rank 0 starts: 1.5 s since 2.24; earlier releases print every thousandth."""
_LATE = "NCCL_SOCKET_RETRY_CNT=100   # 2.24 and later, if ranks start minutes apart"
_ROOT = "Check rank 0 first: whether it is still running, and how its log ends."


def _is_beyond_start(notice: Notice) -> bool:
    attempt = value(notice, "attempt")
    return attempt is None or int(attempt) > _START


def _clue(retries: list[Notice]) -> Finding:
    """The clue where the log does not show how the attempts ended."""
    where = addresses(retries) or "another rank"
    return RULE.clue(
        f"connections to {where} are refused, and NCCL is retrying",
        cause="nothing listens at that address: the process there (usually rank 0) starts later or has died, or the "
        "address belongs to an earlier job or to another machine",
        impact="none if it starts in time; NCCL gives up after 20 s (up to 2.23) or one minute",
        fix=[_ROOT, f"ss -ltnp   # on the host of {where}: does anything listen on that port?", _LATE],
        confirm="Look below these lines: 'Init COMPLETE' means it was only late, 'exceeded' that NCCL gave up.",
        confidence="possible",
        notices=retries,
        evidence=first_evidence(retries[-3:]),
    )


def judge(facts: Facts) -> Results:
    """Judge connections that NCCL gave up on, and those it was still retrying when the job was ended."""
    failures, retries = failed_connections(facts, *REFUSED), retried_connections(facts, *REFUSED)
    if not failures and (not retries or has_built_communicator(facts)):
        return
    if not failures and not facts.job.ended_by and any(map(_is_beyond_start, retries)):
        yield _clue(retries)
        return
    if not failures and not facts.job.ended_by:
        yield RULE.undecided(
            f"connections to {addresses(retries) or 'another rank'} are refused and retried; the log does not show "
            "how that ended",
            Needs("the lines up to 'exceeded', 'Init COMPLETE' or the end of the job"),
        )
        return
    notices = failures or retries
    where = addresses([*failures, *retries]) or "another rank"
    yield RULE.finding(
        f"connections to {where} are refused"
        + ("" if failures else "; NCCL was still retrying when the job was ended"),
        cause="nothing listens at that address: the process there (usually rank 0, whose address it is) is gone or has "
        "not started, or the address belongs to an earlier job or to another machine",
        impact="ranks that cannot reach each other cannot build a communicator; NCCL gives up after 20 s (up to 2.23) "
        "or one minute",
        fix=[
            _ROOT,
            "kubectl get pods -o wide   # is the pod of rank 0 running?",
            f"ss -ltnp   # on the host of {where}: does anything listen on that port?",
            "Make MASTER_ADDR resolve to the host of rank 0 on all hosts; remove a file:// store or NCCL_COMM_ID left "
            "from an earlier job.",
            _LATE,
        ],
        confidence="likely",
        notices=notices,
        fatal=True,
    )
