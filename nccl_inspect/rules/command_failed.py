"""The command that ``nccl-inspect run`` started failed, whatever NCCL's lines show."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.statements import EXTERNAL, report_of
from nccl_inspect.util import signals
from nccl_inspect.util.wording import count

RULE = Rule(
    name="command-failed",
    category="failures",
    title="The command that nccl-inspect run started failed",
    layer=Layer.WAIT,  # a report from outside: whatever a rank shows explains it
)
_FIX = {
    "SIGKILL": "dmesg -T | grep -i 'killed process'   # on its host: did memory run out?",
    "SIGTERM": "sacct -j <job>, or kubectl describe pod <pod>   # who ended it: a limit, an eviction, a user?",
    "SIGINT": "Start it again: Ctrl-C, or a program in its place, ended it.",
}
_READ = "Read the end of the command's own output (job.log in the folder of the run): its last error says why."


def judge(facts: Facts) -> Results:
    """Judge exit statuses; of several commands, those that a launcher ended are victims of the others."""
    failed = [notice for notice in facts.notices("launchers/run-failed") if report_of(notice).code]
    notices = [notice for notice in failed if report_of(notice).code not in EXTERNAL] or failed
    if not notices:
        return
    first = report_of(notices[0])
    status = signals.status_words(first.exit_code or 0)
    node = f" on {first.node}" if first.node else ""
    others = f"; {count(len(failed) - 1, 'other command')} failed, too" if len(failed) > 1 else ""
    yield RULE.finding(
        f"the command ended with status {status}{node}{others}",
        cause="NCCL's lines do not show why the command failed: its own output may",
        impact="the job did not finish, however good its paths are",
        fix=[*([_FIX[first.signal]] if first.signal in _FIX else []), _READ],
        notices=notices,
        hosts={report_of(notice).node for notice in notices},
        fatal=True,
    )
