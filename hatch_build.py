"""Makes the long description of the package: README.md without links to files, which an index does not have."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"!\[[^\]]*\]\((?!\w+:)[^)]*\)\n*")
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)[^)]*\)")
COMMENT = re.compile(r"<!--.*?-->\n")


class LongDescription(MetadataHookInterface):
    """Links of the README lead to files of the repository; where that can be read is not stated here."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        for pattern, by in ((IMAGE, ""), (LINK, r"\1"), (COMMENT, "")):
            text = pattern.sub(by, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
