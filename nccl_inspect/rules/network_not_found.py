"""The requested network does not come up."""

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="network-not-found",
    category="plugins",
    layer=Layer.RESOURCE,
    title="NCCL_NET requests a network that does not come up",
    shows=("no-network", "setting"),
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge the warning: without NCCL_NET, Socket always works, so a setting excludes it."""
    failed = facts.errors_of_rule(RULE.name)
    if not failed:
        return
    named = [str(name) for notice in failed if (name := value(notice, "net"))]
    asked = facts.settings("NCCL_NET")
    names = listed([*named, *(setting.value for setting in asked)])
    there = facts.with_event(NetDevices, lambda event: bool(event.devices))
    broken = [notice for notice in facts.plugin("NET", "failed") if notice.level != "INFO"]
    available = listed(str(getattr(notice.event, "net", "")) for notice in there)
    yield RULE.finding(
        f"the network {names} was not found" if names else "no network could be initialized",
        cause=(
            "NCCL_NET names a network that is not available"
            if names
            else "NCCL_NET, which this release does not print, most likely names a network that is not available"
        )
        + (f" ({available} would be)" if available else "")
        + (
            f": the network plugin did not come up ({broken[0].message})"
            if broken
            else ": a wrong name (use the name of the network, not its file), or its plugin did not come up"
        ),
        impact="NCCL stops with an error on every rank; unlike for a missing plugin, there is no fallback",
        fix=[
            *(["Repair the plugin: the lines above its failure say what it looked for."] if broken else []),
            "Set NCCL_NET to the name that 'Using network' or 'Initialized NET plugin' prints in a working run: IB, "
            "Socket, AWS Libfabric (Libfabric with newer plugins), gIB, FasTrak.",
            "ldconfig -p | grep libnccl-net; echo $NCCL_NET_PLUGIN   # inside the container: is the plugin installed?",
            "unset NCCL_NET   # lets NCCL choose; it then falls back to TCP without an error",
        ],
        notices=failed,
        evidence=[*first_evidence([*broken[:1], *failed]), *evidence_of_settings(asked, 1)],
        fatal=True,
        confidence="certain" if names else "likely",
    )
