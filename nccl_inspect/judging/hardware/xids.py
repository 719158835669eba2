"""Errors of GPUs that the driver reports as Xid, as far as hardware or firmware causes them.

Numbers and meanings follow src/common/sdk/nvidia/inc/nverror.h of the open kernel modules; 13, 31, 43 and 45, which
programs cause, are not among them.
"""

_HARDWARE = {
    48: "memory error that ECC cannot correct",
    62: "a microcontroller of the GPU stopped",
    64: "memory rows cannot be remapped",
    74: "NVLink error",
    79: "the GPU does not answer any more",
    94: "memory error, contained in one program",
    95: "memory error, not contained",
    119: "the firmware of the GPU does not answer",
    120: "the firmware of the GPU failed",
    136: "an NVLink could not be trained",
    140: "memory error that ECC cannot correct",
    143: "the GPU could not be initialised",
    155: "NVLink error",
    157: "a broken part could not be retired",
    158: "the GPU timed out for good",
    167: "PCIe timed out for good",
    171: "DRAM error that cannot be corrected",
    172: "SRAM error that cannot be corrected",
    173: "the link between CPU and GPU failed for good",
}
_NVLINK = range(144, 151)
"""Of the units of NVLink 5; the text says whether it is fatal."""
_RECOVERY = 154
"""What is to be done about the GPU has changed: the text says to what."""


def meaning(xid: int, text: str) -> str | None:
    """What broke; None where it is no fault of the hardware, or harmless."""
    if xid in _NVLINK:
        return "fatal NVLink error" if "Fatal" in text else None
    if xid == _RECOVERY:
        wanted = text.rpartition("(")[2].rstrip(")")
        return f"the driver asks for: {wanted}" if wanted not in ("", "None") else None
    return _HARDWARE.get(xid)
