"""What ranks do not agree on, in what they differ from their siblings, and files that set what a finding blames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import BootstrapInterface, NcclVersion
from nccl_inspect.judging import siblings
from nccl_inspect.judging.check import Evidence, Facts, Finding, Hit, Notice, is_fatal, value
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.facts import evidence_of_settings, ranks_concerned
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.judging.siblings import Agreement, Odd
from nccl_inspect.judging.transfers import is_connected
from nccl_inspect.model import versions
from nccl_inspect.model.evidence import positions_in
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.wording import ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Variable


_SHOWN = 8  # limit of values in the report: there are thousands if each rank has its own


def env_mismatch_across_ranks(facts: Facts) -> Iterator[Hit]:
    """Find values that differ, and variables that only some of the ranks that came equally far print."""
    for agreement in siblings.AGREEMENTS:
        values = facts.settings(agreement.name)
        outliers = values and (_minority(agreement, values) or _on_some_ranks(facts, agreement, values))
        if not outliers:
            continue
        ranks = {rank for setting in outliers for rank in setting.ranks or ()}
        joined = bool(ranks) and ranks <= facts.job.paths.ends()
        joined |= any(comm.state == "connected" for comm in facts.job.communicators)
        values, outliers = siblings.with_own_ranks(facts, values), siblings.with_own_ranks(facts, outliers)
        odd = {rank for setting in outliers for rank in setting.ranks or ()}
        errors = siblings.errors_of(facts, agreement.effect, odd)
        if not errors and agreement.on_host and not agreement.is_choice and len(values) == 1 and joined:
            continue  # p2p-disabled-by-env reports its cost
        may_choose = agreement.is_choice and not (errors or facts.job.failed or facts.errors(forced_ends=False))
        alone = values if len(values) == 1 else []
        others = siblings.ranks_without(facts, agreement, alone[0]) if alone else set[int]()
        named = {
            "variable": agreement.name,
            "values": "; ".join(f"{setting.value} on {siblings.owners(setting)}" for setting in values[:_SHOWN]),
            "more": max(len(values) - _SHOWN, 0),
            "alone": alone,
            "names": " ".join(alone[0].names) if alone else "",
            "owners": siblings.owners(alone[0]) if alone else "",
            "few": alone and (alone[0].ranks is None or not others or len(alone[0].ranks) <= len(others)),
            "others": others,
            "effect": agreement.effect if errors else "",
            "harmless": may_choose and joined,
            "choice": may_choose and not joined and len(values) > 1,
        }
        lines = evidence_of_settings(values[:_SHOWN])
        yield Hit(
            named=named,
            ranks=others if alone and 0 < len(others) < len(odd) else odd,
            hosts={host for setting in outliers for host in setting.hosts},
            evidence=[*lines[:3], *errors[:2]] if errors else lines,
        )


def _minority(agreement: Agreement, values: list[Setting]) -> list[Setting]:
    """Settings that fewer ranks have than the most common one."""
    # A process that prints several has one for each communicator, which says nothing of other ranks.
    shown = Counter(process for setting in values for process in set(setting.processes))
    values = [setting for setting in values if any(shown[process] == 1 for process in setting.processes)]
    hosts = [host for setting in values for host in set(setting.hosts) if is_named(host)]
    if agreement.on_host and len(set(hosts)) == len(hosts):  # one value per host
        return []
    ranked = sorted(values, key=lambda setting: len(setting.processes), reverse=True)
    return ranked[1:]


def _on_some_ranks(facts: Facts, agreement: Agreement, values: list[Setting]) -> list[Setting]:
    """Return a setting that only some ranks have; none if lines of the others may be missing."""
    setting = values[0]
    if len(values) > 1 or setting.ranks is None or any(source.damaged_lines for source in facts.job.sources):
        return []
    if agreement.name == "NCCL_SOCKET_IFNAME":
        if not (facts.job.failed or facts.errors(forced_ends=False)):
            return []  # the ranks connected, and the line of a peer may have been cut off
        chose = {process for notice in facts.with_event(BootstrapInterface) for process in notice.processes}
        return [setting] if any(host in setting.hosts for host, *_ in chose.difference(setting.processes)) else []
    if not agreement.echoed or not setting.ranks or facts.job.excerpt:  # lines may have been left out
        return []
    others = siblings.ranks_without(facts, agreement, setting)
    if setting.source == "plugin":  # plugins set it before NCCL announces the communicator
        others &= siblings.ranks_with_interface(facts)
    return [setting] if others else []


class Source(NamedTuple):
    """A file, a place in it that sets a variable, and how to remove that."""

    file: str
    variable: Variable
    step: str


def setting_from_file(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find the variables that findings blame in manifests and scripts, set to the same value or to another one."""
    sources = group_values((source.variable.name, source) for source in _sources(facts)) if effects else {}
    settings = [(effect, setting) for effect in effects for setting in _settings(facts, effect)]
    blamed = [
        (effect, source)
        for effect, setting in settings
        for source in sources.get(setting.name, ())
        if source.variable.value == setting.value
    ]
    if blamed:
        causes = list(dict.fromkeys(source for _, source in blamed))
        first = causes[0]
        named = {"place": _cite_variable(first.file, first.variable), "owner": first.variable.owner}
        names = [f"{source.variable.name}={source.variable.value}" for source in causes]
        known = {**named, "names": names, "steps": list(dict.fromkeys(source.step for source in causes))}
        touched = list({id(effect): effect for effect, _ in blamed}.values())
        yield Hit([], known, evidence=map(_show, causes), effects=touched)
        return
    for effect, setting in settings:
        others = sources.get(setting.name, [])
        if others and all(one.value is not None and "$" not in one.value for _, one, _ in others):
            file, own, _ = others[0]  # a value that is filled in later is unknown
            place = _cite_variable(file, own)
            given = {"place": place, "name": setting.name, "value": own.value, "other": setting.value}
            yield Hit([], given, evidence=[_show(others[0]), *setting.evidence[:1]], effects=[effect])
            return


def _sources(facts: Facts) -> Iterator[Source]:
    for pod in workloads.pods(facts):
        for variable in (variable for container in pod.containers for variable in container.env):
            step = f"unset {variable.name}{COMMENT}{_cite_variable(pod.file, variable)}: delete it there"
            if pod.kind in workloads.MERGED:  # a template that can be changed
                own = workloads.namespace_option(pod.namespace)
                step = f"kubectl {own}set env {pod.kind.lower()}/{pod.name} {variable.name}-{COMMENT}removes it"
            yield Source(pod.file, variable, step)
    for script in contents_of(facts.job.artifacts, "slurm_script"):
        for variable in script.env:
            place = _cite_variable(script.name, variable)
            yield Source(script.name, variable, f"unset {variable.name}{COMMENT}{place}: delete it there")


def _cite_variable(file: str, variable: Variable) -> str:
    return f"{file.rpartition('/')[2]}:{variable.line}"


def _show(source: Source) -> Evidence:
    own = source.variable
    return Evidence(source.file, own.line, f"{own.owner}: {own.name}={own.value}")


def _settings(facts: Facts, effect: Finding) -> Iterator[Setting]:
    """Yield the settings from outside that a finding blames: it names the variable, or shows the stating line."""
    lines = {(line.source, line.line) for line in effect.evidence}
    for setting in facts.job.environment:
        shown = any((line.source, line.line) in lines for line in setting.evidence)
        if setting.source in ("environment", "unknown") and (
            shown or setting.name in effect.summary or setting.name in effect.cause
        ):
            yield setting


def version_mismatch(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own check, and versions that differ between processes; otherwise RAS's messages about peers."""
    if hit := next(_mismatch(facts), None):
        yield hit
    elif messages := facts.errors_of_rule("version-mismatch"):
        yield Hit(messages, {"RAS": True, "dead": is_fatal(facts, messages)})


def _mismatch(facts: Facts) -> Iterator[Hit]:
    """NCCL's own check, and versions that differ between processes whose communicators did not come up."""
    checked = facts.notices("nccl/version-mismatch")
    # Processes that misread a message of another release.
    strange = facts.with_role("rank-misfit", "stranger", "garbled-address")
    printed = _printed_releases(facts)
    built = [comm for comm in facts.job.communicators if len(comm.completed) == comm.nranks]
    if not checked and built:  # several jobs in one log may each have their own release
        printed = _find_mixed(facts, printed)
        if not printed:
            return
    by_process = printed | (_infer_releases(facts, set(printed)) if strange and printed else {})
    ranks = _releases_by_check(checked)
    is_bare = strange and not is_connected(facts) and not facts.job.earlier_runs
    # Lines without a prefix, which rank 0 of each communicator prints up to 2.22.
    loose = [one for one in facts.with_event(NcclVersion) if not one.hosts] if is_bare else []
    bare = set(filter(None, map(_whole_release, loose)))
    releases = sorted({*by_process.values(), *ranks, *bare}, key=versions.order)
    if not checked and len(releases) < 2:
        return
    lines = [notice for notice in facts.with_event(NcclVersion) if notice.hosts or bare]
    release, number = Counter(by_process.values()).most_common(1)[0] if by_process else ("", 0)
    odd = {process for process, own in by_process.items() if own != release and 2 * number > len(by_process)}
    odd_ranks = {rank for last in facts.job.last_lines if last.process in odd for rank in last.ranks}
    is_one_job = len(facts.job.communicators) == 1 and all(notice.ranks for notice in lines)
    named = {
        "releases": ", ".join(releases) if len(releases) > 1 else "",
        "where": "; ".join(_where(release, ranks.get(release, set()), by_process) for release in releases),
        "likely": not checked,
        "possible": not (checked or strange or built or is_one_job),
    }
    yield Hit(
        named=named,
        ranks=ranks_concerned(facts, checked, "rank", "own_rank") or odd_ranks,
        hosts={process.host for process in odd or by_process},
        evidence=[*[*checked, *strange][:3], *(line for notice in lines for line in notice.evidence[:1])],
    )


def _find_mixed(facts: Facts, printed: dict[Process, str]) -> dict[Process, str]:
    """Return the releases in a communicator that did not come up and whose members print several; none for others."""
    is_global = facts.job.rank_space == "global"
    process_of = {rank: last.process for last in facts.job.last_lines if is_global for rank in last.ranks}
    for comm in facts.job.communicators:
        members = {process_of[rank] for rank in comm.ranks if rank in process_of}
        own = {process: printed[process] for process in members & printed.keys()}
        if len(comm.completed) < comm.nranks and len(set(own.values())) > 1:
            return own
    return {}


def _printed_releases(facts: Facts) -> dict[Process, str]:
    """Return the release of each process that prints a complete one, without CUDA's version."""
    return {
        process: release
        for notice in facts.with_event(NcclVersion)
        if (release := _whole_release(notice))
        for process in notice.processes
        if process.host
    }


def _whole_release(notice: Notice) -> str:
    """Return the release that a line states; empty if it is cut off."""
    release = str(getattr(notice.event, "version", "")).partition("+")[0]
    return release if release.count(".") >= 2 and not release.endswith(".") else ""


def _infer_releases(facts: Facts, others: set[Process]) -> dict[Process, str]:
    """Return the releases of processes by the wording of their lines, if that excludes those that others print."""
    stated = [notice for notice in facts.job.notices if notice.releases]
    own = ((process, notice.releases) for notice in stated for process in set(notice.processes) - others)
    seen = group_sets((process, releases) for process, releases in own if process.host)
    printed = {f"{release}..{release}" for release in _printed_releases(facts).values()}
    inferred = {process: versions.infer(texts) for process, texts in seen.items()}
    return {
        process: text
        for process, text in inferred.items()
        if text and all(versions.infer([*seen[process], release]) is None for release in printed)
    }


def _releases_by_check(checked: list[Notice]) -> dict[str, set[int]]:
    """Return the releases in errors of NCCL's check, with their ranks: each names itself and the first mismatch."""
    ranks: dict[str, set[int]] = {}
    for notice in checked:
        for rank, code in (("rank", "version"), ("own_rank", "own_version")):
            if isinstance(number := value(notice, code), int):
                ranks.setdefault(versions.read_version_code(number), set()).add(value(notice, rank))
    return ranks


def _where(release: str, ranks: set[int], by_process: dict[Process, str]) -> str:
    """Return the ranks that have a release according to NCCL, otherwise the processes."""
    if ranks:
        return f"{ranks_word(ranks)} {'has' if len(ranks) == 1 else 'have'} {release}"
    places = {f"{process.host}:{process.pid}" for process, text in by_process.items() if text == release}
    return f"{release} on {', '.join(sorted(places)[:4])}" if places else f"{release} in a line without its host"


def differs_from_siblings(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find what no other finding says of the same ranks and hosts: slower paths, and differences that may cost.

    It is a clue, unless it is a slower path of one among many.
    """
    heavy = [finding for finding in findings if finding.severity != "info"]
    for entries in siblings.Observer(facts).list_odd():
        slow = [one.paths() for odd in entries if odd.is_likely for one in odd.found if one.paths]
        paths = reduce(or_, slow) if slow else None
        if not any(_tells(facts, finding, one, paths) for finding in heavy for one in entries):
            first = entries[0]
            checks = [one.attribute.check.format(label=one.label) for one in entries]
            named = {
                "difference": siblings.tell(entries),
                "checks": list(dict.fromkeys(checks)),
                "check": checks[0],
                "likely": first.is_likely,
            }
            lines = [line for one in entries for line in one.lines()]
            yield Hit([], named, first.ranks, first.hosts, lines, paths)


def _tells(facts: Facts, finding: Finding, odd: Odd, slow: Selection | None) -> bool:
    """Return whether a finding is about the same: slow paths, a line, or the same ranks in a related respect."""
    if slow is not None and finding.paths is not None and set(slow.rows) <= set(finding.paths.rows):
        return True
    if positions_in(odd.lines()[:1]) & positions_in(finding.evidence):
        return True
    some = len(finding.ranks) < len(facts.job.ranks_seen)
    is_named = some and bool(odd.ranks) and odd.ranks <= set(finding.ranks)
    is_there = bool(finding.hosts) and odd.hosts >= set(finding.hosts)
    return (is_named or is_there) and finding.category in odd.attribute.told_by
