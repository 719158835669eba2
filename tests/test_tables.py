"""Events as Arrow tables."""

import pyarrow as pa

import nccl_inspect
from nccl_inspect import tables

LOG = b"""\
vm:11:11 [0] NCCL INFO cudaDriverVersion 13000
vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
vm:11:12 [0] NCCL INFO Trees [0] 2/-1/-1->0->-1 [1] -1/-1/-1->0->1
an application's line
vm:11:12 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA
"""


def test_every_event_fits_the_one_schema() -> None:
    table = tables.table(nccl_inspect.events(LOG))
    assert table.schema.equals(tables.schema())
    assert table.column("kind").to_pylist() == ["CudaDriver", "ChannelConnect", "TreeLinks", "ChannelConnect"]
    assert table.column("line").to_pylist() == [1, 2, 3, 5]
    assert table.column("host").to_pylist() == ["vm"] * 4
    assert table.column("nic_index").to_pylist() == [None, None, None, 2]
    assert table.column("trees").to_pylist()[2] == [[0, 2, -1, -1, 0, -1], [1, -1, -1, -1, 0, 1]]


def test_a_name_has_one_type_in_all_event_classes() -> None:
    assert isinstance(tables.schema(), pa.Schema)


def test_bytes_that_are_not_utf8_do_not_break_a_table() -> None:
    log = b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to \xff\xfe"
    table = tables.table(nccl_inspect.events(log))
    assert "\\xff" in table.column("message").to_pylist()[0]
