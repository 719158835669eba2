"""libfabric is too old for this NCCL, or for aws-ofi-nccl."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model import versions

_INVALID, _GPU = -22, 2
_CUMEM = versions.order("2.19")
"""Since then NCCL allocates GPU memory in a way that an old libfabric cannot register."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find the plugin's messages about libfabric, and GPU memory that libfabric rejects as invalid."""
    stated = facts.errors_of_rule("efa-libfabric-incompat")
    releases = [versions.order(text) for text in facts.job.nccl_versions if "inferred" not in text]
    refused = facts.notices("aws-ofi-nccl/ofi-register-failed")
    refused = [one for one in refused if (value(one, "rc"), value(one, "type")) == (_INVALID, _GPU)]
    if releases and max(releases) < _CUMEM:
        refused = []
    if stated or refused:
        named = {
            "stated": stated,
            "refused": refused,
            "needed": str(value(stated[0], "version") or "").rstrip(".") if stated else "",
            "release": releases,
        }
        yield Hit([*stated, *refused], named)
