"""A policy: expectations from a TOML file, each kept, broken, or left undecided by the log.

The file is read in the last section; what can be asked of a job and of its paths is before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from nccl_inspect.errors import suggestion
from nccl_inspect.event import types as events
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import ACTIONS, Finding
from nccl_inspect.model.job import CommunicatorInfo, Job, Path, PathKind, Selection, Setting
from nccl_inspect.model.paths.path import AlsoPath
from nccl_inspect.model.statements.environment import is_echoed
from nccl_inspect.model.versions import Alike, order
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.toml import Table, load
from nccl_inspect.util.wording import count, list_words, ranges

STATES = ("broken", "undecided", "kept")
_MAX_EVIDENCE = 3


@frozen
class Answer(Frozen):
    """An answer of the log to an expectation."""

    state: str
    """``kept``, ``broken`` or ``undecided``."""
    summary: str
    """What was found."""
    todo: str = ""
    """What mends it, or which log would show it; empty when it is kept."""
    ranks: list[int] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    rule: str = ""
    """The rule whose finding it is or goes back to; empty when no rule speaks of it."""


def answer_kept(summary: str) -> Answer:
    """Answer that it is as expected."""
    return Answer("kept", summary)


def answer_broken(
    summary: str, todo: str, evidence: Iterable[Evidence] = (), ranks: Iterable[int] = (), rule: str = ""
) -> Answer:
    """Answer that it is not as expected."""
    return Answer("broken", summary, todo, sorted(set(ranks)), list(evidence)[:_MAX_EVIDENCE], rule)


def answer_undecided(summary: str, todo: str, evidence: Iterable[Evidence] = ()) -> Answer:
    """Answer that the log does not show it."""
    return Answer("undecided", summary, todo, [], list(evidence)[:_MAX_EVIDENCE])


@frozen
class Expectation(Frozen):
    """One line of a policy."""

    key: str
    """Its key in the file: ``paths.inter.gdr``."""
    wanted: str
    """What it asks for, in words."""
    ask: Callable[[Job], Iterable[Answer]]
    """Gives at least one answer, and one for each thing that breaks it."""


@frozen
class Outcome(Frozen):
    """An answer with the expectation that it is about."""

    key: str
    wanted: str
    answer: Answer


@frozen
class Checked(Frozen):
    """A job checked against a policy."""

    policy: str
    """The name of the file."""
    job: Job
    outcomes: list[Outcome]
    """What is broken first, then what is undecided."""

    @property
    def state(self) -> str:
        """Return the state of the worst outcome."""
        return self.outcomes[0].answer.state if self.outcomes else "kept"

    def list_outcomes(self, state: str) -> list[Outcome]:
        """Return the outcomes in that state."""
        return [outcome for outcome in self.outcomes if outcome.answer.state == state]

    @property
    def findings(self) -> list[Finding]:
        """Return the findings that what is broken goes back to."""
        rules = {outcome.answer.rule for outcome in self.list_outcomes("broken")}
        return [finding for finding in self.job.findings if finding.rule in rules]

    def is_met(self, strict: bool) -> bool:
        """Return whether nothing is broken and, if strict, nothing undecided."""
        return self.state == "kept" or (self.state == "undecided" and not strict)


@frozen
class Policy(Frozen):
    """Expectations of a file."""

    file: str
    expectations: list[Expectation]

    def check(self, job: Job) -> Checked:
        """Hold a judged job against it."""
        outcomes = [Outcome(each.key, each.wanted, answer) for each in self.expectations for answer in each.ask(job)]
        unread = [source.problem for source in job.sources if source.problem]
        outcomes += [Outcome("log", "to be read", answer_undecided(problem, "see the message")) for problem in unread]
        return Checked(self.file, job, sorted(outcomes, key=lambda outcome: STATES.index(outcome.answer.state)))


class Worst:
    """The job that is worst by a policy, of several that are shown one after the other."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._found: Checked | None = None

    def take(self, job: Job) -> None:
        """Hold a job against the policy."""
        checked = self._policy.check(job)
        if self._found is None or _badness(checked) > _badness(self._found):
            self._found = checked

    def check_worst(self, worst: Job) -> Checked:
        """Return the worst job by the policy; of equal ones the one that is worst anyway."""
        own = self._policy.check(worst)
        return own if self._found is None or _badness(own) >= _badness(self._found) else self._found


def _badness(checked: Checked) -> tuple[int, int]:
    return len(checked.list_outcomes("broken")), len(checked.list_outcomes("undecided"))


# --- what can be asked of a job -----------------------------------------------------------------------------------

_FROM_THE_START = "give the log from the start of the job, with NCCL_DEBUG=INFO"
_IMAGE = "check what the image has and what LD_LIBRARY_PATH finds first"
_DRIVER = "it is what the driver supports: check the node's driver with nvidia-smi, or use a node with another"
_BUILT_IN = ("IB", "Socket")


def world_communicator(job: Job) -> CommunicatorInfo | None:
    """Return the communicator of all ranks."""
    return next((comm for comm in job.communicators if comm.nranks == job.world_size), None)


def _ask_world_size(wanted: int, job: Job) -> Iterator[Answer]:
    comm = world_communicator(job)
    if comm is None:
        yield answer_undecided("no communicator of all ranks is in the log", _FROM_THE_START)
    elif comm.nranks == wanted:
        yield answer_kept(count(wanted, "rank"))
    else:
        todo = "check what the launcher starts: --nnodes, --nproc-per-node, replicas"
        yield answer_broken(count(comm.nranks, "rank"), todo, comm.evidence)


def _ask_hosts(wanted: int, job: Job) -> Iterator[Answer]:
    """Count hosts as NCCL does, else as the log names them."""
    comm = world_communicator(job)
    stated = comm.nnodes if comm else None
    number = stated or len(job.hosts)
    if stated is None and len(job.ranks_seen) != job.world_size:
        yield answer_undecided(f"{count(number, 'host')} in the log, and not every rank", _FROM_THE_START)
    elif number == wanted:
        yield answer_kept(count(number, "host"))
    else:
        names = f" ({list_words(host.name for host in job.hosts)})" if len(job.hosts) == number else ""
        todo = "check --nnodes and where the scheduler put the ranks; to NCCL each pod is a host"
        yield answer_broken(f"{count(number, 'host')}{names}", todo, comm.evidence if comm else ())


def _ask_min_channels(wanted: int, job: Job) -> Iterator[Answer]:
    comm = world_communicator(job)
    if comm is None or comm.channels is None:
        yield answer_undecided("the channels of the communicator of all ranks are not in the log", _FROM_THE_START)
    elif comm.channels >= wanted:
        yield answer_kept(count(comm.channels, "channel"))
    else:
        todo = "check for NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS, slow paths, and NICs that are not visible"
        yield answer_broken(count(comm.channels, "channel"), todo, comm.evidence)


def _ask_max_severity(wanted: str, job: Job) -> Iterator[Answer]:
    """Ask for no finding above a severity, and no failed job; ``none`` means no finding at all."""
    limit = SEVERITIES.index(wanted) if wanted in SEVERITIES else -1
    above = [finding for finding in job.findings if SEVERITIES.index(finding.severity) > limit]
    names = {finding.rule for finding in above}
    for finding in above:
        if not finding.root and names.intersection(finding.because):
            continue  # but an effect of what is told already
        summary = f"{finding.severity} {finding.rule} ({finding.confidence}): {finding.summary}"
        todo = finding.fix[0] if finding.fix else finding.cause
        yield answer_broken(summary, todo, finding.evidence, finding.ranks, finding.rule)
    errors = [notice.evidence[0] for notice in job.unexplained]
    if job.verdict == "failed" and not above:
        yield answer_broken("the job is dead or stuck", "nccl-inspect summarize shows what is known", errors)
        return
    for question in job.not_judged:
        yield answer_undecided(f"{question.rule}: {question.reason}", question.needs)
    if errors:
        summary = f"{count(len(errors), 'error')} that no rule explains: {job.unexplained[0].message}"
        yield answer_undecided(summary, "nccl-inspect summarize lists them", errors)
    if above or job.not_judged or errors:
        return
    if job.verdict != "unknown":
        yield answer_kept(count(len(job.findings), "finding"))
    elif job.left_out:
        yield answer_undecided("a rule that is left out finds a problem", "run all rules: no --select and no --ignore")
    else:
        yield answer_undecided("the log does not show enough to judge a path", _FROM_THE_START)


def _ask_forbidden_actions(unwanted: tuple[str, ...], job: Job) -> Iterator[Answer]:
    needing = [finding for finding in job.findings if finding.action in unwanted]
    for finding in needing:
        summary = f"{finding.action} for {finding.rule} ({finding.confidence}): {finding.summary}"
        yield answer_broken(summary, finding.fix[0], finding.evidence, finding.ranks, finding.rule)
    if not needing and job.verdict == "unknown":
        yield answer_undecided("the log does not show enough to judge the job", _FROM_THE_START)
    elif not needing:
        yield answer_kept("no finding needs it")


def _ask_max_lines(kind: str, wanted: int, job: Job) -> Iterator[Answer]:
    """Ask for no more lines that are ``unrecognised`` or ``damaged``."""
    lines = sum(getattr(source, f"{kind}_lines") for source in job.sources)
    if lines <= wanted:
        yield answer_kept(count(lines, "line"))
    elif kind == "damaged":
        todo = "let each process write its own file: NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log"
        yield answer_broken(count(lines, "line"), todo, job.damaged)
    else:
        todo = "upgrade nccl-inspect, or report them: summarize -v lists them"
        yield answer_broken(count(lines, "line"), todo, [entry.example for entry in job.unrecognised])


def _ask_version(what: str, allowed: tuple[str, ...], least: str | None, job: Job) -> Iterator[Answer]:
    """Ask for releases of ``nccl``, ``plugin`` or ``cuda`` that fit a glob, and are not older than the oldest one."""
    if what == "plugin" and job.network.name in _BUILT_IN:
        todo = "the plugin is missing or did not start: nccl-inspect summarize shows why"
        yield answer_broken(f"no plugin: the network is {job.network.name}", todo, _network_lines(job))
        return
    plugin = [job.network.plugin_version] if job.network.plugin_version else []
    versions = {"plugin": plugin, "nccl": job.nccl_versions, "cuda": job.cuda_versions}[what]
    exact = [text for text in versions if "inferred" not in text]
    if not exact:
        guess = f", its lines fit {versions[0].removesuffix(' (inferred)')}" if versions else ""
        yield answer_undecided(f"the version is not in the log{guess}", _FROM_THE_START)
        return
    bad = []
    for text in exact:
        names = (text, text.partition("+")[0])
        fits = not allowed or any(fnmatchcase(name, pattern) for name in names for pattern in allowed)
        if not fits or (least is not None and order(text) < order(least)):
            bad.append(text)
    if bad:
        lines = []
        for notice in job.notices:
            match notice.event:
                case events.NcclVersion(version=version) | events.PluginStatus(kind="NET", detail=version) if (
                    version in bad
                ):
                    lines.append(notice.evidence[0])
                case events.CudaDriver(cuda_version=n) if f"{n // 1000}.{n % 1000 // 10}" in bad:
                    lines.append(notice.evidence[0])
        yield answer_broken(", ".join(bad), _DRIVER if what == "cuda" else _IMAGE, lines)
    else:
        yield answer_kept(", ".join(exact))


def _ask_network(key: str, allowed: tuple[str, ...], job: Job) -> Iterator[Answer]:
    """Ask for the ``name`` of the network, or the ``provider`` of its plugin."""
    actual = job.network.name if key == "name" else job.network.provider
    if key == "provider" and job.network.name in _BUILT_IN:
        actual = f"none: the network is {job.network.name}"
    if actual is None:
        yield answer_undecided(f"the {key} is not in the log", _FROM_THE_START)
    elif any(fnmatchcase(actual, pattern) for pattern in allowed):
        yield answer_kept(actual)
    else:
        yield answer_broken(actual, "nccl-inspect summarize shows why this one was chosen", _network_lines(job))


def _network_lines(job: Job) -> list[Evidence]:
    """Return the first lines that say which network is used: its devices, its provider, a path."""
    name, used = job.network.name, [(notice.event, notice.evidence[0]) for notice in job.notices]
    devices = [line for event, line in used if isinstance(event, events.NetDevices) and event.net == name]
    providers = [line for event, line in used if isinstance(event, events.OfiProvider)]
    return [*devices[:1], *providers[:1], *job.paths.where(lambda kind: kind.net == name).first_lines()[:1]]


def _ask_forbidden(name: str, value: str | None, job: Job) -> Iterator[Answer]:
    """Ask that nobody but a plugin sets a variable, or not to this value; both are globs."""

    def fits(setting: Setting | Alike) -> bool:
        return fnmatchcase(setting.name, name) and (value is None or fnmatchcase(setting.value, value))

    violations = [setting for setting in job.environment if setting.source != "plugin" and fits(setting)]
    for setting in violations:
        own = {(line.source, line.order) for line in setting.evidence}
        about = (
            finding
            for finding in job.findings
            if finding.severity != "info" and finding.fix and own & {(e.source, e.order) for e in finding.evidence}
        )
        finding = next(about, None)
        todo = f"unset {setting.name}   # pod spec 'env:', image, launch script, /etc/nccl.conf"
        if finding and setting.name in finding.fix[0]:
            todo = finding.fix[0]
        rule = finding.rule if finding else ""
        yield answer_broken(_assignment(setting), todo, setting.evidence, _ranks_with(setting, job), rule)
    alike = [setting for setting in job.environment if setting.alike and fits(setting.alike)]
    if violations:
        return
    if alike:  # something else is printed in the same words
        words = f"{' or '.join(alike[0].assignments)} is set: this release prints both alike"
        yield answer_undecided(words, f"unset {' '.join(alike[0].names)}", _first_lines_of_settings(alike))
    elif not is_echoed(name, job.nccl_versions):
        effect = "; ask for its effect: [paths.intra] transport" if name == "NCCL_P2P_DISABLE" else ""
        yield answer_undecided("this release does not echo it", f"check the environment of the job{effect}")
    elif not any(comm.completed for comm in job.communicators):
        yield answer_undecided("no initialization is complete in the log, so it may still appear", _FROM_THE_START)
    else:
        yield answer_kept("not in the log")


def _ask_required(name: str, value: str | None, job: Job) -> Iterator[Answer]:
    """Ask that every process shows a variable with a value that fits the glob."""
    settings = [setting for setting in job.environment if fnmatchcase(setting.name, name)]
    bad = [setting for setting in settings if not fnmatchcase(setting.value, value or "*")]
    for setting in bad:
        todo = f"give {setting.name} the same value in 'env:' of all roles, or with mpirun -x, srun --export"
        yield answer_broken(_assignment(setting), todo, setting.evidence, _ranks_with(setting, job))
    if bad:
        return
    if any(setting.ranks is None for setting in settings):
        yield answer_kept(", ".join(f"{setting.name}={setting.value}" for setting in settings))
        return
    todo = "check the environment of the job: NCCL echoes a variable only when it uses it"
    who = "only some processes show it" if settings else "no process shows it"
    yield answer_undecided(who, todo, _first_lines_of_settings(settings))


def _assignment(setting: Setting) -> str:
    where = "" if setting.ranks is None else f" on ranks {ranges(setting.ranks) or '?'}"
    return f"{setting.name}={setting.value}{where}"


def _ranks_with(setting: Setting, job: Job) -> list[int]:
    return job.ranks_seen if setting.ranks is None else setting.ranks


def _first_lines_of_settings(settings: Iterable[Setting]) -> list[Evidence]:
    return [line for setting in settings for line in setting.evidence[:1]]


# --- what can be asked of paths -----------------------------------------------------------------------------------

_NO_RULE = "no rule objects to it: allow it in the policy, or see 'nccl-inspect summarize' for what is known"


def ask_transport(scope: str, allowed: tuple[str, ...], job: Job) -> Iterator[Answer]:
    """Ask that every pair goes one of these ways: transports (``P2P``) or globs of details (``P2P/CUMEM*``)."""
    paths = select_scope(scope, job)
    bad: dict[str, list[PathKind]] = {}
    for kind in paths.kinds:
        for way in list_ways(kind):
            if not is_allowed(way, allowed):
                bad.setdefault(way.detail, []).append(kind)
    for detail, kinds in bad.items():
        yield _answer_broken_paths(f"use {detail}", paths.where(kinds.__contains__), job)
    if not bad:
        used = list_words(sorted({way.detail for kind in paths.kinds for way in list_ways(kind)}))
        yield _answer_kept_paths(scope, paths, f"use {used}", job)


def is_allowed(way: Path | PathKind | AlsoPath, allowed: tuple[str, ...]) -> bool:
    """Return whether a way is of an allowed transport, or its detail fits a glob; capitals do not matter."""
    detail, kind = way.detail.upper(), way.transport.upper()
    return any(kind == pattern.upper() or fnmatchcase(detail, pattern.upper()) for pattern in allowed)


def ask_gdr(scope: str, job: Job) -> Iterator[Answer]:
    """Ask that every network path uses GPUDirect RDMA on all its channels; P2P and SHM need none."""
    paths = select_scope(scope, job).where(lambda kind: kind.transport == "NET")
    states = {kind: [way.gdr for way in list_ways(kind) if way.transport == "NET"] for kind in paths.kinds}
    without = paths.where(lambda kind: any(state is False for state in states[kind]))
    partly = paths.exclude(without).where(lambda kind: "partial" in states[kind])
    if without:
        yield _answer_broken_paths("have no GPUDirect RDMA", without, job)
    if partly:
        yield _answer_broken_paths("have GPUDirect RDMA in part only (at one end, or on some channels)", partly, job)
    if not without and not partly:
        yield _answer_kept_paths(scope, select_scope(scope, job), "need it and have it" if paths else "need none", job)


def _ask_min_channels_of_pairs(scope: str, wanted: int, job: Job) -> Iterator[Answer]:
    paths = select_scope(scope, job)
    few = paths.where(lambda kind: len(kind.channels) < wanted)
    if few:
        least = min(len(kind.channels) for kind in few.kinds)
        yield _answer_broken_paths(f"have fewer (the least is {least})", few, job)
    else:
        yield _answer_kept_paths(scope, paths, "have them", job)


def select_scope(scope: str, job: Job) -> Selection:
    """Return the paths within hosts, or those between them."""
    return job.paths.where(lambda kind: kind.scope == scope)


def list_ways(path: Path | PathKind) -> list[Path | PathKind | AlsoPath]:
    """Return the way that a path reports, and the others between its ranks."""
    return [path, *path.also]


def _answer_broken_paths(what: str, paths: Selection, job: Job) -> Answer:
    pairs = list_words((f"{src}->{dst}" for src, dst in paths.distinct("src", "dst")), 3)
    rules = {rule for kind in paths.kinds for rule in kind.rules}
    about = (f for f in job.findings if f.rule in rules and f.severity != "info" and f.fix)
    finding = next(about, None)
    todo, rule = (finding.fix[0], finding.rule) if finding else (_NO_RULE, "")
    summary = f"{count(len(paths), 'pair')} ({pairs}) {what}"
    return answer_broken(summary, todo, paths.first_lines(), paths.ends(), rule)


def _answer_kept_paths(scope: str, paths: Selection, what: str, job: Job) -> Answer:
    """Answer that it is kept, if the log shows all paths of that scope."""
    missing = sorted(set(range(job.world_size or 0)) - set(job.ranks_seen))
    if missing:
        seen = f"{count(len(paths), 'pair')} {what}; " if paths else ""
        words = f"{seen}the paths of {'rank' if len(missing) == 1 else 'ranks'} {ranges(missing)} are not in the log"
        return answer_undecided(words, "give the logs of all ranks")
    if job.unplaced_lines:
        lines = count(job.unplaced_lines, "connection line")
        return answer_undecided(
            f"{lines} could not be placed", "give the log from the start of the job, with whole lines"
        )
    if paths:
        return answer_kept(f"{count(len(paths), 'pair')} {what}")
    if is_impossible(scope, job):
        # What was asked for was not seen: a job on too few hosts must not pass the gate of a larger one.
        why = "no two ranks share a host" if scope == "intra" else "all ranks are on one host"
        return answer_undecided(why, f"check a job that has such paths, or remove [paths.{scope}] from the policy")
    longer = "give a log that goes past the first collective: since NCCL 2.22 connections are made at first use"
    return answer_undecided("no connection of that kind is in the log", longer)


def is_impossible(scope: str, job: Job) -> bool:
    """Return whether the job is known to have no pair of that scope."""
    comm = world_communicator(job)
    nodes = comm.nnodes if comm and comm.nnodes else len(job.hosts)
    return job.world_size is not None and nodes == (1 if scope == "inter" else job.world_size)


# --- the file -----------------------------------------------------------------------------------------------------

SCOPES = ("intra", "inter")
_TRANSPORTS = ("P2P", "SHM", "NET", "COLLNET")
_OLD_DETAIL = "DIRECT SHARED MEMORY"
"""How NCCL calls SHM until 2.12."""
_LIMITS = ("none", "info", "warning", "error")


def read_policy(path: str) -> Policy:
    """Read a policy from a file.

    Raises:
        NcclInspectError: it cannot be read, says something that is not understood, or says nothing.
    """
    return _policy_from_table(path, load(FilePath(path), "--policy"))


def policy_from_values(values: dict[str, Any]) -> Policy:
    """Return the policy that a program states: the keys of a file as a dictionary.

    Raises:
        NcclInspectError: it says something that is not understood, or nothing.
    """
    return _policy_from_table("the policy", Table("the policy", values))


def _policy_from_table(name: str, table: Table) -> Policy:
    expectations = [*_job_expectations(table)]
    versions, network, paths, environment = map(table.table, ("versions", "network", "paths", "environment"))
    for what in ("nccl", "plugin", "cuda"):
        allowed, least = versions.texts(what), versions.text(f"{what}_min")
        if least is not None and not order(least):
            raise versions.error(f"{what}_min is '{least}', which is not a version", f'write {what}_min = "2.27.3"')
        words = [*([" or ".join(allowed)] if allowed else []), *([f"{least} or later"] if least else [])]
        if words:
            ask = partial(_ask_version, what, allowed, least)
            expectations.append(Expectation(f"versions.{what}", ", ".join(words), ask))
    versions.close()
    for key in ("name", "provider"):
        if allowed := network.texts(key):
            ask = partial(_ask_network, key, allowed)
            expectations.append(Expectation(f"network.{key}", " or ".join(allowed), ask))
    for scope in SCOPES:
        expectations += _path_expectations(scope, paths.table(scope))
    for key, ask_setting in (("forbidden", _ask_forbidden), ("required", _ask_required)):
        for entry in environment.texts(key):
            variable, equals, value = entry.partition("=")
            if not variable.strip():
                raise environment.error(f"{key} has '{entry}', which has no variable name", "write NAME or NAME=VALUE")
            ask = partial(ask_setting, variable.strip(), value if equals else None)
            expectations.append(Expectation(f"environment.{key}", f"not {entry}" if key == "forbidden" else entry, ask))
    for each in (network, paths, environment, table):
        each.close()
    if not expectations:
        raise table.error("no expectation", "write one from a good log: nccl-inspect check --learn good.log")
    return Policy(name, expectations)


def _job_expectations(table: Table) -> Iterator[Expectation]:
    for key, words, ask in (
        ("world_size", "{}", _ask_world_size),
        ("hosts", "{}", _ask_hosts),
        ("min_channels", "at least {}", _ask_min_channels),
        ("max_unrecognised_lines", "at most {}", partial(_ask_max_lines, "unrecognised")),
        ("max_damaged_lines", "at most {}", partial(_ask_max_lines, "damaged")),
    ):
        if (number := table.number(key)) is not None:
            yield Expectation(key, words.format(number), partial(ask, number))
    if unwanted := table.texts("forbidden_actions"):
        if unknown := set(unwanted).difference(ACTIONS):
            raise table.error(f"forbidden_actions has '{min(unknown)}'", f"choose from {', '.join(ACTIONS[:-1])}")
        yield expect_no_actions(unwanted)
    if limit := table.text("max_severity", _LIMITS):
        words = "no finding" if limit == "none" else f"no finding above {limit}"
        yield Expectation("max_severity", words, partial(_ask_max_severity, limit))


def expect_no_actions(unwanted: tuple[str, ...]) -> Expectation:
    """Return the expectation that no finding needs one of these actions."""
    ask = partial(_ask_forbidden_actions, unwanted)
    return Expectation("forbidden_actions", "no " + " or ".join(unwanted), ask)


def _path_expectations(scope: str, table: Table) -> Iterator[Expectation]:
    key = f"paths.{scope}"
    if allowed := table.texts("transport"):
        for pattern in allowed:  # a typing error would let no path pass
            if unknown := unknown_transport(pattern):
                raise table.error(*unknown)
        yield Expectation(f"{key}.transport", " or ".join(allowed), partial(ask_transport, scope, allowed))
    if table.flag("gdr"):
        yield Expectation(f"{key}.gdr", "GPUDirect RDMA", partial(ask_gdr, scope))
    if (number := table.number("min_channels")) is not None:
        ask = partial(_ask_min_channels_of_pairs, scope, number)
        yield Expectation(f"{key}.min_channels", f"at least {number} for each pair", ask)
    table.close()


def unknown_transport(pattern: str) -> tuple[str, str] | None:
    """Return why a transport or a glob of details can fit no path, and what to do; None for a good one."""
    kind = pattern.upper().partition("/")[0]
    if any(fnmatchcase(name, kind) for name in (*_TRANSPORTS, _OLD_DETAIL)):
        return None
    hint = suggestion(kind, _TRANSPORTS) or f"known are {', '.join(_TRANSPORTS)}; a detail is such as P2P/CUMEM*"
    return f"no transport '{pattern}'", hint
