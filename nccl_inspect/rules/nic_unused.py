"""A NIC that NCCL lists and that carries none of the connections of its host."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks.nic_use import Idle, idle
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.util.wording import count, does, some_names

RULE = Rule(
    name="nic-unused",
    category="topology",
    severity="warning",
    title="A NIC of a host carries no traffic of NCCL",
    causes=("bandwidth-low",),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge hosts where the idle NIC is meant for NCCL; else say that this is open."""
    found = [one for one in idle(facts) if not one.absent]
    sure = [one for one in found if one.meant]
    if sure:
        yield _finding(sure)
    elif found:
        yield RULE.undecided(
            f"{_idleness(found[0])}; whether NCCL is meant to use {'it' if len(found[0].names) == 1 else 'them'} is "
            "not in the log",
            Needs(
                platform=True,
                subsystems=("INIT", "NET", "GRAPH"),
                shows="speed and place of each NIC",
                others=("ibstat on the host",),
            ),
        )


def _finding(found: list[Idle]) -> Finding:
    first = found[0]
    total = len(first.used) + len(first.names)
    return RULE.finding(
        f"{_idleness(first)}: {len(first.used)} of {count(total, 'NIC')} {does(len(first.used), 'work')}{_more(found)}",
        cause="unknown from this log; likely: "
        "fewer channels than NICs, a NIC that is far from every GPU in the topology, or a filter "
        "on other hosts",
        impact=f"at most {len(first.used)}/{total} of the network bandwidth of the host",
        fix=[
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH   # the lines 'NET/… GPU/… NET/…' show which NIC "
            "each channel takes",
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml   # does every NIC stand under the same PCIe switch as a GPU?",
            "unset NCCL_MAX_NCHANNELS NCCL_MAX_CTAS NCCL_TOPO_FILE   # and the same NCCL_IB_HCA on all hosts",
        ],
        confidence="likely",
        ranks=[rank for one in found for rank in one.host.ranks],
        hosts=[one.host.name for one in found],
        evidence=[one.evidence for one in found],
    )


def _idleness(host: Idle) -> str:
    verb = "carries" if len(host.names) == 1 else "carry"
    return f"{some_names(host.names)} of {host.host.name} {verb} no connection"


def _more(found: list[Idle]) -> str:
    return f" (the same on {count(len(found) - 1, 'other host')})" if len(found) > 1 else ""
