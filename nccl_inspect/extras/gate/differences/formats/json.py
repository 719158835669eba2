"""The document ``nccl-inspect-diff/1``."""

from __future__ import annotations

import json

from nccl_inspect.extras.gate.differences import Difference, document
from nccl_inspect.report import Style


def render(difference: Difference, style: Style) -> str:
    """The document as text."""
    return json.dumps(document.to_dict(difference), indent=1) + "\n"
