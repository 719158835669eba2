"""GPUDirect-TCPX and GPUDirect-TCPXO."""

from collections.abc import Iterator

from nccl_inspect.judging import networks
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, value
from nccl_inspect.judging.facts import hosts_in
from nccl_inspect.judging.statements import message_of
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.wording import some_names

_PLUGINS = ("NET/FasTrak", "NET/GPUDirectTCPX")
_RETURNS = "tcpxResult_t"
"""TCPX prints the signature of a function where other warnings have their source location."""
_TIMED_OUT = ("timed out", "timeout", "deadline exceeded")
_OF_DAEMON = ("daemon-ends", "daemon-gone")
_WAITS, _ABORTED = "tcpxo/fastrak-rxdm-not-ready", "tcpxo/fastrak-init-failed"
_ABORTS_OF_WAITS = ("DEADLINE_EXCEEDED: ", "connect() error", "receive() error")


def tcpx_timeout(facts: Facts) -> Iterator[Hit | Effects]:
    """Find a daemon that does not become ready or ends, and warnings about timeouts.

    The TCPX plugin is recognized by its texts only: its WARN about a timeout counts.
    """
    own = facts.with_role("daemon-ends")
    gone = [*facts.with_role("daemon-gone"), *networks.find_aborts(facts, *_ABORTS_OF_WAITS)]
    late = [notice for notice in facts.job.notices if _is_timeout(notice)]
    ready = {process for notice in facts.notices("tcpxo/fastrak-rxdm-ready") for process in notice.processes}
    waiting = [one for one in facts.notices(_WAITS) if not one.processes or set(one.processes) - ready]
    works, is_failure = networks.google_plugin_works(facts), bool(own or gone or late)
    ended = facts.job.failed or bool(facts.job.ended_by)
    if facts.is_over():
        yield Effects(gone)  # the daemon may end before the job
    if works and not facts.job.failed and (facts.is_over() or not is_failure):
        return
    if waiting and not is_failure and not ended:
        yield Hit(named={"open": True})
    elif notices := [*own, *gone, *late, *waiting]:
        where = {str(value(notice, "host")) for notice in gone if value(notice, "host")} or hosts_in(gone)
        nanos = value(late[0], "nanos") if late else None
        texts = [message_of(notice) for notice in gone]
        yield Hit(
            notices,
            {
                "own": _text(own[0]) if own else "",
                "gone": own or gone,
                "where": sorted(where),
                "late": _text(late[0]) if late else "",
                "waiting": waiting,
                "nanos": nanos and int(nanos) // 10**9,
                **({name: value(late[0], name) for name in ("peer", "interface", "what")} if nanos else {}),
                "seconds": max((int(value(notice, "seconds") or 0) for notice in waiting), default=0),
                "refused": any("111" in text or "refused" in text for text in texts) and not own,
                "works": works and not ended,
                "certain": own or facts.notices("tcpxo/fastrak-rxdm-timeout"),
                "fatal": ended or (is_failure and not works),
            },
        )


def _is_timeout(notice: Notice) -> bool:
    """Return whether a peer does not answer; messages about the daemon or the machine do not count."""
    own = notice.message.startswith(_PLUGINS) or (notice.location or "").startswith(_RETURNS)
    own = own or notice.rule == "tcpx-timeout"
    if notice.level != "WARN" or not own or notice.rule not in ("", "tcpx-timeout"):
        return False
    if not notice.roles.isdisjoint(_OF_DAEMON) or notice.production in (_WAITS, _ABORTED):
        return False
    return any(phrase in notice.message.lower() for phrase in _TIMED_OUT)


def _text(notice: Notice) -> str:
    """Return the message without its head: the plugin's name and time, or the prefix of a line of the daemon."""
    mark = "] " if notice.production.startswith("tcpxo/rxdm-") else ": "
    return message_of(notice).partition(mark)[2].strip() or notice.message


_NONE, _NO_NIC = "tcpxo/fastrak-no-interface", "tcpxo/fastrak-no-closest-nic"


def tcpxo_no_interface(facts: Facts) -> Iterator[Hit | Effects]:
    """Find interfaces that the plugin does not find, and the daemon's NICs that it does not see."""
    missing = [
        *facts.notices(_NONE, _NO_NIC, "tcpxo/fastrak-dxs-interface", "tcpxo/fastrak-interface-path"),
        *facts.errors_of_rule("tcpxo-no-interface"),
        *networks.find_aborts(facts, "Could not find closest netdev", "No interface found for source IP"),
    ]
    unknown = facts.notices("tcpxo/fastrak-address-unknown")
    if missing:
        named = {
            "control": next((value(notice, "interface") for notice in missing if notice.production == _NONE), None),
            "gpus": [str(value(notice, "gpu")) for notice in missing if notice.production == _NO_NIC],
            "addresses": _addresses(missing),
            "works": networks.google_plugin_works(facts) and not facts.job.failed,
        }
        yield Hit([*missing, *unknown], named)
    elif facts.enabled_settings("NCCL_FASTRAK_ALLOW_NIC_SUBSET"):
        yield Effects(unknown)
    elif unknown:
        yield Hit(unknown, {"unknown": _addresses(unknown)})


def _addresses(notices: list[Notice]) -> list[str]:
    return [str(address) for notice in notices if (address := value(notice, "address"))]


_MEMORY = ("registration", "daemon-memory", "daemon-request")
_ABORTS_OF_ENGINE = ("Failed to initialize DXS", "getaddrinfo failed", "bind failed", "SctpHandler")


def tcpxo_offload_failed(facts: Facts) -> Iterator[Hit | Effects]:
    """Find failures between plugin and offload engine; at the end of a job, connections close normally."""
    errors = [*facts.errors_of_rule("tcpxo-offload-failed"), *networks.find_aborts(facts, *_ABORTS_OF_ENGINE)]
    if facts.is_over():
        yield Effects(errors)  # connections that closed in between
    if errors and (facts.job.failed or not networks.google_plugin_works(facts)):
        first = errors[0]
        named = {
            "words": networks.abort_reason(first) or message_of(first).partition(": ")[2],
            "memory": any(part in first.production for part in _MEMORY),
            "socket": first.production == "tcpxo/fastrak-dxs-socket",
        }
        yield Hit(errors, named)


_HOST = ("Server version is unsupported", "kUnsupportedClientVersion")


def tcpxo_version_mismatch(facts: Facts) -> Iterator[Hit]:
    """Find the plugin's errors about releases, and plugins of several releases in a job that did not connect."""
    peers = facts.errors_of_rule("tcpxo-version-mismatch")
    refused = [n for n in facts.notices("tcpxo/fastrak-dxs-failed") if any(text in message_of(n) for text in _HOST)]
    loading = [notice for notice in facts.plugin("NET", "loading") if notice.production == "tcpxo/fastrak-initializing"]
    releases = group_values((str(getattr(n.event, "detail", None) or ""), host) for n in loading for host in n.hosts)
    releases.pop("", None)
    if errors := [*peers, *refused]:
        yield Hit(errors, {"peers": peers})
    elif len(releases) > 1 and not networks.google_plugin_works(facts):
        nodes = (f"{release} on {some_names(sorted({*releases[release]}))}" for release in sorted(releases))
        yield Hit(loading, {"releases": sorted(releases), "nodes": "; ".join(nodes)})
