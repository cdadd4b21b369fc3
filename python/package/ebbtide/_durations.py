"""Lives and widths in Python's terms."""

from __future__ import annotations

from datetime import timedelta

Duration = timedelta | int
"""A timedelta, or seconds."""


def seconds(given: Duration, name: str) -> int:
    """Whole seconds."""
    if isinstance(given, timedelta):
        whole, rest = divmod(given, timedelta(seconds=1))
        if rest:
            raise ValueError(f"{name} must be whole seconds, not {given}")
        return whole
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{name} must be a timedelta or seconds as an int, not {type(given).__name__}")
    return given


def nanoseconds(given: Duration, name: str) -> int:
    """Nanoseconds."""
    if isinstance(given, timedelta):
        return given // timedelta(microseconds=1) * 1000
    return seconds(given, name) * 1_000_000_000
