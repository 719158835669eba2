"""GPUs connected by NVLink communicate through host memory or the network."""

from nccl_inspect.event.types import P2pRefused
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.facts import as_shell, usage_of
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings
from nccl_inspect.judging.impact import against_nvlink
from nccl_inspect.judging.remedies import GPUS_IN_POD
from nccl_inspect.model.job import PathKind
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="nvlink-not-used",
    category="intra-node path",
    title="GPUs connected by NVLink communicate through host memory or the network",
    may_cause=("shm-path", "slow"),
    shows=("idle-nvlink",),
)


def judge(facts: Facts) -> Results:
    """Judge pairs that are known to have NVLink; otherwise ``shm-instead-of-p2p`` asks for the topology."""
    idle = facts.paths("intra").where(lambda kind: kind.transport != "P2P" and _has_nvlink(facts, kind))
    if not idle:
        return
    kinds = listed(sorted({kind.pair_class for kind in idle.kinds if kind.pair_class}))
    machine = facts.platform.name if facts.platform else "the machine"
    yield RULE.finding(
        f"{count(len(idle), 'pair')} of GPUs connected by NVLink {usage_of(idle)}",
        cause=f"NVLink is available ({f'the topology shows {kinds}' if kinds else machine}); {_why(facts)}",
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
    settings = [*disabling_settings(facts), *facts.enabled_settings("NCCL_SHM_DISABLE")]
    if settings:
        return f"{as_shell(settings)} keeps NCCL from using it"
    if facts.with_event(P2pRefused):
        return "the driver denies peer access"
    return "unknown from this log why NCCL could not use P2P; likely: peer access, or containers that hide GPUs"


def _has_nvlink(facts: Facts, kind: PathKind) -> bool:
    if kind.pair_class:
        return kind.pair_class.startswith("NV")
    return facts.platform is not None and bool(facts.platform.nvlink) and bool(facts.platform.p2p)
