"""Places: numbers that order the lines of all sources."""

_LINE_BITS = 40


def position(source: int, line: int) -> int:
    """One number that orders lines: by source, then by line."""
    return source << _LINE_BITS | line


def source_and_line(place: int) -> tuple[int, int]:
    """The inverse of :func:`position`."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)
