"""Ranks of one host talk over the network."""

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, ends, first_lines, hosts_of, listed

RULE = Rule(
    name="net-instead-of-p2p",
    category="intra-node path",
    severity="error",
    title="Ranks of one host talk over the network instead of P2P or shared memory",
    because=("p2p-disabled-by-env",),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge NET paths between ranks of one host name."""
    pairs = [path for path in facts.paths("intra", "NET") if not any(also.transport == "P2P" for also in path.also)]
    if not pairs:
        return
    facts.mark(pairs, RULE.name)
    settings = [s for s in facts.settings("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL") if s.value != "0"]
    shm_off = any(setting.name == "NCCL_SHM_DISABLE" for setting in settings)
    direct = all(path.gdr is True for path in pairs) and not settings
    words = listed(f"{setting.name}={setting.value}" for setting in settings)
    yield RULE.finding(
        f"{count(len(pairs), 'pair')} of ranks on one host use {listed(path.detail for path in pairs)}",
        cause=f"{words}: with P2P and shared memory both unusable only the network is left"
        if shm_off
        else "NCCL chose the network by itself: both GPUs reach NICs faster than each other"
        if direct
        else "not proved: P2P and SHM are both unusable, as when containers of one host do not share /dev/shm",
        impact="data leaves the GPU for the network stack and comes back: 1.4 GB/s bus bandwidth measured over Socket, against "
        "347 GB/s over NVSwitch (8 x H200, all-reduce)",
        fix=[
            *(f"unset {setting.name} (pod spec 'env:', image, launch script, /etc/nccl.conf)" for setting in settings),
            "one pod for each node with all its GPUs, or the same /dev/shm in all containers (hostIPC: true or a hostPath)",
            "NCCL_NET_DISABLE_INTRA=1 keeps NCCL from choosing the network inside a host",
        ],
        severity="info" if direct else "error",
        confidence="certain" if settings else "likely",
        ranks=ends(pairs),
        hosts=hosts_of(pairs),
        evidence=[*first_lines(pairs)[:3], *(line for setting in settings for line in setting.evidence[:1])],
    )
