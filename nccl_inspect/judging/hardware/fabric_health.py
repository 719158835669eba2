"""The health mask of the NVLink fabric, which NCCL prints as a number (``healthMask``).

Source: src/common/sdk/nvidia/inc/ctrl/ctrl2080/ctrl2080gpu.h of NVIDIA/open-gpu-kernel-modules.
"""

_TRUE = 1
_STATES = {
    0: "bandwidth is degraded",
    2: "routes are being updated",
    4: "a connection is unhealthy",
    6: "accesses timed out",
}
"""The lowest of two bits each: 1 is yes, 2 no, 0 not supported."""
_CONFIGURATION = 8
"""The lowest of four bits."""
_WRONG = {
    2: "the system GUID is wrong",
    3: "the serial number of the chassis is wrong",
    4: "it is in no partition",
    5: "it has too few NVLinks",
    6: "its firmware does not fit",
    7: "its location is invalid",
    8: "its state is invalid",
}


def is_degraded(mask: int) -> bool:
    """Whether the bandwidth is degraded: NCCL warns of it itself since 2.32; the other bits differ between drivers."""
    return mask & 3 == _TRUE


def decode(mask: int) -> list[str]:
    """Return what a mask says is wrong; nothing where all is well, or not reported."""
    faults = [words for shift, words in _STATES.items() if mask >> shift & 3 == _TRUE]
    configuration = mask >> _CONFIGURATION & 15
    return [*faults, _WRONG[configuration]] if configuration in _WRONG else faults
