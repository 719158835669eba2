"""A launcher that could not start the program, or a scheduler that refused the job."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="program-not-started",
    category="failures",
    severity="error",
    title="The launcher could not start the program",
)
_REFUSED = "launchers/slurm-not-allocated"
_NO_PROGRAM = ("launchers/slurm-no-executable", "launchers/mpi-hydra-no-executable", "launchers/mpi-executable")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what launchers say of a program that they could not start, where none of it has printed a line of NCCL."""
    if facts.job.last_lines:
        return  # another program of the script
    headed = facts.notices("launchers/mpi-no-executable", "launchers/mpi-no-executable-5")
    said = [one for one in facts.notices(*_NO_PROGRAM) if one.production != "launchers/mpi-executable" or headed]
    if said:
        first = said[0]
        program, error = value(first, "program"), value(first, "error")
        yield RULE.finding(
            f"the launcher could not start {program}" + (f": {error}" if error else ""),
            cause="there is no such program on that host, or this user may not execute it",
            impact="nothing ran: NCCL was never called",
            fix=[
                f"ls -l {program}   # on each host, and in the container: is it there, and executable?",
                "Give the interpreter in front of a script: python train.py, bash run.sh.",
            ],
            evidence=first_said([*headed, *said]),
            fatal=True,
        )
    elif refused := [
        *facts.notices(_REFUSED),
        *(one for one in facts.leading_to(RULE.name) if one.production not in _NO_PROGRAM),
    ]:
        yield RULE.finding(
            f"Slurm refused the job: {value(refused[0], 'error')}",
            cause="what the job asks for is not there, or this user may not have it",
            impact="nothing ran: NCCL was never called",
            fix=[
                "sinfo -N -l; scontrol show partition   # which nodes are there, and what may a job ask for?",
                "Compare with the options of srun, sbatch or salloc: nodes, partition, account, time, GPUs.",
            ],
            evidence=first_said(refused),
            fatal=True,
        )
