"""What a policy can ask of a job as a whole: its size, versions, network, environment, findings and log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from nccl_inspect.event import types as events
from nccl_inspect.extras.gate.policy import Answer, broken, kept, undecided
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import CommunicatorInfo, Job, Setting
from nccl_inspect.model.setting_names import Alike
from nccl_inspect.model.statements.environment import is_echoed
from nccl_inspect.model.versions import order
from nccl_inspect.util.wording import count, listed, ranges

_FROM_THE_START = "give the log from the start of the job, with NCCL_DEBUG=INFO"
_OTHER_RELEASE = {
    "nccl": "check what the image has and what LD_LIBRARY_PATH finds first",
    "plugin": "check what the image has and what LD_LIBRARY_PATH finds first",
    "cuda": "it is what the driver supports: check the node's driver with nvidia-smi, or use a node with another",
}
_BUILT_IN = ("IB", "Socket")


def world(job: Job) -> CommunicatorInfo | None:
    """The communicator of all ranks."""
    if job.world_size is None:
        return None
    return next((comm for comm in job.communicators if comm.nranks == job.world_size), None)


def world_size(wanted: int, job: Job) -> Iterator[Answer]:
    """The job has exactly this world size."""
    comm = world(job)
    if comm is None:
        yield undecided("no communicator of all ranks is in the log", _FROM_THE_START)
    elif comm.nranks == wanted:
        yield kept(count(wanted, "rank"))
    else:
        todo = "check what the launcher starts: --nnodes, --nproc-per-node, replicas"
        yield broken(count(comm.nranks, "rank"), todo, comm.evidence)


def hosts(wanted: int, job: Job) -> Iterator[Answer]:
    """The job runs on this many hosts: as NCCL counts them, else as the log names them."""
    comm = world(job)
    stated = comm.nnodes if comm else None
    number = stated or len(job.hosts)
    if stated is None and len(job.ranks_seen) != job.world_size:
        yield undecided(f"{count(number, 'host')} in the log, and not every rank", _FROM_THE_START)
    elif number == wanted:
        yield kept(count(number, "host"))
    else:
        names = f" ({listed(host.name for host in job.hosts)})" if len(job.hosts) == number else ""
        todo = "check --nnodes and where the scheduler put the ranks; to NCCL each pod is a host"
        yield broken(f"{count(number, 'host')}{names}", todo, comm.evidence if comm else ())


def min_channels(wanted: int, job: Job) -> Iterator[Answer]:
    """The communicator of all ranks has at least this many channels."""
    comm = world(job)
    if comm is None or comm.channels is None:
        yield undecided("the channels of the communicator of all ranks are not in the log", _FROM_THE_START)
    elif comm.channels >= wanted:
        yield kept(count(comm.channels, "channel"))
    else:
        todo = "check for NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS, slow paths, and NICs that are not visible"
        yield broken(count(comm.channels, "channel"), todo, comm.evidence)


def max_severity(wanted: str, job: Job) -> Iterator[Answer]:
    """No finding above this severity, and no failed job; ``none`` means no finding at all."""
    limit = SEVERITIES.index(wanted) if wanted in SEVERITIES else -1
    above = [finding for finding in job.findings if SEVERITIES.index(finding.severity) > limit]
    names = {finding.rule for finding in above}
    for finding in above:
        if not finding.root and names.intersection(finding.because):
            continue  # but an effect of what is told already
        summary = f"{finding.severity} {finding.rule} ({finding.confidence}): {finding.summary}"
        yield broken(
            summary, finding.fix[0] if finding.fix else finding.cause, finding.evidence, finding.ranks, finding.rule
        )
    errors = [notice.evidence[0] for notice in job.unexplained]
    if job.verdict == "failed" and not above:
        yield broken("the job is dead or stuck", "nccl-inspect summarize shows what is known", errors)
        return
    for question in job.not_judged:
        yield undecided(f"{question.rule}: {question.reason}", question.needs)
    if errors:
        summary = f"{count(len(errors), 'error')} that no rule explains: {job.unexplained[0].message}"
        yield undecided(summary, "nccl-inspect summarize lists them", errors)
    if not above and job.verdict == "unknown" and not (job.not_judged or errors):
        if job.left_out:
            yield undecided("a rule that is left out finds a problem", "run all rules: no --select and no --ignore")
        else:
            yield undecided("the log does not show enough to judge a path", _FROM_THE_START)
    elif not above and not job.not_judged and not errors:
        yield kept(count(len(job.findings), "finding"))


def max_unrecognised_lines(wanted: int, job: Job) -> Iterator[Answer]:
    """At most this many NCCL lines are unknown to the grammar."""
    lines = sum(source.unrecognised_lines for source in job.sources)
    todo = "upgrade nccl-inspect, or report them: summarize -v lists them"
    yield _at_most(wanted, lines, todo, [entry.example for entry in job.unrecognised])


def max_damaged_lines(wanted: int, job: Job) -> Iterator[Answer]:
    """At most this many torn lines could not be repaired."""
    lines = sum(source.damaged_lines for source in job.sources)
    todo = "let each process write its own file: NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log"
    yield _at_most(wanted, lines, todo, job.damaged)


def _at_most(wanted: int, lines: int, todo: str, examples: list[Evidence]) -> Answer:
    return kept(count(lines, "line")) if lines <= wanted else broken(count(lines, "line"), todo, examples)


# --- versions and network ---------------------------------------------------------------------------------------


def version(what: str, allowed: tuple[str, ...], least: str | None, job: Job) -> Iterator[Answer]:
    """Releases of ``nccl``, ``plugin`` or ``cuda`` that fit a glob, and are not older than the oldest one wanted."""
    if what == "plugin" and job.network.name in _BUILT_IN:
        todo = "the plugin is missing or did not start: nccl-inspect summarize shows why"
        yield broken(f"no plugin: the network is {job.network.name}", todo, network_lines(job))
        return
    versions = _versions(what, job)
    exact = [text for text in versions if "inferred" not in text]
    if not exact:
        guess = f", its lines fit {versions[0].removesuffix(' (inferred)')}" if versions else ""
        yield undecided(f"the version is not in the log{guess}", _FROM_THE_START)
    bad = [text for text in exact if not _is_wanted(text, allowed, least)]
    if bad:
        yield broken(", ".join(bad), _OTHER_RELEASE[what], _version_lines(bad, job))
    elif exact:
        yield kept(", ".join(exact))


def _versions(what: str, job: Job) -> list[str]:
    if what == "plugin":
        return [job.network.plugin_version] if job.network.plugin_version else []
    return job.nccl_versions if what == "nccl" else job.cuda_versions


def _is_wanted(text: str, allowed: tuple[str, ...], least: str | None) -> bool:
    names = (text, text.partition("+")[0])
    fits = not allowed or any(fnmatchcase(name, pattern) for name in names for pattern in allowed)
    return fits and (least is None or order(text) >= order(least))


def _version_lines(bad: list[str], job: Job) -> list[Evidence]:
    """The lines that state these versions."""
    kinds = (events.NcclVersion, events.CudaDriver, events.PluginStatus)
    notices = [notice for notice in job.notices if isinstance(notice.event, kinds)]
    return [n.evidence[0] for n in notices if any(_states(n.event, text) for text in bad)]


def _states(event: events.Event | None, text: str) -> bool:
    match event:
        case events.NcclVersion(version=version):
            return version == text
        case events.CudaDriver(cuda_version=number):
            return f"{number // 1000}.{number % 1000 // 10}" == text
        case events.PluginStatus(kind="NET", detail=detail):
            return detail == text
    return False


def network(key: str, allowed: tuple[str, ...], job: Job) -> Iterator[Answer]:
    """The ``name`` of the network, or the ``provider`` of its plugin."""
    actual = job.network.name if key == "name" else job.network.provider
    if key == "provider" and job.network.name in _BUILT_IN:
        actual = f"none: the network is {job.network.name}"
    if actual is None:
        yield undecided(f"the {key} is not in the log", _FROM_THE_START)
    elif any(fnmatchcase(actual, pattern) for pattern in allowed):
        yield kept(actual)
    else:
        yield broken(actual, "nccl-inspect summarize shows why this one was chosen", network_lines(job))


def network_lines(job: Job) -> list[Evidence]:
    """The first lines that say which network is used."""
    listed_devices = [
        notice.evidence[0]
        for notice in job.notices
        if isinstance(notice.event, events.NetDevices) and notice.event.net == job.network.name
    ]
    taken = first_lines(job.paths.where(lambda kind: kind.net == job.network.name))
    provided = [notice.evidence[0] for notice in job.notices if isinstance(notice.event, events.OfiProvider)]
    return [*listed_devices[:1], *provided[:1], *taken[:1]]


# --- environment ------------------------------------------------------------------------------------------------


def forbidden(name: str, value: str | None, job: Job) -> Iterator[Answer]:
    """Nobody but a plugin sets this variable, or not to this value; both are globs."""
    violations = [
        s for s in _named(name, job) if s.source != "plugin" and (value is None or fnmatchcase(s.value, value))
    ]
    for setting in violations:
        summary, ranks = f"{setting.name}={setting.value}{_where(setting)}", _ranks_of(setting, job)
        finding = _about(setting, job)
        todo = f"unset {setting.name}   # pod spec 'env:', image, launch script, /etc/nccl.conf"
        if finding and setting.name in finding.fix[0]:
            todo = finding.fix[0]
        yield broken(summary, todo, setting.evidence, ranks, finding.rule if finding else "")
    if not violations:
        alike = [setting for setting in job.environment if setting.alike and _fits(setting.alike, name, value)]
        yield _alike(alike) if alike else _absence(name, job)


def _fits(alike: Alike, name: str, value: str | None) -> bool:
    return fnmatchcase(alike.name, name) and (value is None or fnmatchcase(alike.value, value))


def _alike(settings: list[Setting]) -> Answer:
    """Something else is printed in the same words."""
    words = " or ".join(settings[0].assignments)
    return undecided(
        f"{words} is set: this release prints both alike", f"unset {' '.join(settings[0].names)}", _lines(settings)
    )


def required(name: str, value: str | None, job: Job) -> Iterator[Answer]:
    """Every process shows this variable with a value that fits the glob."""
    wanted = value or "*"
    settings = _named(name, job)
    bad = [setting for setting in settings if not fnmatchcase(setting.value, wanted)]
    for setting in bad:
        todo = f"give {setting.name} the same value in 'env:' of all roles, or with mpirun -x, srun --export"
        yield broken(
            f"{setting.name}={setting.value}{_where(setting)}", todo, setting.evidence, _ranks_of(setting, job)
        )
    if bad:
        return
    if any(setting.ranks is None for setting in settings):
        yield kept(", ".join(f"{setting.name}={setting.value}" for setting in settings))
        return
    who = "some processes" if settings else "no process"
    todo = "check the environment of the job: NCCL echoes a variable only when it uses it"
    yield undecided(f"{who} shows it" if not settings else f"only {who} show it", todo, _lines(settings))


def _about(setting: Setting, job: Job) -> Finding | None:
    """The finding whose evidence includes a line of the setting."""
    lines = {(line.source, line.order) for line in setting.evidence}
    for finding in job.findings:
        if finding.severity != "info" and finding.fix and lines & {(e.source, e.order) for e in finding.evidence}:
            return finding
    return None


def _absence(name: str, job: Job) -> Answer:
    """Nothing of it in the log; that says little about variables which NCCL does not echo."""
    if not is_echoed(name, job.nccl_versions):
        effect = "; ask for its effect: [paths.intra] transport" if name == "NCCL_P2P_DISABLE" else ""
        return undecided("this release does not echo it", f"check the environment of the job{effect}")
    if not any(comm.completed for comm in job.communicators):
        return undecided("no initialization is complete in the log, so it may still appear", _FROM_THE_START)
    return kept("not in the log")


def _named(name: str, job: Job) -> list[Setting]:
    return [setting for setting in job.environment if fnmatchcase(setting.name, name)]


def _where(setting: Setting) -> str:
    return "" if setting.ranks is None else f" on ranks {ranges(setting.ranks) or '?'}"


def _ranks_of(setting: Setting, job: Job) -> list[int]:
    return job.ranks_seen if setting.ranks is None else setting.ranks


def _lines(settings: Iterable[Setting]) -> list[Evidence]:
    return [line for setting in settings for line in setting.evidence[:1]]
