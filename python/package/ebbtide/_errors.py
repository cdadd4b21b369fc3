"""Exceptions by kind: each kind says what to do."""

from __future__ import annotations


class Error(Exception):
    """Why a call failed. Nothing was done, unless `stored` says otherwise."""

    code: int
    """The code, which is MongoDB's where MongoDB has one."""
    code_name: str
    """The code's name, such as `NamespaceNotFound`."""
    index: int | None
    """The zero-based index of the measurement or document that is wrong, within its insert."""
    stored: int
    """How many measurements or documents the call stored before it failed: of measurements only for inputs above 32 MiB."""

    def __init__(
        self, message: str, code: int = 1, code_name: str = "InternalError", index: int | None = None, stored: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.code_name = code_name
        self.index = index
        self.stored = stored

    def __reduce__(self) -> tuple[type[Error], tuple[str, int, str, int | None, int]]:
        return type(self), (str(self), self.code, self.code_name, self.index, self.stored)


class BusyError(Error):
    """Another process or call holds what is needed, or the call was stopped: try again later."""


class FullError(Error):
    """The disk is full, or the memory limit of a statement is reached: free space or ask for less, then try again."""


class InvalidError(Error):
    """The call is wrong: correct it."""


class CorruptError(Error):
    """Something on disk is damaged or missing: restore it, or repair it with `ebbtide repair`."""


class PoisonedError(Error):
    """Writes are disabled after a failed write or sync: open the database again and check its contents."""


class FileError(Error):
    """The file system refused an operation: fix the cause, then try again."""


class InternalError(Error):
    """A bug in Ebbtide: report it."""
