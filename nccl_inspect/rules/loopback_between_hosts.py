"""Several hosts use the loopback interface to reach each other."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.connecting import has_built_communicator, is_single_host
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.networks.interfaces import allows_loopback, listed_interfaces
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find the bootstrap interface and the devices of NET/Socket where the communicators span hosts."""
    interfaces = [interface for interface in listed_interfaces(facts) if interface.for_setup and interface.is_loopback]
    setup, data = [interface.notice for interface in interfaces], facts.with_event(NetDevices, _is_loopback)
    lo = [setting for setting in facts.settings("NCCL_SOCKET_IFNAME") if setting.value.lstrip("=").startswith("lo")]
    let_in = list(filter(allows_loopback, facts.user_settings("NCCL_SOCKET_IFNAME")))
    job, is_built = facts.job, has_built_communicator(facts)
    shown = [*first_evidence([*setup, *data])[:4], *evidence_of_settings(lo or let_in, 1)]
    named: dict[str, object] = {"lo": lo, "let_in": let_in, "list": let_in[0].value.removeprefix("^") if let_in else ""}
    if not facts.spans_hosts():
        if setup and let_in and not is_single_host(facts) and not is_built:
            yield Hit(setup, named | {"one host": True}, evidence=shown)
    elif setup or data:
        carried = facts.paths("inter", "NET", "Socket").where(lambda kind: kind.nic == "lo")
        works = bool(carried) and any(comm.connected and len(comm.hosts) > 1 for comm in job.communicators)
        is_over = job.failed or (bool(job.ended_by) and not job.paths)
        is_open = not is_over and not job.paths and facts.none_initialized(job.communicators)
        is_stuck = is_open and not job.excerpt  # or the log was cut there
        known = {"works": works, "dead": is_over or is_stuck, "certain": data and lo and not is_stuck}
        yield Hit([*setup, *data], named | known, evidence=shown, paths=carried)
    elif lo and not is_built:
        yield Hit(named=named | {"unnamed interface": True}, settings=lo)


def _is_loopback(event: NetDevices) -> bool:
    return event.net == "Socket" and any(str(device[1]) == "lo" for device in event.devices[:1])
