"""Which cloud a job runs in, and the steps that only help there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import efa_hints

_WORDS = {
    "AWS": re.compile(r"\bEFA\b|\bEKS\b|\bEC2\b|amazonaws\.com|\baws ec2\b|-p efa\b|\bmodinfo efa\b|\bFI_EFA_"),
    "GCP": re.compile(r"\bGKE\b|\bGoogle\b|gke\.io"),
    "Azure": re.compile(r"\bAzure\b|\bAKS\b"),
    "OCI": re.compile(r"\bOCI\b|\bOKE\b"),
}
"""What names a thing that one cloud has, by the vendor as platforms state it."""
_EC2 = re.compile(r"ip(?:-\d{1,3}){4}(?:\..*)?")
"""How EC2 names its machines."""
_EFA = re.compile(r"\b(?:efa|EFA)(?:\b|_)")
_GOOGLE = re.compile(r"\b(?:FasTrak|GPUDirectTCPX|gIB|FastSocket|tcpxo?)\b")


def is_ec2(host: str) -> bool:
    """Whether a host is named as EC2 names its machines."""
    return _EC2.fullmatch(host) is not None


def known(facts: Facts) -> set[str]:
    """The clouds that the log or the user names."""
    return facts.once(_known)


def _known(facts: Facts) -> set[str]:
    found = {facts.platform.vendor} if facts.platform and facts.platform.vendor else set[str]()
    shown = [notice.message for notice in facts.job.notices]
    shown += [setting.name for setting in facts.job.environment]
    shown += [kind.net or "" for kind in facts.job.paths.kinds]
    is_efa = any(map(_EFA.search, shown)) or any("Libfabric" in text for text in shown) or bool(efa_hints(facts))
    if any(map(is_ec2, facts.hosts())) or (is_efa and not slingshot.signs(facts)):
        found.add("AWS")
    if any(map(_GOOGLE.search, shown)):
        found.add("GCP")
    return found


def fitting(steps: Iterable[str], clouds: set[str]) -> list[str]:
    """The steps without those for clouds that the job does not run in, as far as is known."""
    return [step for step in steps if all(name in clouds or not words.search(step) for name, words in _WORDS.items())]


def vendor_may_ask(facts: Facts) -> bool:
    """Whether the log does not tell which network is in use: it may be one of :func:`vendor_asks`."""
    return not (facts.platform or facts.job.network.name or facts.job.paths)


def vendor_asks(facts: Facts) -> bool:
    """Whether Google's plugins are in use: its guides set algorithm, protocol and number of channels for them."""
    network = facts.platform.network if facts.platform else None
    return network in ("tcpx", "tcpxo") or (facts.job.network.name or "").startswith(("GPUDirectTCPX", "FasTrak"))
