"""Docker's ``json-file`` driver: ``{"log":"…\\n","stream":"stdout","time":"…"}``."""

from nccl_inspect.ingest.stated import JSON, JSON_FIRST, Stated, json_reader

FIRST = JSON_FIRST
OPENING = JSON
READ = json_reader("log", time="time", label="attrs.tag attrs.name", needs="stream")
SAMPLES = {
    b'{"log":"LINE\\n","stream":"stdout","time":"2026-11-20T23:13:07.071868123Z"}': Stated(
        time="2026-11-20T23:13:07.071868123Z"
    ),
}
