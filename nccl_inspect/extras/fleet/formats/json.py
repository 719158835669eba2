"""The document as JSON; its JSON Schema is ``nccl_inspect/schema/nccl-inspect-fleet-1.json``."""

from __future__ import annotations

import json
from typing import Any

from nccl_inspect.report import Style


def render(document: dict[str, Any], style: Style) -> str:
    """Return the document, indented on a terminal."""
    return json.dumps(document, indent=2 if style.indent else None, ensure_ascii=False) + "\n"
