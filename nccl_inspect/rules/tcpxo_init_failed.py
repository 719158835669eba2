"""GPUDirect-TCPXO cannot start and ends its process."""

from nccl_inspect.judging.engine import Facts, Results, Rule, first_evidence
from nccl_inspect.judging.networks import google_plugins

RULE = Rule(
    name="tcpxo-init-failed",
    category="plugins",
    cloud="GCP",
    title="GPUDirect-TCPXO cannot start",
    shows=("no-tcpxo",),
)
_SWITCHED_OFF = "NET/FasTrak disabled"
_OTHER_MACHINE = ("No FasTrak index found", "larger than maximum number")
_CUDA = ("cuda error detected", "CU error")


def judge(facts: Facts) -> Results:
    """Judge that the plugin ends its process, for whatever reason; other rules judge some reasons in detail."""
    aborted = facts.notices("tcpxo/fastrak-init-failed")
    why = facts.errors_of_rule(RULE.name)
    if not (aborted or why) or google_plugins.works(facts):
        return
    reasons = [google_plugins.reason(notice).rstrip(": ") for notice in aborted] + [notice.message for notice in why]
    reason = next(filter(None, reasons), "no CUDA device")
    yield RULE.finding(
        f"GPUDirect-TCPXO cannot start: {reason}",
        cause=_cause(reason),
        impact="the plugin ends the process, so NCCL does not fall back to TCP: the job does not start",
        fix=_fix(reason),
        notices=aborted,
        evidence=first_evidence([*aborted, *why]),
        fatal=True,
        explains_errors=[*aborted, *why],
    )


def _cause(reason: str) -> str:
    if _SWITCHED_OFF in reason:
        return "NCCL_FASTRAK_ENABLE=0 disables the plugin, but NCCL loads it"
    if any(text in reason for text in _OTHER_MACHINE):
        return "the plugin does not support these GPUs: it is made for the eight H100 of a3-megagpu-8g"
    if any(text in reason for text in _CUDA):
        return "CUDA fails in this process: a fault of the driver or the GPU, or an earlier error"
    return "the plugin names the reason in parentheses; its earlier warnings show more"


def _fix(reason: str) -> list[str]:
    if _SWITCHED_OFF in reason:
        return ["unset NCCL_FASTRAK_ENABLE   # or set NCCL_NET_PLUGIN=none to run without the plugin"]
    if any(text in reason for text in _OTHER_MACHINE):
        return [
            "Use the plugin on a3-megagpu-8g only; other Google machines have TCPX (A3 High) or gIB (A3 Ultra, A4)."
        ]
    return [
        "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET   # prints each step of the plugin",
        google_plugins.DAEMON_LOG,
        google_plugins.ONE_RELEASE,
    ]
