"""Ray and vLLM: the worker's name, pid and address; a line that several workers print is shown once."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"("
PATTERN = re.compile(rb"\((?P<label>(?:[^()]{0,200}\b)?pid=\d{1,10}[^()]{0,200}|raylet[^()]{0,100})\) ")
TRAILER = b"[repeated ", re.compile(rb" ?\[repeated \d+x across cluster\].*$")
SAMPLES = {
    b"(RayWorkerWrapper pid=123, ip=10.0.0.1) ": Stated(label="RayWorkerWrapper pid=123, ip=10.0.0.1"),
    b"(pid=123) ": Stated(label="pid=123"),
    b"(VllmWorkerProcess pid=1) ": Stated(label="VllmWorkerProcess pid=1"),
    b"(EngineCore_0 pid=123) ": Stated(label="EngineCore_0 pid=123"),
    b"(Worker_TP0 pid=124) ": Stated(label="Worker_TP0 pid=124"),
}
