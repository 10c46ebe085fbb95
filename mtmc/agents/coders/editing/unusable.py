"""unusable: why a model's reply gives no file."""

from __future__ import annotations

from mtmc.errors import CoderError


class Unusable(CoderError):
    """A reply that gives no whole new file.

    why: in a word or two: "empty", "no code", "unchanged", "truncated", "too long", "does not parse", "no ModelNew",
        "no match", "ambiguous", "abbreviated", "host code".
    The message is written for the model: it says what was wrong with its reply.
    """

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why
