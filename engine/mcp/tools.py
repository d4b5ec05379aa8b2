"""The tools: a table of the RPC's methods as an agent is offered them.

Names, params and their meanings are the RPC's; what stands here is what a model needs besides:
when to use a tool, what to call next, how long it waits where nobody says, and how much it shows.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

BUDGET_SECS: Final = 20.0  # of bash, execute and wait, as on the wire
MANY_SECS: Final = 50.0  # of the long waits: clients give up at 60
OUTPUT_BYTES: Final = 16_384  # of output in a result: some 5,000 tokens
PAGE_ROWS: Final = 25
PAGE_LINES: Final = 50
DESCRIPTION_MAX: Final = 1_500  # characters


class Hints(NamedTuple):
    """The annotations of MCP: what a client may assume before it asks its user."""

    is_read_only: bool = False
    is_destructive: bool = False
    is_idempotent: bool = False
    is_open_world: bool = False


class Tool(NamedTuple):
    """One row. `waits`: the params that say how long, and what holds where none is given.

    `defaults`: of params that are other than the wire's.
    """

    title: str
    description: str
    hints: Hints
    waits: tuple[str, ...] = ()
    wait_secs: float = 0.0
    defaults: dict[str, Any] = {}  # noqa: RUF012  # a row of a constant table


_LOOKS: Final = Hints(is_read_only=True, is_idempotent=True)
_RUNS: Final = Hints(is_destructive=True, is_open_world=True)

TOOLS: Final[dict[str, Tool]] = {
    "bash": Tool(
        "Run a shell command",
        "Runs bash text in your own shell session: directory, variables and functions carry over"
        " from call to call. A command that ends within timeout_secs (20 at most) comes back"
        " with its output and exit code. One that takes longer is not stopped: it goes on in the"
        " background, and you get a taskId. Then work on something else, and call wait with that"
        " taskId, or wait_any without arguments for whichever of your tasks ends first. Use"
        " timeout_secs 0 to start a server or a long build in the background at once."
        " deadline_secs ends the job itself. Do not append & or nohup. Long output is cut in the"
        " middle; read_output has all of it. session: false runs in a fresh shell. Give key to"
        " make a repeated call safe.",
        _RUNS,
        ("timeout_secs",),
        BUDGET_SECS,
        {"max_output_bytes": OUTPUT_BYTES},
    ),
    "execute": Tool(
        "Run a program or Python",
        "Runs an argument list without a shell (argv), or Python text in your own interpreter"
        " (code), whose names and imports live on from call to call; the value of a last"
        " expression comes back as value. Exactly one of the two. Otherwise as bash: what takes"
        " longer than timeout_secs goes on in the background under a taskId; then call wait or"
        " wait_any. Use argv where text must not be seen by a shell.",
        _RUNS,
        ("timeout_secs",),
        BUDGET_SECS,
        {"max_output_bytes": OUTPUT_BYTES},
    ),
    "wait": Tool(
        "Wait for one task",
        "Waits up to timeout_secs (20 at most) for one task, by the taskId or kickoffId that a"
        " call gave you, and returns its result; where it still runs, how it stands and what its"
        " output has grown by. Call it again until the status is not running. For several tasks,"
        " or for minutes, use wait_any instead. Asking again for an ended task is fine.",
        Hints(is_idempotent=True),
        ("timeout_secs",),
        BUDGET_SECS,
        {"max_output_bytes": OUTPUT_BYTES},
    ),
    "wait_any": Tool(
        "Wait for the first of many",
        "Waits for whichever of your tasks and rounds has news first, and returns all that have:"
        " ended, blocked on input, ready. Without ids it is your inbox: everything you started"
        " whose end you have not received yet. Each end is delivered once. pending_ids are those"
        " still to come: call again until all_finished is true. Waits 50 seconds unless"
        " wait_seconds says otherwise (your client may give up after 60). reason wait_elapsed is"
        " no error: call it again, or do something else meanwhile.",
        Hints(is_idempotent=True),
        ("wait_seconds", "timeout_secs"),
        MANY_SECS,
    ),
    "cancel": Tool(
        "Stop a task",
        "Ends every process of a task (taskId), takes a call that waits off the queue"
        " (kickoffId), or ends all that a caller has (caller). Asks them to end, kills what is"
        " left after grace_secs (5), and returns when they are gone. Cancelling a tool call only"
        " ends the waiting: this is what ends the job. Another caller's task needs force: true.",
        Hints(is_destructive=True, is_idempotent=True),
    ),
    "write_stdin": Tool(
        "Type into a job",
        'Feeds a running job that was started with stdin: "open" or pty: true. Give text (with'
        " its newline) or base64; eof: true ends the input. Then call wait or read_output to see"
        " what it answers. wait_any tells you of a job that is blocked on input, with its prompt.",
        Hints(is_destructive=True, is_open_world=True),
    ),
    "read_output": Tool(
        "Read a task's output",
        "A page of a task's output from any byte offset: negative counts from the end. Use it"
        " where a result says that something was left out, or to look at a running job. The next"
        " page begins at nextOffset; eof is true when nothing more comes. With timeout_secs it"
        " waits for the next output, which is how a running job is followed.",
        _LOOKS,
        ("timeout_secs",),
        0.0,
        {"limit_bytes": OUTPUT_BYTES},
    ),
    "list_tasks": Tool(
        "List tasks",
        'Your tasks, newest first, with status and exit code; caller: "*" for everybody\'s. Use'
        " it when you have lost a taskId, or to see what runs. state filters, for example"
        ' ["running", "queued"]. The next page is had by before.',
        _LOOKS,
        ("timeout_secs",),
        0.0,
        {"limit": PAGE_ROWS},
    ),
    "read_logs": Tool(
        "Read log lines",
        "Lines of all jobs' output and of the engine's own log, each with its severity, since"
        " you last read; each call goes on where the one before ended. logs is the least severity"
        ' (default info); taskId, contains and caller filter; logScope: "all" for everybody\'s'
        " lines. peek: true leaves your position alone. With timeout_secs it waits for a line,"
        " wake_on says of which level. For one task's raw output use read_output.",
        Hints(),
        ("timeout_secs",),
        0.0,
        {"limit": PAGE_LINES},
    ),
    "run_round": Tool(
        "Run several side by side",
        "Starts up to 256 jobs together under one roundId. seats maps a name of your choice"
        ' (letters, digits, - and _) to the arguments of bash or execute, as {"lint":'
        ' {"command": "make lint"}, "test": {"command": "make test"}}. Then call wait_any: it'
        " returns when the round has ended, with all answers, or early when a seat has failed."
        " roundId with retry_seats runs failed seats again.",
        _RUNS,
    ),
    "reset_session": Tool(
        "Start a session afresh",
        "Has your next bash call start in a new shell (kind bash), or your next code in a new"
        " interpreter (kind python): variables and directory, or names and imports, are gone."
        " Running jobs are not touched.",
        Hints(is_destructive=True, is_idempotent=True),
    ),
    "roster": Tool(
        "Who works here",
        "The callers that share this engine: what each has running and queued, how much of its"
        " work ended or failed in the last hour, and when it was last seen.",
        _LOOKS,
    ),
}

INSTRUCTIONS: Final = """\
Runs commands for you, also long ones: nothing has to end before your call does.
- bash (or execute) returns the result of a short command at once. A long one goes on in the \
background: you get a taskId. Go on with other work meanwhile.
- wait takes one taskId. wait_any without arguments waits for whatever of yours ends first: call \
it when you have nothing else to do, again and again until all_finished is true. reason \
wait_elapsed or status running is no failure.
- run_round starts several jobs at once; wait_any collects them.
- cancel ends a job. Giving up a call ends only the waiting: the job runs on, and list_tasks \
finds it again.
- Each result shows the warnings and errors of your jobs' output as log lines; read_logs has the \
rest.
- Your shell session keeps directory and variables between calls.
- Sub-agents that run in parallel share this connection: each must pass its own name as "as" \
(a-z 0-9 _ -, for example "as": "tester") in every call. Then each has a shell, a log and an \
inbox of its own. Without it they are one caller and take each other's results.
- Jobs run on when you disconnect, and when the engine restarts; so do their handles."""
