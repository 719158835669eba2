"""SageMaker's MPI: ``[1,mpirank:0,algo-1]<stdout>:`` before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"["
PATTERN = re.compile(
    rb"\[\d+,mpirank:(?P<rank>\d{1,7}),(?P<label>[\w.-]{1,80})\]<(?P<stream>stdout|stderr|stddiag)>: ?"
)
SAMPLES = {
    b"[1,mpirank:0,algo-1]<stdout>:": Stated(label="algo-1", rank=0, stream="stdout"),
}
