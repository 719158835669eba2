"""Rows of CSV: CloudWatch Logs Insights, Grafana, Azure; the cell with the line is recognized by its content."""

from nccl_inspect.ingest.lines.envelope_fields import CSV, CSV_FIRST, Stated, csv_reader

FIRST = CSV_FIRST
OPENING = CSV
READ = csv_reader
SAMPLES = {
    b"2026-11-20 23:13:07.071,LINE": Stated(time="2026-11-20 23:13:07.071"),
    b'2026-11-20 23:13:07.071,"LINE",train/main': Stated(time="2026-11-20 23:13:07.071"),
    b'"LINE"': Stated(),
}
