"""The conclusions about a job, as a value that is written into the job in one place."""

from __future__ import annotations

from dataclasses import field

from nccl_inspect.model.finding import Finding, NotJudged, Suppressed
from nccl_inspect.model.inventory import Waiting
from nccl_inspect.model.job import FirstFailure, Job, Notice, Paths
from nccl_inspect.model.story import Entry
from nccl_inspect.util.records import Record, record


@record
class Judgement(Record):
    """The results of the rules, and what follows from them; the fields are those of the job."""

    rules: list[str]
    left_out: list[str]
    findings: list[Finding]
    suppressed: list[Suppressed]
    not_judged: list[NotJudged]
    unexplained: list[Notice]
    paths: Paths
    """Those of the job, with their verdicts."""
    withheld: int = 0
    """How many are unknown only because of rules that were left out."""
    platform: str | None = None
    likely_ranks: dict[int, int] = field(default_factory=dict)
    """The probable ranks of processes, by their position among the last lines."""
    waiting: Waiting | None = None
    verdict: str = "unknown"
    first_failure: FirstFailure | None = None
    story: list[Entry] = field(default_factory=list)

    def put_into(self, job: Job) -> None:
        """Write everything into the job that was judged."""
        job.rules, job.left_out = self.rules, self.left_out
        job.findings, job.suppressed, job.not_judged = self.findings, self.suppressed, self.not_judged
        job.unexplained, job.waiting, job.platform = self.unexplained, self.waiting, self.platform
        job.verdict, job.first_failure, job.story = self.verdict, self.first_failure, self.story
        job.paths, job.withheld = self.paths, self.withheld
        for position, rank in self.likely_ranks.items():
            job.last_lines[position].likely_rank = rank
