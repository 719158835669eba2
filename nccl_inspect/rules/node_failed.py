"""A node of the job failed, as a launcher or scheduler reports."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.statements import message_of

RULE = Rule(
    name="node-failed",
    category="failures",
    layer=Layer.HARDWARE,
    title="A node of the job failed or was lost",
    shows=("death",),
)
_MEMORY = "launchers/slurm-memory-error"


def judge(facts: Facts) -> Results:
    """Judge nodes that mpirun lost, and broken memory that Slurm reports: both end the job."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    is_memory = any(notice.production == _MEMORY for notice in notices)
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"a node failed: {message_of(notices[0]).strip()}",
        cause="memory of the host is broken: the hardware reported an error that it could not correct"
        if is_memory
        else "the launcher lost a node: it went down or was restarted, its daemon was killed, or the network "
        "between the nodes does not work",
        stops="the processes on it are gone, and a communicator does not survive the loss of a rank",
        fix=(
            "Run the job without this node (Slurm: --exclude=<node>; Kubernetes: kubectl cordon <node>).",
            "dmesg -T | tail -100; last -x reboot | head   # on the node: why did it fail?",
        ),
        confirm="Check whether the processes on that node continued.",
        confidence="certain" if is_memory else "likely",
        deadly=True,
    )
