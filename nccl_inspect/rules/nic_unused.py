"""A NIC that NCCL lists carries no connection of its host."""

from nccl_inspect.judging.engine import Facts, Finding, Needs, Results, Rule
from nccl_inspect.judging.networks.nic_use import Idle, idle
from nccl_inspect.util.wording import count, does, some_names

RULE = Rule(
    name="nic-unused",
    category="topology",
    severity="warning",
    title="A NIC of a host carries no NCCL traffic",
    may_cause=("slow",),
    nest_under_effect=True,
    shows=("idle-nic",),
)


def judge(facts: Facts) -> Results:
    """Judge hosts where the idle NIC is for NCCL; otherwise that is undecided."""
    hosts = [idle_host for idle_host in idle(facts) if not idle_host.absent]
    sure = [idle_host for idle_host in hosts if idle_host.meant]
    if sure:
        yield _finding(sure)
    elif hosts:
        yield RULE.undecided(
            f"{_idleness(hosts[0])}; whether NCCL is meant to use {'it' if len(hosts[0].names) == 1 else 'them'} is "
            "not in the log",
            Needs(
                platform=True,
                subsystems=("INIT", "NET", "GRAPH"),
                shows="speed and place of each NIC",
                others=("ibstat on the host",),
            ),
        )


def _finding(hosts: list[Idle]) -> Finding:
    first = hosts[0]
    total = len(first.used) + len(first.names)
    return RULE.finding(
        f"{_idleness(first)}: {len(first.used)} of {count(total, 'NIC')} {does(len(first.used), 'work')}{_more(hosts)}",
        cause="unknown from this log; likely: "
        "fewer channels than NICs, a NIC far from every GPU in the topology, or a filter "
        "on other hosts",
        impact=f"at most {len(first.used)}/{total} of the network bandwidth of the host",
        fix=[
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH   # the lines 'NET/… GPU/… NET/…' show the NIC "
            "of each channel",
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml   # is every NIC under the same PCIe switch as a GPU?",
            "unset NCCL_MAX_NCHANNELS NCCL_MAX_CTAS NCCL_TOPO_FILE   # and the same NCCL_IB_HCA on all hosts",
        ],
        confidence="likely",
        ranks=[rank for idle_host in hosts for rank in idle_host.host.ranks],
        hosts=[idle_host.host.name for idle_host in hosts],
        evidence=[idle_host.evidence for idle_host in hosts],
    )


def _idleness(idle_host: Idle) -> str:
    verb = "carries" if len(idle_host.names) == 1 else "carry"
    return f"{some_names(idle_host.names)} of {idle_host.host.name} {verb} no connection"


def _more(hosts: list[Idle]) -> str:
    return f" (the same on {count(len(hosts) - 1, 'other host')})" if len(hosts) > 1 else ""
