"""The matrix that ``nvidia-smi topo -m`` prints.

::

            GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV12    PXB     0-23,48-71      0               N/A
    GPU1    NV12     X      SYS     0-23,48-71      0               N/A
    NIC0    PXB     SYS      X

    NIC Legend:

      NIC0: mlx5_0
"""

import re

from nccl_inspect.errors import TopologyError
from nccl_inspect.topology import Gpu, Nic, Topology
from nccl_inspect.util.patterns import compile_later

_HEAD = compile_later(r"^[\s\x1b\[4m]*GPU0\b.*$", re.MULTILINE)
_ANSI = compile_later(r"\x1b\[[0-9;]*m")
_AGAIN = "copy the whole output of nvidia-smi topo -m"
_CLASS = compile_later(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")
_LEGEND = compile_later(r"^\s*(NIC\d+):\s*(\S+)", re.MULTILINE)


def recognises(text: str) -> bool:
    """Return whether a line begins with the column title GPU0 and one with the row title."""
    plain = _ANSI.sub("", text)
    return bool(_HEAD.search(plain)) and bool(re.search(r"^GPU0\s+X\b", plain, re.MULTILINE))


def read(text: str, name: str) -> Topology:
    """Read the matrix.

    Raises:
        TopologyError: a row is shorter than the head says, or holds an unknown class.
    """
    plain = _ANSI.sub("", text)
    lines = plain.splitlines()
    heads = (line for line in lines if line.split()[:1] == ["GPU0"] and "X" not in line.split())
    head = next(heads, "")
    columns = [word for word in head.split() if re.fullmatch(r"(?:GPU|NIC|mlx5_)\w*", word)]
    columns = columns[: columns.index("GPU")] if "GPU" in columns else columns  # of "GPU NUMA ID"
    gpus = [word for word in columns if re.fullmatch(r"GPU\d{1,3}", word)]
    if not gpus:
        raise TopologyError(f"{name}: the row with the names of the GPUs is damaged", _AGAIN)
    rows = {line.split()[0]: line.split() for line in reversed(lines) if line.strip() and line != head}
    classes: dict[tuple[int, int], str] = {}
    distances: dict[str, dict[int, str]] = {word: {} for word in columns if word not in gpus}
    for place, gpu in enumerate(gpus):
        row = rows.get(gpu)
        if row is None or len(row) <= len(gpus) or not all(map(_CLASS.fullmatch, row[1 : len(gpus) + 1])):
            raise TopologyError(f"{name}: the row of {gpu} is damaged", _AGAIN)
        for column, cell in zip(columns, row[1:], strict=False):
            if column in distances and _CLASS.fullmatch(cell):
                distances[column][place] = cell
            elif column in gpus and column != gpu:
                classes[place, gpus.index(column)] = cell
    names = dict(_LEGEND.findall(plain))
    nics = tuple(Nic(names.get(column, column), classes=kinds) for column, kinds in distances.items())
    return Topology(name, tuple(Gpu(int(gpu[3:])) for gpu in gpus), classes, nics)
