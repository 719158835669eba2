"""What launchers and collectors put in front of a line, one module for each.

A module states ``PATTERN``, matched at the start of the line; its group ``time`` and ``label`` (pod, container,
rank: what the collector calls the printer) are kept where it has them. ``SAMPLES`` are prefixes that it takes off.
"""

import re
from functools import cache
from importlib import import_module

from nccl_inspect.discovery import modules


@cache
def patterns() -> tuple[re.Pattern[bytes], ...]:
    """The patterns of all envelopes, in the order of their names."""
    return tuple(import_module(f"{__name__}.{name}").PATTERN for name in modules(__file__))
