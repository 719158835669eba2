"""``kubectl logs --timestamps``: an RFC 3339 time and a blank before every line."""

import re

PATTERN = re.compile(rb"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) ")
SAMPLES = (b"2026-11-20T23:13:07.071868123Z ", b"2026-11-20T23:13:07+01:00 ")
