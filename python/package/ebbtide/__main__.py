"""The program `ebbtide`: `python -m ebbtide demo`."""

from __future__ import annotations

import signal
import sys

from ._ebbtide import run_program


def main() -> None:
    """Runs the program with the arguments of this process, and ends with its exit code."""
    # The program ends statements by itself, and a second Ctrl-C ends it as it does any other.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_program(["ebbtide", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
