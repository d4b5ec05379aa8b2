"""`logs`: lines of the journal, by level, scope, caller, task and text; and what comes next.

It looks as an observer with a cursor of its own, so nobody's position moves: not the caller's in
the journal, nor what a later reply will tell. See `loglines` for how lines look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any, Final

import click

from engine.cli import exits
from engine.cli.app import CALLER, App
from engine.cli.audience import Audience
from engine.cli.loglines import LEVELS, Entry, LogLines, gone, left_out
from engine.cli.verbs import Verb, task_argument, verb
from engine.client.cursors import HOLD, LINES, LOGS_HOLD, LogCursor

NEWEST: Final = 100  # lines shown, unless said otherwise
NEWEST_FIRST: Final = 10  # of them before those that come, with -f
TELL_EVERY: Final = 60.0  # seconds at least between two words on what the scope hides
LONGEST_TEXT: Final = 200  # characters that -g may have


@click.command(
    "logs",
    cls=Verb,
    help="Print lines of the journal: the caller's and the engine's own, or, with ID, those of one "
    "task. -f goes on with what comes, of a task until it has ended.",
)
@task_argument("id_", required=False, metavar="[ID]")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option(
    "-p",
    "--level",
    type=click.Choice(LEVELS),
    default="info",
    metavar="LEVEL",
    help="From this level on: debug, info (usual), notice, warning, error, critical, alert or "
    "emergency.",
)
@click.option("-a", "--all", "everybody", is_flag=True, help="Of all callers.")
@click.option("--scope", type=click.Choice(["caller", "all"]), help="all: as -a.")
@click.option("-c", "--caller", metavar="NAME", help="Of this caller alone.")
@click.option("-g", "--grep", metavar="TEXT", help="With this text, in any case.")
@click.option("-n", "--lines", metavar="N|all", help="The newest N (100; with -f 10).")
@click.option("--since", metavar="10m|TIME", help="All since then.")
@click.option("--after-seq", type=click.IntRange(min=0), metavar="N", help="All after this one.")
@click.option("--no-prefix", is_flag=True, help="The text alone.")
@click.option("--utc", is_flag=True, help="Times in UTC, also on a terminal.")
@click.pass_context
def logs_verb(ctx: click.Context, /, **options: Any) -> None:
    verb(_logs, ctx, **options)


def _logs(app: App, *, id_: str | None, follow: bool, **options: Any) -> int:
    asked, start = _params(app, options), _start(app, options)
    most = _most(options["lines"], follow=follow, has_start=bool(start))
    with Audience(app.console.out_fd) as audience:
        client = app.client(role="observer", wake=audience)
        if id_ is not None:
            row = _task(app, client, id_, follow)
            if not row.get("taskId"):
                app.console.say(f"{row['kickoffId']} has not started: no lines")
                return exits.DONE
            # Whoever names a task means its lines, whose ever it is.
            asked |= {"taskId": row["taskId"], "logScope": "all"}
        reader = Reader(app, client, asked, Printer(app, options))
        reader.read(start, most)
        if follow:
            reader.follow(row["taskId"] if id_ is not None else None)
    return exits.DONE


def _params(app: App, options: dict[str, Any]) -> dict[str, Any]:
    """Which lines, as params of `read_logs`."""
    caller, text = options["caller"], options["grep"]
    if caller is not None and not CALLER.fullmatch(caller):
        raise click.UsageError(f"-c {caller!r} is not 1 to 64 characters of a-z 0-9 _ -")
    if text is not None and not 1 <= len(text) <= LONGEST_TEXT:
        raise click.UsageError(f"-g takes 1 to {LONGEST_TEXT} characters")
    if options["everybody"] and options["scope"] == "caller":
        raise click.UsageError("-a and --scope caller exclude each other")
    return {
        "as": app.caller,
        "logs": options["level"],
        "logScope": "all" if options["everybody"] else options["scope"] or "caller",
        "caller": caller,
        "contains": text,
    }


def _start(app: App, options: dict[str, Any]) -> dict[str, Any]:
    """Where to begin, as a param of `read_logs`; none: at the newest lines."""
    from engine.cli.tasks import moment_of

    since, seq = options["since"], options["after_seq"]
    if since is not None and seq is not None:
        raise click.UsageError("--since and --after-seq exclude each other")
    if seq is not None:
        return {"after_seq": seq}
    moment = moment_of(since, app.console.now())
    if moment is None:
        return {}
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return {"since": text.replace("+00:00", "Z")}


def _most(given: str | None, *, follow: bool, has_start: bool) -> int | None:
    """How many lines to show of those that there are; None: all."""
    if given is None:
        return None if has_start else NEWEST_FIRST if follow else NEWEST
    if given == "all":
        return None
    if not (given.isascii() and given.isdigit()):
        raise click.UsageError(f"-n {given}: give a number or all")
    return int(given)


def _task(app: App, client: Any, given: str, follow: bool) -> dict[str, Any]:
    """The row of the task; with `follow` once the engine has reached it."""
    from engine.cli.handles import resolve, task_of
    from engine.cli.output import wait_reached
    from engine.client.errors import EXPIRED_HANDLE, Refused

    try:
        row = task_of(app, client, resolve(app, client, given))
    except Refused as exc:  # the lines of a task that was dropped are read by its id
        if exc.code != EXPIRED_HANDLE or not app.subject.startswith("t"):
            raise
        return {"taskId": app.subject}
    if follow and not row.get("taskId") and row["status"] not in exits.ENDED:
        row = wait_reached(app, client, row)
    return row


class Printer:
    """Writes lines to stdout, and what is to be said about others to stderr."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._floor = str(options["level"])
        self._zone = UTC if options["utc"] else None
        self._lines = LogLines(has_prefix=not options["no_prefix"])

    def page(self, entries: list[Entry], missing: int = 0) -> None:
        """Write lines, before them how many retention has dropped. Raises BrokenPipeError."""
        from engine.client.wire import to_json

        console = self._app.console
        if missing:
            self._aside(gone(missing, entries, replace(console.error_view(), zone=self._zone)))
        if not entries:
            return
        view = replace(console.view(), zone=self._zone)
        shown = map(to_json, entries) if self._app.json else self._lines.render(entries, view)
        console.line("\n".join(shown))

    def left_out(self, count: int) -> None:
        self._aside(left_out(count, self._floor, self._app.console.error_view()))

    def _aside(self, text: str) -> None:
        console = self._app.console
        if not console.quiet:
            console.raw_error(console.error_view().paint(text, "dim"))


class Reader:
    """The cursor in the journal: every line once, in order, whatever becomes of the connection."""

    def __init__(self, app: App, client: Any, asked: dict[str, Any], printer: Printer) -> None:
        self._app, self._client, self._asked, self._printer = app, client, asked, printer
        self._cursor = LogCursor(0)  # what is after it has not been shown
        self._left_out = 0  # lines that the scope hid, so far
        self._told = 0  # as many of them as were spoken of
        self._told_at: float | None = None

    def read(self, start: dict[str, Any], most: int | None) -> None:
        """Show what there is: from `start` on, or the newest; of that the newest `most`."""
        # The head of this moment: what is committed from now on is for `follow`.
        head = self._call(before_seq=1, limit=1)["latestSeq"]
        if start or most is None:
            kept: deque[Entry] = deque(maxlen=most)
            for page in self._forward(start, head):
                self._count(page)
                if most is None:
                    self._printer.page(page["lines"], page.get("gap", 0))
                else:
                    kept.extend(page["lines"])
            self._printer.page(list(kept))
        else:
            for lines in self._newest(head, most):
                self._printer.page(lines)
            self._cursor.take(head)
        self._tell_left_out()

    def _forward(self, start: dict[str, Any], head: int) -> Iterator[dict[str, Any]]:
        """Pages from `start`, or the cursor, to `head`; the cursor moves along."""
        place = self._cursor.params(0.0)
        if start:
            place = {**place, "after_seq": None, **start}
        while True:
            page = self._call(**place)
            self._cursor.take(page["nextAfterSeq"])
            yield page
            if not page["hasMore"] or self._cursor.after_seq >= head:
                return
            place = self._cursor.params(0.0)

    def _newest(self, head: int, most: int) -> list[list[Entry]]:
        """The newest `most` lines up to `head`, in pages, oldest first."""
        pages: list[list[Entry]] = []
        before, missing = head + 1, most
        while missing > 0:
            page = self._call(before_seq=before, limit=min(LINES, missing))
            self._count(page)
            lines = page["lines"]
            if lines:
                pages.append(lines)
                before, missing = lines[0]["seq"], missing - len(lines)
            if not lines or not page["hasMore"]:
                break
        return pages[::-1]

    def follow(self, task_id: str | None) -> None:
        """Show what comes; of a task, until it has ended and its lines are in."""
        reading = self._ask(LOGS_HOLD)
        waiting = self._wait(task_id) if task_id is not None else None
        is_over = False
        while True:
            got = self._client.next_answer(self._next_word())
            if got is None:
                self._tell_left_out()
                continue
            ticket, answer = got
            if answer.error is not None:
                raise answer.error
            if waiting is not None and ticket.id == waiting.id:
                is_over = _is_over(answer.result)
                waiting = None if is_over else self._wait(task_id)
                if is_over:  # what the held call would find is found by one that does not wait
                    reading = self._ask(0.0)
            elif ticket.id == reading.id:
                self._take(answer.result)
                if is_over and not answer.result["hasMore"]:
                    return
                reading = self._ask(0.0 if is_over else LOGS_HOLD)

    def _take(self, page: dict[str, Any]) -> None:
        self._cursor.take(page["nextAfterSeq"])
        self._printer.page(page["lines"], page.get("gap", 0))
        self._count(page)
        if self._next_word() is not None:
            self._tell_left_out()

    def _call(self, **place: Any) -> Any:
        return self._client.call("read_logs", {**self._asked, "peek": True, **place})

    def _ask(self, hold: float) -> Any:
        """Send for what is after the cursor; a new connection repeats the call as it is."""
        asked = {**self._asked, **self._cursor.params(hold)}
        return self._client.submit("read_logs", asked, budget=hold)

    def _wait(self, task_id: str | None) -> Any:
        params = {"as": self._app.caller, "taskId": task_id, "timeout_secs": HOLD}
        params |= {"logs": "none", "max_output_bytes": 0}
        return self._client.submit("wait", params, budget=HOLD)

    # What the scope hides.

    def _count(self, page: dict[str, Any]) -> None:
        self._left_out += page.get("leftOut") or 0

    def _next_word(self) -> float | None:
        """When to speak of what was left out; None where nothing new was."""
        if self._left_out == self._told:
            return None
        return 0.0 if self._told_at is None else self._told_at + TELL_EVERY

    def _tell_left_out(self) -> None:
        due, now = self._next_word(), self._app.console.clock()
        if due is None or now < due:
            return
        self._printer.left_out(self._left_out)
        self._told, self._told_at = self._left_out, now


def _is_over(reply: dict[str, Any]) -> bool:
    """Whether the task has ended and all its lines are in the journal."""
    return reply["status"] in exits.ENDED and not reply.get("logsBehind")
