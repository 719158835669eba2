"""Bars of tqdm, which end without a line end: the next line is glued to the bar."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b" 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ|"
PATTERN = re.compile(
    rb"[^|\[\]\x22'\n]{0,80}?\d{1,3}%\|[^|\n]{0,300}\| ?[\d.,kMGT]{1,12}/[\d.,kMGT]{1,12} "
    rb"\[[\d:<, ?.a-zA-Z/%=+-]{1,120}\] ?"
)
SAMPLES = {
    "  5%|▌   | 1/20 [00:01<00:19]".encode(): Stated(),
    "Loading: 100%|█████| 4/4 [00:01<00:00,  2.51it/s]".encode(): Stated(),
}
