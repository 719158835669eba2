"""A job with assertions for tests, which fail with the finding or expectation and the lines that prove it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.extras.gate import policy as policies
from nccl_inspect.judging.engine import SEVERITIES, select_rules
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job, Path
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, ranges


class TestedJob(Job):
    """The job of :func:`nccl_inspect.read`, with assertions."""

    __slots__ = ()
    __test__ = False  # keeps pytest from collecting the class

    def __repr__(self) -> str:
        names = ", ".join(source.name for source in self.sources[:2]) + (", …" if len(self.sources) > 2 else "")
        return f"<NCCL job {names}: {self.verdict}, {count(len(self.findings), 'finding')}>"

    @classmethod
    def from_job(cls, job: Job) -> TestedJob:
        """Return the same job with assertions."""
        return cls(**{field.name: getattr(job, field.name) for field in fields(job)})

    def assert_ok(self) -> None:
        """Assert that every path in the log is as good as expected: the verdict is ``ok``."""
        __tracebackhide__ = True
        if self.verdict != "ok":
            bad = _findings(finding for finding in self.findings if finding.severity != "info")
            raise AssertionError(_join(f"the verdict is {self.verdict}, not ok", bad, self._list_questions()))

    def assert_no_findings(self, severity: str = "warning", *, ignore: str | Iterable[str] = ()) -> None:
        """Assert that no finding is of this severity or higher, but for rules to ignore, and that the job did not fail.

        Rules are given by name, glob or category; an NcclInspectError says that there is no such severity or rule.
        """
        __tracebackhide__ = True
        limit = SEVERITIES.index(_require_choice("severity", severity, SEVERITIES))
        counting = {entry.rule.name for entry in select_rules((), (ignore,) if isinstance(ignore, str) else ignore)}
        severe = (finding for finding in self.findings if SEVERITIES.index(finding.severity) >= limit)
        violations = [finding for finding in severe if finding.rule in counting]
        if violations:
            head = f"{count(len(violations), 'finding')} of severity {severity} or above"
            raise AssertionError(_join(head, _findings(violations)))
        if self.verdict == "failed" and not self.findings:
            lines = [line for notice in self.unexplained for line in notice.evidence[:1]]
            raise AssertionError(_join("the job failed, and no rule explains why", [_lines(lines)]))

    def assert_finding(self, rule: str) -> Finding:
        """Assert that there is a finding of this rule, and return it: for tests that break something on purpose."""
        __tracebackhide__ = True
        select_rules((rule,))
        for finding in self.findings:
            if finding.rule == rule:
                return finding
        names = ", ".join(finding.rule for finding in self.findings) or "nothing"
        raise AssertionError(_join(f"no finding {rule}; found: {names}", self._list_questions()))

    def assert_transport(self, *allowed: str, scope: str | None = None) -> None:
        """Assert that every pair uses one of these transports, and that there is a pair, in a scope or in all.

        Transports are names (``P2P``, ``SHM``, ``NET``) or globs of details (``NET/*Libfabric``); the scope is
        ``intra`` (within hosts) or ``inter``. An NcclInspectError says that there is no such transport or scope.
        """
        __tracebackhide__ = True
        _check_ways(allowed)
        if scope is not None:
            _require_choice("scope", scope, policies.SCOPES)
        possible = [name for name in policies.SCOPES if not policies.is_impossible(name, self)] or policies.SCOPES
        scopes = possible if scope is None else (scope,)
        asks = {name: partial(policies.ask_transport, name, allowed) for name in scopes}
        self._demand(f"transport {' or '.join(allowed)}", asks)

    def assert_gdr(self) -> None:
        """Assert that every network path uses GPUDirect RDMA on all its channels, and that there is a path."""
        __tracebackhide__ = True
        present = {kind.scope for kind in self.paths.kinds if kind.transport == "NET"}
        if not present:
            head = "no network path in the log, so none that uses GPUDirect RDMA"
            raise AssertionError(_join(head, self._list_questions()))
        self._demand(
            "GPUDirect RDMA", {scope: partial(policies.ask_gdr, scope) for scope in policies.SCOPES if scope in present}
        )

    def assert_path(self, src: int, dst: int, *allowed: str) -> Path:
        """Assert that the path from one global rank to another uses one of these transports, and return the path."""
        __tracebackhide__ = True
        _check_ways(allowed)
        try:
            path = self.paths.between(src, dst)
        except KeyError as error:
            raise AssertionError(_join(str(error.args[0]), self._list_questions())) from None
        bad = [way for way in policies.list_ways(path) if not policies.is_allowed(way, allowed)]
        if bad:
            head = f"{src} -> {dst} uses {bad[0].detail}, wanted: {' or '.join(allowed)}"
            raise AssertionError(_join(head, [_lines(path.evidence[:2])], self._list_findings([path])))
        return path

    def assert_policy(self, policy: str | None = None, *, strict: bool = False, **expectations: Any) -> None:
        """Assert that a policy is kept: the file of ``nccl-inspect check``, or the same keys as arguments.

        Keys are such as ``world_size=16`` or ``paths={"inter": {"gdr": True}}``; strict, what is undecided counts as
        broken.
        """
        __tracebackhide__ = True
        demanded = [] if policy is None else [policies.read_policy(policy)]
        demanded += [policies.read_policy(expectations)] if expectations or policy is None else []
        for each in demanded:
            if bad := _bad_outcomes(each, self, strict):
                head = f"{count(len(bad), 'expectation')} of {each.file} not kept"
                raise AssertionError(_join(head, map(_answer, bad)))

    def _demand(self, wanted: str, asks: Mapping[str, Callable[[Job], Iterable[policies.Answer]]]) -> None:
        """Fail unless the check of each scope holds; what the log does not show counts as a failure."""
        __tracebackhide__ = True
        expected = [policies.Expectation(f"{scope} paths", wanted, ask) for scope, ask in asks.items()]
        if bad := _bad_outcomes(policies.Policy("", expected), self, strict=True):
            ranks = {rank for outcome in bad for rank in outcome.ranks}
            paths = [path for path in self.paths if path.src in ranks and path.scope in asks]
            raise AssertionError(_join(f"not every path has {wanted}", map(_answer, bad), self._list_findings(paths)))

    def _list_findings(self, paths: Iterable[Path]) -> list[str]:
        rules = {rule for path in paths for rule in path.rules}
        rules |= {cause for finding in self.findings if finding.rule in rules for cause in finding.because}
        return _findings(finding for finding in self.findings if finding.rule in rules)

    def _list_questions(self) -> list[str]:
        return [f"not judged: {entry.rule}: {entry.reason}; {entry.needs}" for entry in self.not_judged]


def _require_choice(noun: str, word: str, choices: Sequence[str]) -> str:
    if word not in choices:
        hint = suggestion(str(word), choices) or f"choose from {', '.join(choices)}"
        raise NcclInspectError(f"no {noun} '{word}'", hint)
    return word


def _check_ways(allowed: Sequence[str]) -> None:
    if not allowed:
        raise NcclInspectError("no transport", 'name the allowed ones, such as "P2P"')
    for unknown in filter(None, map(policies.unknown_transport, allowed)):
        raise NcclInspectError(*unknown)


def _findings(findings: Iterable[Finding]) -> list[str]:
    findings = list(findings)
    names = {finding.rule for finding in findings}
    return [_finding(finding, names.intersection(finding.because)) for finding in findings]


def _finding(finding: Finding, causes: set[str]) -> str:
    ranks = f", ranks {ranges(finding.ranks)}" if finding.ranks else ""
    head = f"{finding.severity} {finding.rule} ({finding.confidence}{ranks}): {finding.summary}"
    cause = f"see {', '.join(sorted(causes))}" if causes else finding.cause
    fixes = [] if causes else [f"  fix: {fix}" for fix in finding.fix]
    where = f"  where: {finding.where}" if finding.where else ""
    return "\n".join(part for part in (head, where, f"  cause: {cause}", _lines(finding.evidence), *fixes) if part)


def _bad_outcomes(policy: policies.Policy, job: Job, strict: bool) -> list[policies.Answer]:
    checked = policy.check(job)
    return [*checked.list_outcomes("broken"), *(checked.list_outcomes("undecided") if strict else ())]


def _answer(answer: policies.Answer) -> str:
    todo = f"  fix: {answer.todo}" if answer.todo else ""
    parts = [f"{answer.key}: {answer.summary}, wanted: {answer.wanted}", _lines(answer.evidence), todo]
    return "\n".join(part for part in parts if part)


def _lines(evidence: Iterable[Evidence]) -> str:
    return "\n".join(f"  {line.source}:{line.line}: {line.text}" for line in evidence)


def _join(head: str, *groups: Iterable[str]) -> str:
    """Return a message that a terminal can show, whatever the log holds."""
    parts = [head, *(part for group in groups for part in group if part)]
    return "\n\n".join("\n".join(map(escape_controls, part.split("\n"))) for part in parts)
