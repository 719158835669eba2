"""The GPUDirect-TCPXO plugins of two nodes, or the plugin and the host software, are of incompatible releases."""

from nccl_inspect.event import types as events
from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, value
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.statements import message_of
from nccl_inspect.util.wording import listed, some_names

RULE = Rule(
    name="tcpxo-version-mismatch",
    category="plugins",
    cloud="GCP",
    title="Releases of GPUDirect-TCPXO are incompatible",
    may_cause=("no-tcpxo",),
)
_HOST = ("Server version is unsupported", "kUnsupportedClientVersion")


def judge(facts: Facts) -> Results:
    """Judge the plugin's errors about releases, and plugins of several releases in a job that did not connect."""
    peers = facts.errors_of_rule(RULE.name)
    refused = [n for n in facts.notices("tcpxo/fastrak-dxs-failed") if any(text in message_of(n) for text in _HOST)]
    if errors := [*peers, *refused]:
        yield RULE.finding(
            f"GPUDirect-TCPXO: {_of_peers(peers[0]) if peers else 'the host refuses the release of the plugin'}",
            cause="two nodes run plugins of different releases"
            if peers
            else "the offload engine of the machine does not accept a plugin this old or this new",
            impact="ranks cannot connect over the fast network: the job stops",
            fix=[google_plugins.ONE_RELEASE, "kubectl get pod <pod> -o yaml   # which images does each node run?"],
            notices=errors,
            fatal=True,
        )
        return
    loading = [notice for notice in facts.plugin("NET", "loading") if notice.production == "tcpxo/fastrak-initializing"]
    releases = _releases(loading)
    if len(releases) < 2 or google_plugins.works(facts):
        return
    yield RULE.clue(
        f"nodes run different releases of the GPUDirect-TCPXO plugin ({listed(releases)})",
        cause="; ".join(f"{release} on {some_names(sorted(hosts))}" for release, hosts in releases.items()),
        impact="ranks may not connect over the fast network; Google qualifies plugin, daemon and NCCL together",
        fix=[google_plugins.ONE_RELEASE],
        confirm="Look for 'VERSION MISMATCH' in the logs of all ranks; 'via NET/FasTrak' means that the plugin works.",
        confidence="possible",
        notices=loading,
    )


def _of_peers(notice: Notice) -> str:
    if value(notice, "peer") is not None:
        return f"the handle of a peer has version {value(notice, 'peer')}, but this plugin has {value(notice, 'own')}"
    return f"releases differ ({value(notice, 'detail')})" if value(notice, "detail") else "a peer's handle is empty"


def _releases(loading: list[Notice]) -> dict[str, set[str]]:
    """The hosts of each release of the plugin."""
    hosts: dict[str, set[str]] = {}
    for notice in loading:
        if isinstance(notice.event, events.PluginStatus) and notice.event.detail and notice.hosts:
            hosts.setdefault(notice.event.detail, set()).update(notice.hosts)
    return dict(sorted(hosts.items()))
