"""`--logs` and `--scope`: the log lines that come with the replies about a job, on stderr."""

from __future__ import annotations

from typing import Any, Final

import click

from engine.cli.app import App
from engine.cli.loglines import LEVELS

NONE: Final = "none"
DEFAULT: Final = "warning"  # where only the scope is given
KEPT: Final = 10_000  # lines that are known as shown; a reply has 100 at most


def log_options(function: Any) -> Any:
    """The two options, as `logs` and `scope`."""
    options = (
        click.option(
            "--logs",
            type=click.Choice([*LEVELS, NONE]),
            metavar="LEVEL|none",
            help="Show log lines from this level on, on stderr.",
        ),
        click.option(
            "--scope",
            type=click.Choice(["caller", "all"]),
            help="Whose lines: the caller's and the engine's, or all.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


class ReplyLogs:
    """What was asked for, and which lines have been shown: each is shown once.

    The lines of an ended task come with each reply about it, also those that came before.
    """

    def __init__(
        self, app: App, floor: str | None, scope: str | None, *, otherwise: str = NONE
    ) -> None:
        """`otherwise`: the floor of the calls where nothing was asked for."""
        from engine.cli.loglines import LogLines

        self.is_asked = floor is not None or scope is not None
        self.floor = floor or (DEFAULT if self.is_asked else otherwise)
        self.scope = scope
        self._app = app
        self._lines = LogLines()
        self._shown: dict[int, None] = {}  # the last `KEPT`, by seq

    @property
    def params(self) -> dict[str, Any]:
        """The params of a call that asks for these lines."""
        return {"logs": self.floor, "logScope": self.scope}

    def show(self, reply: dict[str, Any]) -> None:
        """Show the lines that came with `reply`."""
        from engine.cli import loglines

        if not self.is_asked or self._app.json:
            return
        entries = list(reply.get("logs") or ())
        fresh = self._fresh([e for e in entries if not e.get("marker")])
        view = self._app.console.error_view()
        lines = self._lines.render(fresh, view)
        if reply.get("logsDropped"):
            lines.insert(0, loglines.not_carried(reply["logsDropped"], self.floor, view))
        for marker in entries:
            if marker.get("marker"):
                text = loglines.left_out(marker["leftOut"], self.floor, view)
                lines.append(text.replace("-a", "--scope all"))
        if lines:
            self._app.console.raw_error("\n".join(lines))

    def _fresh(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those not shown yet."""
        fresh = [entry for entry in entries if entry["seq"] not in self._shown]
        self._shown.update(dict.fromkeys(entry["seq"] for entry in fresh))
        for seq in list(self._shown)[: max(0, len(self._shown) - KEPT)]:
            del self._shown[seq]
        return fresh
