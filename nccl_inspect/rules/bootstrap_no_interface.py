"""No network interface for bootstrap traffic."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings, hosts_in, ranks_in
from nccl_inspect.judging.networks.interfaces import included_names, listed_interfaces, without_family
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import some_names


def find(facts: Facts) -> Iterator[Hit]:
    """Find the warning of the rank itself; one of NET/Socket counts only if nothing connected in the end."""
    stated = facts.notices("nccl/bootstrap-no-interface")
    if not facts.job.paths:
        stated = [*stated, *facts.errors_of_rule("bootstrap-no-interface")]
    if notices := stated or without_family(facts):
        where = {process for notice in notices for process in notice.processes}
        settings = [one for one in facts.settings("NCCL_SOCKET_IFNAME") if where & set(one.processes)]
        ranks, hosts = ranks_in(notices), hosts_in(notices)
        named = {
            "ranks": ranks,
            "hosts": some_names(sorted(filter(is_named, hosts))),
            "without family": not stated,
        }
        lines = [*first_evidence(notices), *evidence_of_settings(settings)]
        yield Hit(notices, named, (), ranks, hosts, lines, settings=settings)
    elif settings := _unmatched_settings(facts):
        yield Hit(known=("perhaps",), settings=settings)
    elif (garbled := facts.with_role("garbled-address")) and (settings := _settings_without_interface(facts)):
        lines = [*evidence_of_settings(settings), *first_evidence(garbled)]
        yield Hit(known=("perhaps", "garbled"), settings=settings, evidence=lines)


def _unmatched_settings(facts: Facts) -> list[Setting]:
    """Return settings that match no interface listed for their host, of processes that print none themselves."""
    listed: dict[str, set[str]] = {}
    for interface in listed_interfaces(facts):
        for host in interface.notice.hosts:
            listed.setdefault(host, set()).add(interface.name)
    return [
        setting
        for setting in _settings_without_interface(facts)
        if any(listed.get(host) for host in setting.hosts)
        and not any(
            name.startswith(tuple(included_names(setting))) for host in setting.hosts for name in listed.get(host, ())
        )
    ]


def _settings_without_interface(facts: Facts) -> list[Setting]:
    """Return settings that name interfaces, of processes that print none."""
    choosers = {process for interface in listed_interfaces(facts) for process in interface.notice.processes}
    named = facts.user_settings("NCCL_SOCKET_IFNAME")
    return [setting for setting in named if included_names(setting) and choosers.isdisjoint(setting.processes)]
