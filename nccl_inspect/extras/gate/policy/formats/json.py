"""The document ``nccl-inspect-check/1``."""

from __future__ import annotations

import json

from nccl_inspect.extras.gate.policy import Checked, document
from nccl_inspect.report import Style


def render(checked: Checked, strict: bool, style: Style) -> str:
    """The document as text."""
    return json.dumps(document.to_dict(checked, strict), indent=1) + "\n"
