"""NIC counters in two files: counters only grow, so the values show which file is later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from nccl_inspect.judging.evidence.machines import Finder, Sighting, cards_in_use, items
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.wording import list_words

if TYPE_CHECKING:
    from nccl_inspect.artifacts.machine import Item

LINK = re.compile(
    r"link_downed|link_error_recovery|port_rcv_errors|local_link_integrity_errors|excessive_buffer_overrun_errors"
    r"|link_down_events_phy|rx_crc_errors_phy"
)
"""Counters of a bad cable, transceiver or remote port."""
LOSS = re.compile(
    r"local_ack_timeout_err|packet_seq_err|out_of_sequence|implied_nak_seq_err|rnr_nak_retry_err|rx_icrc_encapsulated"
    r"|[rt]x_discards_phy|port_xmit_discards|rx_drops|retrans_timeout_events|unresponsive_remote_events"
    r"|impaired_remote_conn_events"
)
"""Counters of lost packets: congestion, RoCE without PFC or ECN, a bad link elsewhere."""
_Place = tuple[str | None, str, str]
_Values: TypeAlias = "dict[str, dict[str, Item]]"


def grown(which: re.Pattern[str]) -> Finder:
    """NICs with such counters that grew from one file to the other."""

    def find(facts: Facts) -> Iterator[Sighting]:
        cards = cards_in_use(facts)
        for (host, card, _), files in _by_card(facts).items():
            in_use = cards.get(host or "")
            if len(files) < 2 or (in_use and card and card not in in_use and not card.startswith(("eth", "en", "ib"))):
                continue
            ordered = sorted(files.items(), key=lambda entry: sum(item.values["value"] for item in entry[1].values()))
            (_, first), (name, last) = ordered[0], ordered[-1]
            grew = {
                counter: (item, item.values["value"] - first[counter].values["value"])
                for counter, item in last.items()
                if counter in first
            }
            if any(change < 0 for _, change in grew.values()):
                continue  # reset in between
            bad = {counter: (item, by) for counter, (item, by) in grew.items() if by and which.fullmatch(counter)}
            if bad:
                item, by = next(iter(bad.values()))
                words = list_words([f"{counter} by {change}" for counter, (_, change) in bad.items()], limit=3)
                text = f"{item.text} ({item.values['value'] - by} before)"
                yield Sighting(
                    f"{card or 'a NIC'} counted errors ({words})", host, Evidence(name, item.line, text), card
                )

    return find


@once
def _by_card(facts: Facts) -> dict[_Place, _Values]:
    """Return the counters of each port of a card, by file and name."""
    counters: dict[_Place, _Values] = {}
    for name, item in items(facts, "counter"):
        file = counters.setdefault((item.host, item.name, item.values["port"]), {}).setdefault(name, {})
        file.setdefault(item.values["counter"], item)
    return counters
