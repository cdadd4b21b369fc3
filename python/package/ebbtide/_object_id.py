"""ObjectIds, for programs without the package `bson`."""

from __future__ import annotations


class ObjectId:
    """A document's `_id` that the database made: 12 bytes, written as 24 hexadecimal digits.

    One of the package `bson` can be used wherever this one can.
    """

    __slots__ = ("_digits",)

    def __init__(self, digits: str) -> None:
        digits = str(digits).lower()
        if len(digits) != 24 or not set(digits) <= set("0123456789abcdef"):
            raise ValueError(f"an ObjectId has 24 hexadecimal digits: {digits!r}")
        self._digits = digits

    def __str__(self) -> str:
        return self._digits

    def __repr__(self) -> str:
        return f"ObjectId('{self._digits}')"

    def __eq__(self, other: object) -> bool:
        if type(other).__name__ != "ObjectId":
            return NotImplemented
        return str(other) == self._digits

    def __hash__(self) -> int:
        return hash(bytes.fromhex(self._digits))
