"""What the readers of NCCL's XML files share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect.errors import TopologyError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element  # the type only: what reads the file is defusedxml


def parsed(text: str, name: str) -> Element:
    """The root element of a document, read without entities, which could blow up.

    Raises:
        TopologyError: it is not well-formed XML.
    """
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        root: Element = fromstring(text.lstrip("\ufeff").strip(), forbid_dtd=True)
    except DefusedXmlException:
        raise TopologyError(
            f"{name}: a document type or an entity, which NCCL never writes", "give the file as NCCL wrote it"
        ) from None
    except (ParseError, ValueError) as error:
        raise TopologyError(f"{name}: damaged XML ({error})", "copy the whole file that NCCL wrote") from None
    return root


def number(element: Element, name: str) -> int | None:
    """A whole number of 64 bits, decimal or hexadecimal (``0x2``); None when it is absent or something else."""
    try:
        value = int(element.get(name, ""), 0)
    except ValueError:
        return None
    return value if abs(value) < 1 << 63 else None
