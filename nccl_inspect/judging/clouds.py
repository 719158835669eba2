"""Which cloud a job runs in, and the steps that only help there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import efa_hints
from nccl_inspect.platforms.fabrics import find_network
from nccl_inspect.util.patterns import compile_later

_WORDS = {
    "AWS": compile_later(r"\bEFA\b|\bEKS\b|\bEC2\b|amazonaws\.com|\baws ec2\b|-p efa\b|\bmodinfo efa\b|\bFI_EFA_"),
    "GCP": re.compile(r"\bGKE\b|\bGoogle\b|gke\.io"),
    "Azure": re.compile(r"\bAzure\b|\bAKS\b"),
    "OCI": re.compile(r"\bOCI\b|\bOKE\b"),
}
"""Words that only apply to one cloud, by vendor as platforms state it."""
_EC2 = re.compile(r"ip(?:-\d{1,3}){4}(?:\..*)?")
"""Host names of EC2."""
_EFA = re.compile(r"\b(?:efa|EFA)(?:\b|_)")
_GOOGLE = re.compile(r"\b(?:FasTrak|GPUDirectTCPX|gIB|FastSocket|tcpxo?)\b")


def is_ec2(host: str) -> bool:
    """Return whether a host has a name of EC2's pattern."""
    return _EC2.fullmatch(host) is not None


@once
def clouds_of(facts: Facts) -> set[str]:
    """Return the clouds that the log or the user indicates."""
    clouds = {facts.platform.vendor} if facts.platform and facts.platform.vendor else set[str]()
    shown = [notice.message for notice in facts.job.notices]
    shown += [setting.name for setting in facts.job.environment]
    shown += [kind.net or "" for kind in facts.job.paths.kinds]
    is_efa = any(map(_EFA.search, shown)) or any("Libfabric" in text for text in shown) or bool(efa_hints(facts))
    if any(map(is_ec2, facts.hosts())) or (is_efa and not slingshot.signs(facts)):
        clouds.add("AWS")
    if any(map(_GOOGLE.search, shown)):
        clouds.add("GCP")
    return clouds


def applicable(steps: Iterable[str], clouds: set[str]) -> list[str]:
    """Return the steps without those for clouds where the job, as far as known, does not run."""
    return [step for step in steps if all(name in clouds or not words.search(step) for name, words in _WORDS.items())]


def may_be_google_network(facts: Facts) -> bool:
    """Return whether the network in use is unknown: it may be one of :func:`is_google_network`."""
    return not (facts.platform or facts.job.network.name or facts.job.paths)


def is_google_network(facts: Facts) -> bool:
    """Return whether Google's plugins are in use: its guides set algorithm, protocol and channels for them."""
    network = find_network(facts.platform.network if facts.platform else None)
    return network.vendor == "GCP" or (facts.job.network.name or "").startswith(("GPUDirectTCPX", "FasTrak"))
