"""``rdma link``: state of each port and its network interface."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts.machine import Item, Line

KIND = "rdma link output"
NAMES = dict.fromkeys(("lid ", "sm_lid ", "node_guid ", "sys_image_guid "), "guid")
START = re.compile(rb"(?:link |\d+/\d+: )\S+/\d+:? [^\n]*\bstate \w+ physical_state \w+")
_PORT = re.compile(
    r"(?:link |\d+/\d+: )(?P<card>[^\s/]+)/(?P<port>\d+):? .*?\bstate (?P<state>\w+) physical_state (?P<physical>\w+)"
    r"(?:.*?\bnetdev (?P<netdev>\S+))?"
)


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the ports."""
    for line in lines:
        if match := _PORT.match(line.text.strip()):
            values = {**match.groupdict(), "physical": match["physical"].replace("_", "")}
            yield Item("port", match["card"], values, line.number, line.text.strip())
