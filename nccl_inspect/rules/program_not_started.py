"""The launcher could not start the program, or the scheduler refused the job."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.page_words import Hit

_NO_PROGRAM = ("launchers/slurm-no-executable", "launchers/mpi-hydra-no-executable", "launchers/mpi-executable")


def find(facts: Facts) -> Iterator[Hit]:
    """Find launchers' messages about a program that they could not start, if no process printed a line of NCCL."""
    if facts.job.last_lines:
        return  # another program of the script
    headed = facts.notices("launchers/mpi-no-executable", "launchers/mpi-no-executable-5")
    errors = [n for n in facts.notices(*_NO_PROGRAM) if n.production != "launchers/mpi-executable" or headed]
    named = (
        {"error": value(errors[0], "error"), "program": value(errors[0], "program")} if errors else {"refused": True}
    )
    others = [one for one in facts.errors_of_rule("program-not-started") if one.production not in _NO_PROGRAM]
    if found := [*headed, *errors] if errors else [*facts.notices("launchers/slurm-not-allocated"), *others]:
        yield Hit(found, named, ranks=(), hosts=())
