"""GPU errors that the driver reports as Xid, if hardware or firmware causes them.

Numbers and meanings follow src/common/sdk/nvidia/inc/nverror.h of the open kernel modules, without 13, 31, 43 and 45,
which programs cause.
"""

_HARDWARE = {
    48: "memory error that ECC cannot correct",
    62: "a microcontroller of the GPU stopped",
    64: "memory rows cannot be remapped",
    74: "NVLink error",
    79: "the GPU no longer responds",
    94: "memory error, contained to one process",
    95: "memory error, not contained",
    119: "the firmware of the GPU does not respond",
    120: "the firmware of the GPU failed",
    136: "an NVLink could not be trained",
    140: "memory error that ECC cannot correct",
    143: "the GPU could not be initialized",
    155: "NVLink error",
    157: "a broken part could not be retired",
    158: "the GPU timed out permanently",
    167: "PCIe timed out permanently",
    171: "DRAM error that cannot be corrected",
    172: "SRAM error that cannot be corrected",
    173: "the link between CPU and GPU failed permanently",
}
_NVLINK = range(144, 151)
"""Units of NVLink 5; the text says whether the error is fatal."""
_RECOVERY = 154
"""The recovery action of the GPU changed: the text has the new one."""


def meaning(xid: int, text: str) -> str | None:
    """Return the hardware fault; None if it is harmless or not one of the hardware."""
    if xid in _NVLINK:
        return "fatal NVLink error" if "Fatal" in text else None
    if xid == _RECOVERY:
        wanted = text.rpartition("(")[2].rstrip(")")
        return f"the driver asks for: {wanted}" if wanted not in ("", "None") else None
    return _HARDWARE.get(xid)
