"""The command that ``nccl-inspect run`` started failed, whatever NCCL's lines show."""

from collections.abc import Iterator

from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.statements import EXTERNAL, report_of
from nccl_inspect.util import signals


def find(facts: Facts) -> Iterator[Hit]:
    """Find exit statuses; of several commands, those that a launcher ended are victims of the others."""
    failed = [notice for notice in facts.notices("launchers/run-failed") if report_of(notice).code]
    if notices := [notice for notice in failed if report_of(notice).code not in EXTERNAL] or failed:
        first = report_of(notices[0])
        named = {
            "status": signals.status_words(first.exit_code or 0),
            "node": first.node,
            "others": len(failed) - 1,
            "signal": first.signal,
        }
        yield Hit(notices, named, hosts={report_of(notice).node for notice in notices})
