"""Envelopes whose lines may continue in the next one of the same stream, because a collector cuts long ones.

Each states what lines hold that continue (:class:`~nccl_inspect.ingest.lines.envelope_fields.Parts`), and says of each
line whether it does: by a group ``partial`` of its pattern, or by what its reader states. Samples are a part of a line
and its end. All blocks are searched for such lines, so this module is loaded with every log.
"""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import ISO, LOGTAG, PART, Parts, Prefix, Stated, Whole
from nccl_inspect.util.patterns import compile_later

IN_PARTS: dict[str, Prefix | Whole] = {
    # Container runtimes (CRI: containerd, CRI-O), as in ``/var/log/pods``: time, stream and whether the line continues.
    "cri": Prefix(
        b"0123456789",
        compile_later(rb"(?P<time>" + ISO + rb") (?P<stream>stdout|stderr) (?:F|(?P<partial>P))(?::[^ ]*)? "),
        {
            b"2026-11-20T23:13:07.071868123Z stdout F ": Stated(time="2026-11-20T23:13:07.071868123Z", stream="stdout"),
            b"2026-11-20T23:13:07.071868123+01:00 stdout P ": Stated(
                time="2026-11-20T23:13:07.071868123+01:00", stream="stdout", partial=True
            ),
        },
        parts=Parts(b" stdout P", b" stderr P", common=b" std"),
    ),
    # Docker's ``json-file`` driver: ``{"log":"…\n","stream":"stdout","time":"…"}``; long lines come in parts of 16 kB.
    "docker_json": Whole(
        JSON_FIRST,
        JSON,
        JsonReader(
            "log",
            time="time",
            label="attrs.tag attrs.name",
            needs="stream",
            stream="stream",
            parts="logtag=P",
            size=PART,
        ),
        {
            b'{"log":"LINE\\n","stream":"stdout","time":"2026-11-20T23:13:07.071868123Z"}': Stated(
                time="2026-11-20T23:13:07.071868123Z", stream="stdout"
            )
        },
        parts=Parts(b'"stream"', near=b"{", least=PART),
    ),
    # Fluent Bit and Fluentd: objects with ``log`` or ``message`` and what Kubernetes says of the pod.
    "fluent_bit": Whole(
        JSON_FIRST,
        JSON,
        JsonReader(
            "log",
            time="@timestamp time date",
            label="kubernetes.pod_name kubernetes.container_name",
            stream="stream",
            parts="logtag=P",
        ),
        {
            b'{"stream":"stderr","logtag":"P","log":"LINE","time":"2026-11-20T23:13:07.071868123Z"}': Stated(
                time="2026-11-20T23:13:07.071868123Z", stream="stderr", partial=True
            ),
            b'{"stream":"stderr","logtag":"F","log":"LINE","time":"2026-11-20T23:13:07.071868124Z"}': Stated(
                time="2026-11-20T23:13:07.071868124Z", stream="stderr"
            ),
            b'{"date":1795216387.071868,"log":"LINE","kubernetes":{"pod_name":"l-0","container_name":"main"}}': Stated(
                time="1795216387.071868", label="l-0/main"
            ),
        },
        parts=LOGTAG,
    ),
    # Vector, Logstash and programs that log JSON: objects with ``message``.
    "vector": Whole(
        JSON_FIRST,
        JSON,
        JsonReader(
            "message",
            time="timestamp @timestamp time ts",
            label="kubernetes.pod_name kubernetes.pod.name kubernetes.container_name container_name host.name host",
            rank="rank",
            stream="stream",
            parts="logtag=P",
        ),
        {
            b'{"message":"LINE","timestamp":"2026-11-20T23:13:07Z","kubernetes":{"pod_name":"llama-0"}}': Stated(
                time="2026-11-20T23:13:07Z", label="llama-0"
            ),
            b'{"message":"LINE","stream":"stdout","logtag":"P","@timestamp":"2026-11-20T23:13:07Z"}': Stated(
                time="2026-11-20T23:13:07Z", stream="stdout", partial=True
            ),
            b'{"message":"LINE","stream":"stdout","logtag":"F","@timestamp":"2026-11-20T23:13:08Z"}': Stated(
                time="2026-11-20T23:13:08Z", stream="stdout"
            ),
            b'{"message":"LINE","rank":3}': Stated(rank=3),
        },
        parts=LOGTAG,
    ),
}
