"""What mother and keepers have to say, on standard error, which is the keepers' log."""

from __future__ import annotations

import os
import traceback
from typing import Final

STDERR: Final = 2


def say(text: str) -> None:
    """Write `text` to the log. Where the disk takes none, nobody hears it, and the job goes on."""
    try:
        os.write(STDERR, text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        return  # nowhere is left to say so


def say_exception() -> None:
    """Write the traceback of the exception that is being handled."""
    say(traceback.format_exc().rstrip())
