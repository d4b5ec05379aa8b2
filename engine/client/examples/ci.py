"""A CI script: the build in the background under a key, meanwhile the linter; exits as the build.

The script may be killed and run again: with the key it finds the build that it had begun. The
engine may be killed, too.
"""

from __future__ import annotations

import os
import sys

from engine.client.sync import Engine, connect


def start_build(engine: Engine, revision: str, command: str) -> None:
    """Start the build, or find the one of this revision."""
    engine.bash(command, session=False, timeout_secs=0, key=f"build-{revision}")


def finish_build(engine: Engine, revision: str, command: str) -> int:
    """Wait for the build, however long, and return its exit code; its output goes to ours."""
    result = engine.run(command, key=f"build-{revision}", on_output=write)
    print(f"build {result.status} after {result.duration_ms} ms")
    for line in result.logs:
        print(f"{line.level}: {line.text}")
    return 1 if result.exit_code is None else result.exit_code


def write(data: bytes) -> None:
    """The job's bytes as they are."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def main() -> int:
    """0 where both the linter and the build succeeded."""
    revision = os.environ.get("GITHUB_SHA", "local")
    build, lint = sys.argv[1:3]
    with connect(as_="ci") as engine:
        start_build(engine, revision, build)
        checked = engine.run(lint)
        print(f"lint {checked.status}: {(checked.output or '').strip()}", flush=True)
        built = finish_build(engine, revision, build)
    return built or checked.exit_code or 0


if __name__ == "__main__":
    sys.exit(main())
