"""NCCL_MAX_NCHANNELS or NCCL_MAX_CTAS limits the channels."""

from collections.abc import Iterator

from nccl_inspect.judging.clouds import is_google_network, may_be_google_network
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find limits by effect: a communicator has exactly as many channels as the setting allows."""
    limits = facts.user_settings("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS")
    limits = [setting for setting in limits if setting.value.isdigit() and int(setting.value) > 0]
    comms = [comm for comm in facts.job.communicators if comm.channels]
    if not limits or is_google_network(facts):
        return
    limited = [(setting, comm.id) for setting in limits for comm in comms if comm.channels == int(setting.value)]
    if limited or not comms:
        named = {"comms": [comm for _, comm in limited], "perhaps required": may_be_google_network(facts)}
        settings = [one for one in limits if not comms or any(one is setting for setting, _ in limited)]
        yield Hit([], named, settings=settings)
