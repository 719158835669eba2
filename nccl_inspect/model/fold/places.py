"""Places: numbers that order the lines of all sources."""

_LINE_BITS = 40


def position(source: int, line: int) -> int:
    """Return one number that orders lines: by source, then by line."""
    return source << _LINE_BITS | line


def source_and_line(place: int) -> tuple[int, int]:
    """Return the inverse of :func:`position`."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


class Move:
    """Gives a place of a fold the place that it has in the fold that takes that one in.

    Args:
        first: what is added to the places of the first source.
        others: the same for those of all others.
    """

    def __init__(self, first: int, others: int) -> None:
        self.first = first
        self.others = others

    def __call__(self, place: int) -> int:
        """Return the place there."""
        return place + (self.others if place >> _LINE_BITS else self.first)
