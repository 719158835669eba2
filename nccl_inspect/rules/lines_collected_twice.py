"""Lines of processes that are in the log more than once."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import count

RULE = Rule(
    name="lines-collected-twice",
    category="log quality",
    severity="info",
    title="Lines of the same process are in the log more than once",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what the model left out because it had it before."""
    copies = facts.job.repeated
    if not copies:
        return
    yield RULE.finding(
        f"lines of {count(len(copies), 'process', 'es')} stand in the log more than once",
        cause="the log of a pod or process is in two files, was followed again from its beginning, or was appended to "
        "itself: lines with the id of a communicator come once only",
        impact="none on the paths: what is left out is said by another copy, too. What is merely counted is counted "
        "again (collective calls, how often a warning came)",
        fix=["Give each file once, and one log for each pod."],
        evidence=copies,
    )
