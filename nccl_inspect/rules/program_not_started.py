"""The launcher could not start the program, or the scheduler refused the job."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, first_evidence, value

RULE = Rule(
    name="program-not-started",
    category="failures",
    layer=Layer.SYSTEM,
    title="The launcher could not start the program",
    shows=("death",),
)
_REFUSED = "launchers/slurm-not-allocated"
_NO_PROGRAM = ("launchers/slurm-no-executable", "launchers/mpi-hydra-no-executable", "launchers/mpi-executable")


def judge(facts: Facts) -> Results:
    """Judge launchers' messages about a program that they could not start, if no process printed a line of NCCL."""
    if facts.job.last_lines:
        return  # another program of the script
    headed = facts.notices("launchers/mpi-no-executable", "launchers/mpi-no-executable-5")
    errors = [n for n in facts.notices(*_NO_PROGRAM) if n.production != "launchers/mpi-executable" or headed]
    if errors:
        program, error = value(errors[0], "program"), value(errors[0], "error")
        yield RULE.finding(
            f"the launcher could not start {program}" + (f": {error}" if error else ""),
            cause="the program does not exist on that host, or this user may not execute it",
            impact="nothing ran: NCCL was never called",
            fix=[
                f"ls -l {program}   # on each host, and in the container: does it exist, and is it executable?",
                "Put the interpreter in front of a script: python train.py, bash run.sh.",
            ],
            evidence=first_evidence([*headed, *errors]),
            fatal=True,
        )
    elif refused := [
        *facts.notices(_REFUSED),
        *(notice for notice in facts.errors_of_rule(RULE.name) if notice.production not in _NO_PROGRAM),
    ]:
        yield RULE.finding(
            f"Slurm refused the job: {value(refused[0], 'error')}",
            cause="the requested resources do not exist, or this user may not use them",
            impact="nothing ran: NCCL was never called",
            fix=[
                "sinfo -N -l; scontrol show partition   # which nodes exist, and what may a job request?",
                "Compare with the options of srun, sbatch or salloc: nodes, partition, account, time, GPUs.",
            ],
            evidence=first_evidence(refused),
            fatal=True,
        )
