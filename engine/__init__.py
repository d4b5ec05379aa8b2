"""A background-task execution engine: jobs that outlive the call, the client and the engine."""

from typing import Final

VERSION: Final = "0.1.0"
PROTOCOL: Final = 1  # of the wire; clients and engine compare it
