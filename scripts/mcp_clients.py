"""Real handshakes of the newest agents with `engine mcp`: `make mcp-clients`.

Fetches Claude Code, Codex CLI, Gemini CLI and OpenCode from npm into a folder of the user's cache,
gives each an empty home with the configuration that engine/docs/mcp-clients.md has for it, and has
it connect. Says which version said what, whether its model is taken to read the structured content
(engine/mcp/render.py), and what could not be had. Exits 1 where a client did not connect.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.mcp.render import reads_structured
from scripts.benching import ENGINE
from scripts.mcp_snippets import snippet

LIMIT: Final = 120  # seconds for a client; the first start of some unpacks what they have
FETCH: Final = 600
NODE: Final = "node@24"
INFO: Final = "io.modelcontextprotocol/clientInfo"
VERSION: Final = "io.modelcontextprotocol/protocolVersion"


class NotHad(Exception):
    """A client could not be had here; the text says why."""


class Place(NamedTuple):
    """Where a client runs: it sees nothing of this user's home and environment."""

    program: Path
    home: Path
    env: dict[str, str]

    @property
    def project(self) -> Path:
        return self.home / "project"

    def write(self, client: str, file: str) -> None:
        """Put the page's configuration where it belongs."""
        path = self.home / file.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(snippet(client, file).text)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return done.stdout


def claude(place: Place) -> bool:
    for file in ("~/.claude/settings.json", "~/.claude/engine-caller.py"):
        place.write("Claude Code", file)
    place.run("mcp", "add", "--scope", "user", "engine", "--", "engine", "mcp")
    return "Connected" in place.run("mcp", "list")


def codex(place: Place) -> bool:
    """Its app server connects, lists the tools and calls one in a thread of its own."""
    place.write("Codex CLI", "~/.codex/config.toml")
    with AppServer(place) as server:
        server.ask("initialize", clientInfo={"name": "check", "version": "1"})
        server.send({"method": "initialized"})
        (status,) = server.ask("mcpServerStatus/list")["data"]
        thread = server.ask("thread/start")["thread"]["id"]
        call = {"threadId": thread, "server": "engine", "tool": "bash"}
        result = server.ask("mcpServer/tool/call", **call, arguments={"command": "echo hi"})
    facts = result["structuredContent"]
    print(f"    a call of its own: output {facts['output']!r}, caller {facts['as']}")
    return "bash" in status["tools"] and facts["output"] == "hi\n" and facts["as"] == thread


def gemini(place: Place) -> bool:
    place.write("Gemini CLI", "~/.gemini/settings.json")
    place.write("Gemini CLI", "~/.gemini/policies/engine.toml")
    place.env["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
    return "Connected" in place.run("mcp", "list")


def opencode(place: Place) -> bool:
    place.write("OpenCode", "~/.config/opencode/opencode.json")
    return "connected" in place.run("mcp", "list")


class Agent(NamedTuple):
    """`is_structured`: what its model sees of a result is the structured content."""

    name: str
    package: str
    program: str
    connect: Callable[[Place], bool]
    is_structured: bool


AGENTS: Final = (
    Agent("Claude Code", "@anthropic-ai/claude-code", "claude", claude, True),
    Agent("Codex CLI", "@openai/codex", "codex", codex, True),
    Agent("Gemini CLI", "@google/gemini-cli", "gemini", gemini, False),
    Agent("OpenCode", "opencode-ai", "opencode", opencode, False),
)
NOT_FROM_NPM: Final = ("Cursor", "VS Code")


class AppServer:
    """`codex app-server`: JSON lines on its stdin and stdout."""

    def __init__(self, place: Place) -> None:
        self._process = subprocess.Popen(
            [place.program, "app-server"],
            cwd=place.project,
            env=place.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._last_id = 0

    def __enter__(self) -> AppServer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.communicate(timeout=LIMIT)

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def ask(self, method: str, **params: Any) -> Any:
        """The result; notifications in between are passed over."""
        self._last_id += 1
        self.send({"id": self._last_id, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._last_id and "method" not in message:
                if "result" not in message:
                    raise ValueError(f"{method}: {message.get('error')}")
                return message["result"]
        raise ValueError(f"{method}: the app server ended")


def fetch(folder: Path, package: str) -> None:
    """Have the newest version of a package in `folder`. Raises NotHad."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotHad("there is no npm")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    command = [npm, "install", "--silent", "--no-audit", "--no-fund"]
    command += ["--prefix", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise NotHad(f"npm install {package}: exit {done.returncode} {' '.join(last)}")


@contextmanager
def place_of(agent: Agent, cache: Path) -> Iterator[tuple[Place, Path]]:
    """An empty home with `engine` on its PATH; what the client says to it is kept in a file."""
    with tempfile.TemporaryDirectory(prefix="engine-client-") as folder:
        home, said = Path(folder) / "home", Path(folder) / "said"
        bin_, engine_home = Path(folder) / "bin", Path(folder) / "engine"
        (home / "project").mkdir(parents=True)
        bin_.mkdir()
        wrapper = bin_ / "engine"
        wrapper.write_text(f'#!/bin/sh\ntee -a {said} | {ENGINE} --home {engine_home} "$@"\n')
        wrapper.chmod(0o755)
        path = f"{bin_}:{cache / 'node/node_modules/node/bin'}:{os.defpath}"
        program = cache / agent.program / "node_modules/.bin" / agent.program
        try:
            yield Place(program, home, {"HOME": str(home), "PATH": path}), said
        finally:
            stop = [str(ENGINE), "--home", str(engine_home), "--quiet", "stop", "--cancel"]
            subprocess.run(stop, check=False, stderr=subprocess.DEVNULL)


def introduction(said: Path) -> tuple[str, str, str]:
    """Name, version and revision that the client gave."""
    for line in said.read_text().splitlines():
        params = json.loads(line).get("params") or {}
        meta = params.get("_meta") or {}
        if info := params.get("clientInfo") or meta.get(INFO):
            return info["name"], info["version"], params.get("protocolVersion") or meta[VERSION]
    return "?", "?", "?"


def check(agent: Agent, cache: Path) -> str | None:
    """Have one connect, and show it; None, or what is wrong. Raises NotHad."""
    fetch(cache / agent.program, f"{agent.package}@latest")
    with place_of(agent, cache) as (place, said):
        version = (place.run("--version").strip().splitlines() or ["?"])[-1]
        print(f"{agent.name}: {version}", flush=True)
        if not agent.connect(place):
            return f"{agent.name} did not connect"
        name, its_version, revision = introduction(said)
        structured = reads_structured(name)
        reads = "structured content" if structured else "content"
        print(f"    connected as {name} {its_version}, first with {revision}; reads {reads}")
        return None if structured == agent.is_structured else f"{name} is taken to read {reads}"


def main() -> int:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(home) / "engine/mcp-clients"
    wrong = []
    try:
        fetch(cache / "node", NODE)
    except NotHad as exc:
        print(f"Node could not be had: {exc}")
        return 1
    for agent in AGENTS:
        try:
            trouble = check(agent, cache)
        except (NotHad, OSError, ValueError, subprocess.TimeoutExpired) as exc:
            trouble = f"{agent.name}: {exc}"
        if trouble is not None:
            print(f"    NOT MET: {trouble}")
            wrong.append(trouble)
    for name in NOT_FROM_NPM:
        print(f"{name}: not on npm, so not run here; only its configuration's form is tested")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
