"""Which of several jobs breaks a policy most."""

from __future__ import annotations

from nccl_inspect.extras.gate.policy import Checked, Policy
from nccl_inspect.model.job import Job


class Worst:
    """The job that is worst by a policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._found: Checked | None = None

    def take(self, job: Job) -> None:
        """Hold a job against the policy."""
        checked = self._policy.check(job)
        if self._found is None or _badness(checked) > _badness(self._found):
            self._found = checked

    def checked(self, worst: Job) -> Checked:
        """The worst job by the policy; of equal ones the one that is worst anyway."""
        own = self._policy.check(worst)
        return own if self._found is None or _badness(own) >= _badness(self._found) else self._found


def _badness(checked: Checked) -> tuple[int, int]:
    return len(checked.of("broken")), len(checked.of("undecided"))
