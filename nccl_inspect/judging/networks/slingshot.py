"""Slingshot, the network of HPE Cray systems: the provider cxi of libfabric, and interfaces named hsn0, hsn1, …"""

from __future__ import annotations

import re

from nccl_inspect.event import types as events
from nccl_inspect.judging.facts import Facts, evidence_of_settings, first_evidence, once
from nccl_inspect.judging.networks.interfaces import notices_naming
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice, Setting

PROVIDER = "cxi"
_INTERFACE = re.compile(r"=?hsn\d*")
CHECK = "fi_info -p cxi; ls /dev/cxi*   # inside the container: does its libfabric list the NICs?"
INSTALL = (
    "Use aws-ofi-nccl built for the libfabric of the site, with the provider cxi (often a module of the center); a "
    "container needs both, and /dev/cxi*, from the host."
)


@once
def signs(facts: Facts) -> list[Evidence]:
    """Lines that show Slingshot: its provider, its interfaces, or a setting that names either."""
    notices = [*filter(_is_sign, facts.job.notices), *notices_naming(facts, _INTERFACE.fullmatch)]
    return [
        *first_evidence(notices)[:3],
        *evidence_of_settings([s for s in facts.job.environment if _names_it(s)], 1)[:2],
    ]


def _is_sign(notice: Notice) -> bool:
    if isinstance(notice.event, events.OfiProvider):
        return notice.event.provider == PROVIDER
    return notice.production == "libfabric/libfabric-warning" and bool(value(notice, "provider") == PROVIDER)


def _names_it(setting: Setting) -> bool:
    if setting.name == "FI_PROVIDER":
        return PROVIDER in setting.value.split(",")
    if setting.name == "NCCL_SOCKET_IFNAME":
        return any(_INTERFACE.fullmatch(name) for name in setting.value.split(","))
    return setting.name.startswith("FI_CXI_")
