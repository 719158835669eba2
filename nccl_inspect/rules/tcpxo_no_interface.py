"""GPUDirect-TCPXO does not find the interfaces of the GPU NICs, or the one for its control traffic."""

from nccl_inspect.judging.engine import Effects, Facts, Finding, Notice, Results, Rule, value
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="tcpxo-no-interface",
    category="plugins",
    cloud="GCP",
    title="GPUDirect-TCPXO lacks an interface",
    shows=("no-tcpxo", "no-interface", "no-google-interface"),
    supersedes=("tcpxo-init-failed",),
)
_NONE = "tcpxo/fastrak-no-interface"
_UNKNOWN = "tcpxo/fastrak-address-unknown"
_NO_NIC = "tcpxo/fastrak-no-closest-nic"
_NOT_HERE = "tcpxo/fastrak-dxs-interface"
_SUBSET = "NCCL_FASTRAK_ALLOW_NIC_SUBSET"


def judge(facts: Facts) -> Results:
    """Judge interfaces that the plugin does not find, and the daemon's NICs that it does not see."""
    missing = [
        *facts.notices(_NONE, _NO_NIC, _NOT_HERE, "tcpxo/fastrak-interface-path"),
        *facts.errors_of_rule(RULE.name),
        *google_plugins.aborted(facts, "Could not find closest netdev", "No interface found for source IP"),
    ]
    unknown = facts.notices(_UNKNOWN)
    if missing:
        yield _finding(facts, missing, unknown)
    elif facts.enabled_settings(_SUBSET):
        yield Effects(unknown)
    elif unknown:
        yield RULE.clue(
            f"GPUDirect-TCPXO does not use NICs that its daemon names ({_addresses(unknown)})",
            cause="the interface is not in the pod, or not in NCCL_FASTRAK_IFNAME",
            impact="the GPU next to that NIC has none, or ranks share fewer NICs than the machine has",
            fix=[google_plugins.NETWORKS_IN_POD, _IFNAME],
            confirm="Compare the output of 'ip -brief address' inside the container with these addresses.",
            notices=unknown,
        )


_IFNAME = "NCCL_FASTRAK_IFNAME=eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8   # as nccl-env-profile.sh sets it"
_CONTROL = "NCCL_FASTRAK_CTRL_DEV=eth0   # the interface of the pod or host that all ranks reach"


def _finding(facts: Facts, missing: list[Notice], unknown: list[Notice]) -> Finding:
    notices = [*missing, *unknown]
    control = next((value(notice, "interface") for notice in missing if notice.production == _NONE), None)
    stops = not google_plugins.works(facts) or facts.job.failed
    return RULE.finding(
        f"GPUDirect-TCPXO lacks an interface: {_what(missing, control)}",
        cause=f"no interface has the name {control}, the value of NCCL_FASTRAK_CTRL_DEV (default: eth0)"
        if control
        else "the interfaces of the GPU NICs are not in the pod, or NCCL_FASTRAK_IFNAME does not name them",
        impact="the plugin ends the process: the job does not start",
        fix=["ip -brief address   # inside the container of the job: which interfaces exist?"]
        + ([_CONTROL] if control else [_IFNAME, google_plugins.NETWORKS_IN_POD]),
        severity="error" if stops else "warning",
        notices=notices,
        fatal=stops,
    )


def _what(missing: list[Notice], control: str | None) -> str:
    if control:
        return f"{control} for its control traffic does not exist"
    gpus = [str(value(notice, "gpu")) for notice in missing if notice.production == _NO_NIC]
    if gpus:
        return f"no NIC belongs to GPU {listed(gpus)}"
    addresses = [str(value(notice, "address")) for notice in missing if value(notice, "address")]
    return f"no interface has the address {listed(addresses)}" if addresses else "no usable interface exists"


def _addresses(unknown: list[Notice]) -> str:
    return listed(str(value(notice, "address")) for notice in unknown)
