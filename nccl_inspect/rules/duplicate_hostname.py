"""Two machines have the same host name."""

from collections.abc import Iterator

from nccl_inspect.event_types import BootstrapInterface
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Path
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, first_lines, first_said, listed, ranks_in

RULE = Rule(
    name="duplicate-hostname",
    category="bootstrap",
    severity="error",
    title="Two machines or containers have the same host name",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge a host name whose processes have different addresses on the same interface.

    NCCL tells machines by host name and, from 2.5 on, boot id. This tool sees the name only.
    """
    addresses = _addresses(facts)
    for host in facts.hosts():
        said = _several(addresses.get(host, {}))
        if not said:
            continue
        apart = _apart(facts, said)
        local = [path for path in apart if path.transport in ("P2P", "SHM")]
        if not apart or (local and not _fails(facts)):
            continue  # they do share memory: containers or addresses of one machine
        yield _finding(facts, host, said, local, apart)
        return


def _addresses(facts: Facts) -> dict[str, dict[str, dict[str, Notice]]]:
    """Statements of the interface in use, by host, interface and address."""
    known: dict[str, dict[str, dict[str, Notice]]] = {}
    for notice in facts.said(BootstrapInterface):
        event = notice.event
        if isinstance(event, BootstrapInterface) and event.address:
            for host in notice.hosts:
                known.setdefault(host, {}).setdefault(event.interface, {})[event.address] = notice
    return known


def _several(known: dict[str, dict[str, Notice]]) -> list[Notice]:
    """The statements about an interface for which processes have different addresses, if there is one."""
    return next((list(found.values()) for found in known.values() if len(found) > 1), [])


def _apart(facts: Facts, said: list[Notice]) -> list[Path]:
    """Paths within that host name between ranks of different addresses."""
    address = {rank: index for index, notice in enumerate(said) for rank in notice.ranks}
    return [
        path
        for path in facts.paths()
        if path.src_host == path.dst_host
        and path.src in address
        and path.dst in address
        and address[path.src] != address[path.dst]
    ]


def _fails(facts: Facts) -> bool:
    """Whether the job ended in an error, or sharing memory did."""
    return facts.job.failed or bool(_unshared(facts))


def _unshared(facts: Facts) -> list[Notice]:
    return facts.notices("shm-segment-failed")


def _finding(facts: Facts, host: str, said: list[Notice], local: list[Path], apart: list[Path]) -> Finding:
    facts.mark(local, RULE.name)
    facts.leave_open(path for path in apart if path not in local)  # taken for paths within a host, they stay unjudged
    words = listed(str(getattr(notice.event, "address", "")) for notice in said)
    return RULE.finding(
        f"host name {host} stands for {len(said)} addresses ({words})"
        + (f"; NCCL takes them for one machine: {count(len(local), 'local path')} between them" if local else ""),
        cause="machines or containers with the same host name"
        + (
            ". NCCL takes equal name and boot id for one machine: containers of one machine, or NCCL_HOSTID set to "
            "the same value, or a release before 2.5"
            if local
            else ""
        ),
        impact="ranks try to share memory that they do not share: the job fails when it connects"
        if local
        else "none for NCCL, which also looks at the boot id; this report counts them as one host, so that paths "
        "between them are told as paths within it",
        fix=[
            "hostnamectl set-hostname <name>   # a name of its own for each machine; containers: docker run "
            "--hostname <name>",
            "NCCL_HOSTID=<name>   # another one for each machine and container; unset it where all have the same",
        ],
        severity="error" if local else "info",
        confidence="likely",
        ranks=ranks_in(said),
        hosts=[host],
        evidence=[*first_said([*said[:2], *_unshared(facts)[:1]]), *first_lines(local or apart)[:2]],
        fatal=bool(local),
    )
