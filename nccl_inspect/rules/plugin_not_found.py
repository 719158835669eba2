"""A network plugin that is needed is not there."""

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, Notice, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, listed
from nccl_inspect.rules.plugin_load_failed import lacks_a_library
from nccl_inspect.rules.socket_instead_of_rdma import tcp_paths

RULE = Rule(
    name="plugin-not-found",
    category="plugins",
    severity="warning",
    title="A network plugin that was asked for, or that this platform needs, was not found",
    folds=True,
)
_DEFAULTS = {"libnccl-net.so", "librccl-net.so"}
"""What NCCL and RCCL look for without being asked; 2.27 says 'set by env' of it though nothing is set."""
_NEED_A_PLUGIN = ("efa", "tcpx", "tcpxo")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """A missing plugin is normal; it counts when it was asked for by name or when the platform's network needs it."""
    missing = [notice for notice in facts.plugin("NET", "not-found") if not lacks_a_library(notice)]
    asked = [setting for setting in facts.settings("NCCL_NET") if setting.value not in ("IB", "Socket")]
    named = bool(asked) or any(set(_files(notice)) - _DEFAULTS for notice in missing)
    needed = facts.platform is not None and facts.platform.network in _NEED_A_PLUGIN and not _is_on_one_host(facts)
    came_up = facts.plugin("NET", "loaded")
    if not missing or came_up or not (named or needed):
        return
    slow = tcp_paths(facts)
    names = listed(name for notice in missing for name in _files(notice) or [notice.message])
    yield RULE.finding(
        f"the network plugin was not found: {names}",
        cause="the plugin is asked for by name and not in the image, or its folder is not on LD_LIBRARY_PATH"
        if named
        else f"{facts.platform.name if facts.platform else ''} needs a plugin for its network, and none is in "
        "the image",
        impact="hosts talk over TCP"
        if slow
        else "no path between hosts is in the log yet; NCCL falls back to InfiniBand or TCP",
        fix=[
            "ldconfig -p | grep libnccl-net; echo $LD_LIBRARY_PATH   # inside the container: is the plugin "
            "in one of the folders?",
            "NCCL_NET_PLUGIN=<suffix>   # must fit libnccl-net-<suffix>.so; unset it when no plugin is wanted",
        ],
        severity="error" if slow else "warning" if facts.several_hosts() else "info",
        ranks={rank for notice in missing for rank in notice.ranks},
        hosts={host for notice in missing for host in notice.hosts},
        evidence=[notice.evidence[0] for notice in (*facts.plugin("NET", "requested")[:1], *missing[:3])],
    )


def _is_on_one_host(facts: Facts) -> bool:
    """Whether the job is known to need no network; a fragment may be a part of more."""
    return bool(facts.job.communicators) and not facts.several_hosts()


def _files(notice: Notice) -> list[str]:
    """The files that NCCL tried: NCCL_NET_PLUGIN=foo makes it look for ``foo`` and ``libnccl-net-foo.so``."""
    return str(getattr(notice.event, "plugin", None) or "").split()
