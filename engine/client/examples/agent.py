"""Two agents on one connection: a quick call, a long one that is promoted, and a refusal.

What an agent's author writes is `use_shell`: the tool that a model calls. It answers within
`BUDGET` seconds whatever the command does, and never loses what it began.
"""

from __future__ import annotations

from typing import Final

import trio

from engine import errors
from engine.client import Engine, connect
from engine.protocol.results import Finished, Kickoff, Running

BUDGET: Final = 0.5  # seconds that a model is kept waiting; up to 20


async def use_shell(engine: Engine, agent: str, command: str) -> str:
    """Run the command in the agent's own shell session; what to tell its model."""
    try:
        return tell(await engine.bash(command, as_=agent, timeout_secs=BUDGET))
    except errors.EngineError as exc:  # its fault, in words that it can use
        return f"refused ({exc.kind}): {exc}"


async def look_again(engine: Engine, agent: str, task_id: str) -> str:
    """How the promoted task stands, within 20 seconds."""
    return tell(await engine.wait(task_id=task_id, as_=agent))


def tell(reply: Finished | Running | Kickoff) -> str:
    """A reply as a model reads it."""
    match reply:
        case Finished():
            return f"{reply.status} (exit {reply.exit_code}): {(reply.output or '').strip()}"
        case Running():
            return f"still running as {reply.task_id}; so far: {(reply.output or '').strip()}"
        case Kickoff():
            return f"waits as {reply.kickoff_id}: {reply.queue_reason}"


async def write_docs(engine: Engine) -> None:
    print("docs:", await use_shell(engine, "docs", "cd /tmp && export TITLE=Guide; pwd"))
    print("docs:", await use_shell(engine, "docs", 'echo "$PWD: $TITLE"'))  # the session is kept


async def build(engine: Engine) -> None:
    print("build:", await use_shell(engine, "build", "echo compiling; sleep 1; echo linked"))
    (task,) = (await engine.list_tasks(state=["running"], as_="build")).tasks
    print("build:", await look_again(engine, "build", task.task_id))
    print("build:", await use_shell(engine, "build", ""))


async def main() -> None:
    """Both at the same time."""
    async with connect() as engine, trio.open_nursery() as nursery:
        nursery.start_soon(write_docs, engine)
        nursery.start_soon(build, engine)


if __name__ == "__main__":
    trio.run(main)
