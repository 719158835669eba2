"""GPUs joined by NVLink talk through host memory or the network."""

from collections.abc import Iterator

from nccl_inspect.event.types import P2pRefused
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, using, words_of
from nccl_inspect.judging.hardware.peer_to_peer import switched_off
from nccl_inspect.judging.impact import against_nvlink
from nccl_inspect.judging.remedies import GPUS_IN_POD
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import PathKind
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="nvlink-not-used",
    category="intra-node path",
    severity="error",
    title="GPUs joined by NVLink talk through host memory or the network",
    echoes=("shm-instead-of-p2p",),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge pairs that are known to have NVLink; where nothing is known, ``shm-instead-of-p2p`` asks for it."""
    idle = facts.paths("intra").where(lambda kind: kind.transport != "P2P" and _has_nvlink(facts, kind))
    if not idle:
        return
    kinds = listed(sorted({kind.pair_class for kind in idle.kinds if kind.pair_class}))
    machine = facts.platform.name if facts.platform else "the machine"
    yield RULE.finding(
        f"{count(len(idle), 'pair')} of GPUs joined by NVLink {using(idle)}",
        cause=f"NVLink is there ({f'the topology shows {kinds}' if kinds else machine}); {_why(facts)}",
        impact=against_nvlink(idle, facts.platform),
        fix=[
            "nvidia-smi topo -p2p n; nvidia-smi topo -p2p r   # NVLink and peer access of each pair",
            "nvidia-smi nvlink -s   # links that are down; systemctl status nvidia-fabricmanager on NVSwitch machines",
            GPUS_IN_POD,
        ],
        confidence=facts.hardware,
        paths=idle,
    )


def _why(facts: Facts) -> str:
    settings = [*switched_off(facts), *facts.switched_on("NCCL_SHM_DISABLE")]
    if settings:
        return f"{words_of(settings)} keeps NCCL from it"
    if facts.said(P2pRefused):
        return "the driver refuses peer access"
    return "why NCCL could not use P2P is not in the log: peer access, or containers that hide GPUs from each other"


def _has_nvlink(facts: Facts, kind: PathKind) -> bool:
    if kind.pair_class:
        return kind.pair_class.startswith("NV")
    return facts.platform is not None and bool(facts.platform.nvlink) and bool(facts.platform.p2p)
