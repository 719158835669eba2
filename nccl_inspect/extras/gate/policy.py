"""A policy: expectations from a TOML file, each kept, broken, or left undecided by the log.

The file is read in the last section; what can be asked of a job and of its paths is before it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from nccl_inspect.errors import suggestion
from nccl_inspect.event import types as events
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.model.evidence import Evidence, positions_in
from nccl_inspect.model.finding import ACTIONS, Finding
from nccl_inspect.model.inventory import BUILT_IN
from nccl_inspect.model.job import CommunicatorInfo, Job, Path, PathKind, Selection, Setting
from nccl_inspect.model.paths.path import AlsoPath
from nccl_inspect.model.statements.environment import is_echoed
from nccl_inspect.model.versions import Alike, order
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.toml import Table, load
from nccl_inspect.util.wording import count, list_words, ranges

STATES = ("broken", "undecided", "kept")
_MAX_EVIDENCE = 3


class Answer(Frozen):
    """An answer of the log to an expectation."""

    state: str  # `kept`, `broken` or `undecided`
    summary: str  # what was found
    todo: str = ""  # what mends it, or which log would show it; empty when it is kept
    evidence: Sequence[Evidence] = ()
    ranks: Sequence[int] = ()
    rule: str = ""  # the rule whose finding it is or goes back to; empty when no rule speaks of it
    key: str = ""  # that of the expectation, which the policy adds, as it does what is wanted
    wanted: str = ""


class Expectation(Frozen):
    """One line of a policy."""

    key: str  # in the file: `paths.inter.gdr`
    wanted: str
    ask: Callable[[Job], Iterable[Answer]]  # gives at least one answer, and one for each thing that breaks it


class Checked(Frozen):
    """A job checked against a policy."""

    policy: str
    job: Job
    outcomes: list[Answer]  # what is broken first, then what is undecided

    @property
    def state(self) -> str:
        """Return the state of the worst outcome."""
        return self.outcomes[0].state if self.outcomes else "kept"

    def list_outcomes(self, state: str) -> list[Answer]:
        """Return the outcomes in that state."""
        return [outcome for outcome in self.outcomes if outcome.state == state]

    @property
    def findings(self) -> list[Finding]:
        """Return the findings that what is broken goes back to."""
        rules = {outcome.rule for outcome in self.list_outcomes("broken")}
        return [finding for finding in self.job.findings if finding.rule in rules]

    def is_met(self, strict: bool) -> bool:
        """Return whether nothing is broken and, if strict, nothing undecided."""
        return self.state == "kept" or (self.state == "undecided" and not strict)


class Policy(Frozen):
    """Expectations of a file."""

    file: str
    expectations: list[Expectation]

    def check(self, job: Job) -> Checked:
        """Hold a judged job against it."""
        outcomes = []
        for each in self.expectations:
            for answer in each.ask(job):
                few = {"evidence": list(answer.evidence)[:_MAX_EVIDENCE], "ranks": sorted(set(answer.ranks))}
                outcomes.append(answer.with_fields(key=each.key, wanted=each.wanted, **few))
        for source in job.sources:
            if source.problem:
                outcomes.append(Answer("undecided", source.problem, "see the message", [], [], "", "log", "to be read"))
        outcomes.sort(key=lambda outcome: STATES.index(outcome.state))
        return Checked(self.file, job, outcomes)


class Worst:
    """The job that is worst by a policy, of several that are shown one after the other."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._found: list[Checked] = []

    def take(self, job: Job) -> None:
        """Hold a job against the policy."""
        self._found = [max([*self._found, self._policy.check(job)], key=_badness)]

    def check_worst(self, worst: Job) -> Checked:
        """Return the worst job by the policy; of equal ones the one that is worst anyway."""
        return max([self._policy.check(worst), *self._found], key=_badness)


def _badness(checked: Checked) -> tuple[int, int]:
    return len(checked.list_outcomes("broken")), len(checked.list_outcomes("undecided"))


# What can be asked of a job

_FROM_THE_START = "give the log from the start of the job, with NCCL_DEBUG=INFO"
_IMAGE = "check what the image has and what LD_LIBRARY_PATH finds first"
_DRIVER = "it is what the driver supports: check the node's driver with nvidia-smi, or use a node with another"
_NUMBERS: dict[str, list[str]] = tomllib.loads(FilePath(__file__).with_name("numbers.toml").read_text(encoding="utf-8"))
_LIMITS = {"min": "at least {}", "max": "at most {}"}


def world_communicator(job: Job) -> CommunicatorInfo | None:
    """Return the communicator of all ranks."""
    return next((comm for comm in job.communicators if comm.nranks == job.world_size), None)


def count_hosts(job: Job) -> int:
    """Return the number of hosts: as NCCL counts them, else as the log names them."""
    comm = world_communicator(job)
    return comm.nnodes if comm and comm.nnodes else len(job.hosts)


def _ask_number(key: str, wanted: int, job: Job) -> Iterator[Answer]:
    noun, todo = _NUMBERS[key]
    comm, names, missing = world_communicator(job), "", ""
    lines, number = comm.evidence if comm else [], 0
    if key == "hosts":
        number = count_hosts(job)
        names = f" ({list_words(host.name for host in job.hosts)})" if len(job.hosts) == number else ""
        if (comm is None or comm.nnodes is None) and len(job.ranks_seen) != job.world_size:
            missing = f"{count(number, 'host')} in the log, and not every rank"
    elif noun == "line":
        number = sum(getattr(source, key.removeprefix("max_")) for source in job.sources)
        lines = job.damaged if "damaged" in key else [entry.example for entry in job.unrecognised]
    elif key == "world_size":
        number, missing = (comm.nranks, "") if comm else (0, "no communicator of all ranks is in the log")
    elif comm is None or comm.channels is None:
        missing = "the channels of the communicator of all ranks are not in the log"
    else:
        number = comm.channels
    if missing:
        yield Answer("undecided", missing, _FROM_THE_START)
    elif number == wanted or (key.startswith("min") and number > wanted) or (noun == "line" and number < wanted):
        yield Answer("kept", count(number, noun))
    else:
        yield Answer("broken", f"{count(number, noun)}{names}", todo, lines)


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
        yield Answer("broken", summary, todo, finding.evidence, finding.ranks, finding.rule)
    errors = [notice.evidence[0] for notice in job.unexplained]
    if job.verdict == "failed" and not above:
        yield Answer("broken", "the job is dead or stuck", "nccl-inspect summarize shows what is known", errors)
        return
    for question in job.not_judged:
        yield Answer("undecided", f"{question.rule}: {question.reason}", question.needs)
    if errors:
        summary = f"{count(len(errors), 'error')} that no rule explains: {job.unexplained[0].message}"
        yield Answer("undecided", summary, "nccl-inspect summarize lists them", errors)
    if above or job.not_judged or errors:
        return
    if job.verdict != "unknown":
        yield Answer("kept", count(len(job.findings), "finding"))
    elif job.left_out:
        yield Answer(
            "undecided", "a rule that is left out finds a problem", "run all rules: no --select and no --ignore"
        )
    else:
        yield Answer("undecided", "the log does not show enough to judge a path", _FROM_THE_START)


def _ask_forbidden_actions(unwanted: tuple[str, ...], job: Job) -> Iterator[Answer]:
    needing = [finding for finding in job.findings if finding.action in unwanted]
    for finding in needing:
        summary = f"{finding.action} for {finding.rule} ({finding.confidence}): {finding.summary}"
        yield Answer("broken", summary, finding.fix[0], finding.evidence, finding.ranks, finding.rule)
    if not needing and job.verdict == "unknown":
        yield Answer("undecided", "the log does not show enough to judge the job", _FROM_THE_START)
    elif not needing:
        yield Answer("kept", "no finding needs it")


def _ask_version(what: str, allowed: tuple[str, ...], least: str | None, job: Job) -> Iterator[Answer]:
    """Ask for releases of ``nccl``, ``plugin`` or ``cuda`` that fit a glob, and are not older than the oldest one."""
    if what == "plugin" and job.network.name in BUILT_IN:
        todo = "the plugin is missing or did not start: nccl-inspect summarize shows why"
        yield Answer("broken", f"no plugin: the network is {job.network.name}", todo, _network_lines(job))
        return
    plugin = [job.network.plugin_version] if job.network.plugin_version else []
    versions = {"plugin": plugin, "nccl": job.nccl_versions, "cuda": job.cuda_versions}[what]
    exact = [text for text in versions if "inferred" not in text]
    if not exact:
        guess = f", its lines fit {versions[0].removesuffix(' (inferred)')}" if versions else ""
        yield Answer("undecided", f"the version is not in the log{guess}", _FROM_THE_START)
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
        yield Answer("broken", ", ".join(bad), _DRIVER if what == "cuda" else _IMAGE, lines)
    else:
        yield Answer("kept", ", ".join(exact))


def _ask_network(key: str, allowed: tuple[str, ...], job: Job) -> Iterator[Answer]:
    actual = job.network.name if key == "name" else job.network.provider
    if key == "provider" and job.network.name in BUILT_IN:
        actual = f"none: the network is {job.network.name}"
    if actual is None:
        yield Answer("undecided", f"the {key} is not in the log", _FROM_THE_START)
    elif any(fnmatchcase(actual, pattern) for pattern in allowed):
        yield Answer("kept", actual)
    else:
        yield Answer("broken", actual, "nccl-inspect summarize shows why this one was chosen", _network_lines(job))


def _network_lines(job: Job) -> list[Evidence]:
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
        own = positions_in(setting.evidence)
        about = (f for f in job.findings if own & positions_in(f.evidence))
        finding = next((f for f in about if f.severity != "info" and f.fix), None)
        todo = f"unset {setting.name}   # pod spec 'env:', image, launch script, /etc/nccl.conf"
        if finding and setting.name in finding.fix[0]:
            todo = finding.fix[0]
        yield _answer_broken_setting(setting, todo, finding.rule if finding else "", job)
    if violations:
        return
    if alike := [setting for setting in job.environment if setting.alike and fits(setting.alike)]:
        words = f"{' or '.join(alike[0].assignments)} is set: this release prints both alike"
        yield Answer("undecided", words, f"unset {' '.join(alike[0].names)}", _first_lines(alike))
    elif not is_echoed(name, job.nccl_versions):
        effect = "; ask for its effect: [paths.intra] transport" if name == "NCCL_P2P_DISABLE" else ""
        yield Answer("undecided", "this release does not echo it", f"check the environment of the job{effect}")
    elif not any(comm.completed for comm in job.communicators):
        words = "no initialization is complete in the log, so it may still appear"
        yield Answer("undecided", words, _FROM_THE_START)
    else:
        yield Answer("kept", "not in the log")


def _ask_required(name: str, value: str | None, job: Job) -> Iterator[Answer]:
    settings = [setting for setting in job.environment if fnmatchcase(setting.name, name)]
    bad = [setting for setting in settings if not fnmatchcase(setting.value, value or "*")]
    for setting in bad:
        todo = f"give {setting.name} the same value in 'env:' of all roles, or with mpirun -x, srun --export"
        yield _answer_broken_setting(setting, todo, "", job)
    if not bad and any(setting.ranks is None for setting in settings):
        yield Answer("kept", ", ".join(f"{setting.name}={setting.value}" for setting in settings))
    elif not bad:
        todo = "check the environment of the job: NCCL echoes a variable only when it uses it"
        who = "only some processes show it" if settings else "no process shows it"
        yield Answer("undecided", who, todo, _first_lines(settings))


def _answer_broken_setting(setting: Setting, todo: str, rule: str, job: Job) -> Answer:
    where = "" if setting.ranks is None else f" on ranks {ranges(setting.ranks) or '?'}"
    ranks = job.ranks_seen if setting.ranks is None else setting.ranks
    return Answer("broken", f"{setting.name}={setting.value}{where}", todo, setting.evidence, ranks, rule)


def _first_lines(settings: Iterable[Setting]) -> list[Evidence]:
    return [line for setting in settings for line in setting.evidence[:1]]


# What can be asked of paths

SCOPES = ("intra", "inter")
_NO_RULE = "no rule objects to it: allow it in the policy, or see 'nccl-inspect summarize' for what is known"
_TRANSPORTS = ("P2P", "SHM", "NET", "COLLNET")
_OLD_DETAIL = "DIRECT SHARED MEMORY"  # how NCCL calls SHM until 2.12


def ask_transport(scope: str, allowed: tuple[str, ...], job: Job) -> Iterator[Answer]:
    """Ask that every pair goes one of these ways: transports (``P2P``) or globs of details (``P2P/CUMEM*``)."""
    paths = select_scope(scope, job)
    ways = [(kind, way) for kind in paths.kinds for way in list_ways(kind)]
    bad = group_values((way.detail, kind) for kind, way in ways if not is_allowed(way, allowed))
    used = list_words(sorted({way.detail for _, way in ways}))
    groups = ((f"use {detail}", paths.where(kinds.__contains__)) for detail, kinds in bad.items())
    return _answer_paths(scope, groups, paths, f"use {used}", job)


def is_allowed(way: Path | PathKind | AlsoPath, allowed: tuple[str, ...]) -> bool:
    """Return whether a way is of an allowed transport, or its detail fits a glob; capitals do not matter."""
    detail, kind = way.detail.upper(), way.transport.upper()
    return any(kind == pattern.upper() or fnmatchcase(detail, pattern.upper()) for pattern in allowed)


def unknown_transport(pattern: str) -> tuple[str, str] | None:
    """Return why a transport or a glob of details can fit no path, and what to do; None for a good one."""
    kind = pattern.upper().partition("/")[0]
    if any(fnmatchcase(name, kind) for name in (*_TRANSPORTS, _OLD_DETAIL)):
        return None
    hint = suggestion(kind, _TRANSPORTS) or f"known are {', '.join(_TRANSPORTS)}; a detail is such as P2P/CUMEM*"
    return f"no transport '{pattern}'", hint


def ask_gdr(scope: str, job: Job) -> Iterator[Answer]:
    """Ask that every network path uses GPUDirect RDMA on all its channels; P2P and SHM need none."""
    paths = select_scope(scope, job)
    network = paths.where(lambda kind: kind.transport == "NET")
    states = {kind: [way.gdr for way in list_ways(kind) if way.transport == "NET"] for kind in network.kinds}
    without = network.where(lambda kind: any(state is False for state in states[kind]))
    partly = network.exclude(without).where(lambda kind: "partial" in states[kind])
    what = "have GPUDirect RDMA in part only (at one end, or on some channels)"
    groups = (("have no GPUDirect RDMA", without), (what, partly))
    return _answer_paths(scope, groups, paths, "need it and have it" if network else "need none", job)


def _ask_min_channels_of_pairs(scope: str, wanted: int, job: Job) -> Iterator[Answer]:
    paths = select_scope(scope, job)
    few = paths.where(lambda kind: len(kind.channels) < wanted)
    least = min((len(kind.channels) for kind in few.kinds), default=0)
    return _answer_paths(scope, [(f"have fewer (the least is {least})", few)], paths, "have them", job)


def select_scope(scope: str, job: Job) -> Selection:
    """Return the paths within hosts, or those between them."""
    return job.paths.where(lambda kind: kind.scope == scope)


def list_ways(path: Path | PathKind) -> list[Path | PathKind | AlsoPath]:
    """Return the way that a path reports, and the others between its ranks."""
    return [path, *path.also]


def _answer_paths(
    scope: str, groups: Iterable[tuple[str, Selection]], paths: Selection, fine: str, job: Job
) -> Iterator[Answer]:
    """Answer that it is broken by groups of paths; without any that it is kept, if the log shows all of that scope."""
    is_broken = False
    for what, bad in groups:
        if bad:
            is_broken = True
            pairs = list_words((f"{src}->{dst}" for src, dst in bad.distinct("src", "dst")), 3)
            rules = {rule for kind in bad.kinds for rule in kind.rules}
            finding = next((f for f in job.findings if f.rule in rules and f.severity != "info" and f.fix), None)
            todo, rule = (finding.fix[0], finding.rule) if finding else (_NO_RULE, "")
            summary = f"{count(len(bad), 'pair')} ({pairs}) {what}"
            yield Answer("broken", summary, todo, bad.first_lines(), [*bad.ends()], rule)
    missing = sorted(set(range(job.world_size or 0)) - set(job.ranks_seen))
    seen = f"{count(len(paths), 'pair')} {fine}"
    if is_broken:
        return
    if missing:
        lost = f"the paths of {'rank' if len(missing) == 1 else 'ranks'} {ranges(missing)} are not in the log"
        yield Answer("undecided", f"{seen}; {lost}" if paths else lost, "give the logs of all ranks")
    elif job.unplaced_lines:
        lines = f"{count(job.unplaced_lines, 'connection line')} could not be placed"
        yield Answer("undecided", lines, "give the log from the start of the job, with whole lines")
    elif paths:
        yield Answer("kept", seen)
    elif is_impossible(scope, job):
        # What was asked for was not seen: a job on too few hosts must not pass the gate of a larger one.
        why = "no two ranks share a host" if scope == "intra" else "all ranks are on one host"
        yield Answer("undecided", why, f"check a job that has such paths, or remove [paths.{scope}] from the policy")
    else:
        longer = "give a log that goes past the first collective: since NCCL 2.22 connections are made at first use"
        yield Answer("undecided", "no connection of that kind is in the log", longer)


def is_impossible(scope: str, job: Job) -> bool:
    """Return whether the job is known to have no pair of that scope."""
    return job.world_size is not None and count_hosts(job) == (1 if scope == "inter" else job.world_size)


# The file


def read_policy(given: str | dict[str, Any]) -> Policy:
    """Read a policy from a file, or from its keys as a dictionary: it must be understood, and say something."""
    table = load(FilePath(given), "--policy") if isinstance(given, str) else Table("the policy", given)
    if expectations := [*_list_expectations(table)]:
        return Policy(table.file, expectations)
    raise table.error("no expectation", "write one from a good log: nccl-inspect check --learn good.log")


def _list_expectations(table: Table) -> Iterator[Expectation]:
    for key in _NUMBERS:
        if (number := table.number(key)) is not None:
            words = _LIMITS.get(key[:3], "{}").format(number)
            yield Expectation(key, words, partial(_ask_number, key, number))
    if unwanted := table.texts("forbidden_actions"):
        if unknown := set(unwanted).difference(ACTIONS):
            raise table.error(f"forbidden_actions has '{min(unknown)}'", f"choose from {', '.join(ACTIONS[:-1])}")
        ask_actions = partial(_ask_forbidden_actions, unwanted)
        yield Expectation("forbidden_actions", "no " + " or ".join(unwanted), ask_actions)
    if limit := table.text("max_severity", ("none", *SEVERITIES)):
        words = "no finding" if limit == "none" else f"no finding above {limit}"
        yield Expectation("max_severity", words, partial(_ask_max_severity, limit))
    versions, network, paths, environment = map(table.table, ("versions", "network", "paths", "environment"))
    for what in ("nccl", "plugin", "cuda"):
        allowed, least = versions.texts(what), versions.text(f"{what}_min")
        if least is not None and not order(least):
            raise versions.error(f"{what}_min is '{least}', which is not a version", f'write {what}_min = "2.27.3"')
        wanted = [*([" or ".join(allowed)] if allowed else []), *([f"{least} or later"] if least else [])]
        if wanted:
            yield Expectation(f"versions.{what}", ", ".join(wanted), partial(_ask_version, what, allowed, least))
    versions.close()
    for key in ("name", "provider"):
        if allowed := network.texts(key):
            yield Expectation(f"network.{key}", " or ".join(allowed), partial(_ask_network, key, allowed))
    for scope in SCOPES:
        yield from _list_expectations_of_paths(scope, paths.table(scope))
    for key, entry in ((asked, entry) for asked in ("forbidden", "required") for entry in environment.texts(asked)):
        variable, equals, value = entry.partition("=")
        if not variable.strip():
            raise environment.error(f"{key} has '{entry}', which has no variable name", "write NAME or NAME=VALUE")
        ask_setting = _ask_forbidden if key == "forbidden" else _ask_required
        ask = partial(ask_setting, variable.strip(), value if equals else None)
        yield Expectation(f"environment.{key}", f"not {entry}" if key == "forbidden" else entry, ask)
    for each in (network, paths, environment, table):
        each.close()


def _list_expectations_of_paths(scope: str, table: Table) -> Iterator[Expectation]:
    key = f"paths.{scope}"
    if allowed := table.texts("transport"):
        if unknown := next(filter(None, map(unknown_transport, allowed)), None):  # it would let no path pass
            raise table.error(*unknown)
        yield Expectation(f"{key}.transport", " or ".join(allowed), partial(ask_transport, scope, allowed))
    if table.flag("gdr"):
        yield Expectation(f"{key}.gdr", "GPUDirect RDMA", partial(ask_gdr, scope))
    if (number := table.number("min_channels")) is not None:
        ask = partial(_ask_min_channels_of_pairs, scope, number)
        yield Expectation(f"{key}.min_channels", f"at least {number} for each pair", ask)
    table.close()
