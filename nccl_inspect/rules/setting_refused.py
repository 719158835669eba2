"""NCCL or a plugin stops because of the value of a setting."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule

RULE = Rule(
    name="setting-refused",
    category="environment",
    title="NCCL or a plugin stops because of the value of a setting",
    shows=("setting",),
)
_VARIABLES = {
    "tcpxo/fastrak-daemon-socket": "FILE_BASED_UDS_PATH_PREFIX",
    "nccl/ib-ooo-rq-invalid": "NCCL_IB_OOO_RQ",
    "nccl/net-policy-invalid": "NCCL_NETDEVS_POLICY",
    "aws-ofi-nccl/ofi-domain-per-thread-conflict": "OFI_NCCL_DOMAIN_PER_THREAD OFI_NCCL_ENDPOINT_PER_COMM",
    "aws-ofi-nccl/ofi-dup-conns-misused": "OFI_NCCL_NIC_DUP_CONNS",
    "aws-ofi-nccl/ofi-early-completion": "OFI_NCCL_EARLY_COMPLETION OFI_NCCL_EAGER_MAX_SIZE",
}
"""The variable, if the message does not name it in full."""


def judge(facts: Facts) -> Results:
    """Judge values that stop the initialization; setting-invalid judges those that NCCL adjusts or ignores."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    names = list(dict.fromkeys(filter(None, (_variable(notice.production, notice.message) for notice in errors))))
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"a setting is refused: {errors[0].message}",
        cause=f"{', '.join(names) or 'a variable'} has a value that this machine or this release does not support",
        stops="the initialization fails: a plugin does not come up, or NCCL stops",
        fix=(
            *(f"unset {name}   # or correct it" for name in names),
            "env | grep -E '^(NCCL|OFI_NCCL)_'; cat /etc/nccl.conf ~/.nccl.conf   # inside the container: where is "
            "it set?",
        ),
        confirm="Check whether the communicators came up (Init COMPLETE), and on which network (Using network …).",
        confidence="certain",
    )


def _variable(production: str, message: str) -> str:
    """The variable that a message is about."""
    named = (word.strip("'\".,:;()").partition("=")[0] for word in message.split())
    return _VARIABLES.get(production) or next((name for name in named if name.startswith(("NCCL_", "OFI_NCCL_"))), "")
