"""Lines of the same process appear in the log more than once."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.util.wording import count

RULE = Rule(
    name="lines-collected-twice",
    category="log quality",
    severity="info",
    title="Lines of the same process appear in the log more than once",
)


def judge(facts: Facts) -> Results:
    """Judge the copies that the model left out."""
    copies = facts.job.repeated
    if not copies:
        return
    yield RULE.finding(
        f"lines of {count(len(copies), 'process', 'es')} appear in the log more than once",
        cause="the log of a pod or process is in two files, was followed again from its beginning, or was appended to "
        "itself: lines with the id of a communicator are printed only once",
        impact="none on the paths: the other copy has the same lines. Plain counts are too high "
        "(collective calls, repeats of a warning)",
        fix=["Pass each file once, and one log per pod."],
        evidence=copies,
    )
