"""The matrix that ``nvidia-smi topo -m`` prints.

::

            GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV12    0-23,48-71      0               N/A
    GPU1    NV12     X      0-23,48-71      0               N/A
"""

import re

from nccl_inspect.errors import TopologyError
from nccl_inspect.topology import Topology

_HEAD = re.compile(r"^[\s\x1b\[4m]*GPU0\b.*$", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_CLASS = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")


def recognises(text: str) -> bool:
    """Whether a line begins with the column title GPU0 and one with the row title."""
    plain = _ANSI.sub("", text)
    return bool(_HEAD.search(plain)) and bool(re.search(r"^GPU0\s+X\b", plain, re.MULTILINE))


def read(text: str, name: str) -> Topology:
    """Read the matrix.

    Raises:
        TopologyError: a row is shorter than the head says, or holds an unknown class.
    """
    lines = _ANSI.sub("", text).splitlines()
    head = next(line for line in lines if line.split() and line.split()[0] == "GPU0" and "X" not in line.split())
    columns = [word for word in head.split() if re.fullmatch(r"(?:GPU|NIC|mlx5_)\w*", word)]
    gpus = [int(word[3:]) for word in columns if re.fullmatch(r"GPU\d+", word)]
    classes: dict[tuple[int, int], str] = {}
    for gpu in gpus:
        row = next((line.split() for line in lines if line.split()[:1] == [f"GPU{gpu}"] and line != head), None)
        if row is None or len(row) <= len(gpus) or not all(map(_CLASS.fullmatch, row[1 : len(gpus) + 1])):
            raise TopologyError(
                f"{name}: the row of GPU{gpu} is damaged", "copy the whole output of nvidia-smi topo -m"
            )
        classes.update({(gpu, other): row[1 + index] for index, other in enumerate(gpus) if other != gpu})
    return Topology(name, len(gpus), classes)
