"""What readers raise, besides ValueError."""


class NotOfKindError(Exception):
    """A file begins as one of a kind and is none: a log, mostly."""
