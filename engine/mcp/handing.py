"""The engine's side of MCP: a helper process with the SDK, to which connections are handed on.

The helper is started when first somebody speaks MCP, and again at the next connection after it
has ended; it ends with the engine. The front door has checked each connection; its descriptor is
passed on and closed here, so that the bytes of a conversation cost the engine nothing. What the
helper wants of the engine it asks as any client does.
"""

from __future__ import annotations

import array
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

import engine
from engine.mcp.control import (
    PACKET_MAX_BYTES,
    Client,
    Closed,
    Note,
    Setup,
    decode_to_engine,
    encode,
)

END_SECS: Final = 2.0  # for a helper whose engine ends: to write the answers that it has
NEEDED: Final = ("mcp", "hypercorn")
ROOT: Final = str(Path(engine.__file__).parent.parent)
# Nothing of what modules make while they load is garbage: the collector comes later.
_START: Final = (
    "import gc, sys; gc.disable(); sys.path.insert(0, sys.argv.pop(1));"
    " from engine.mcp.helper import main; main()"
)

log = structlog.stdlib.get_logger("engine.mcp")


class HelperGone(Exception):
    """There is no helper to hand a connection to. The text is for the client."""


def missing() -> str | None:
    """What has to be installed for MCP, in words; None: it is there. Imports nothing."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return f"MCP is not installed here ({', '.join(absent)}): pip install 'engine[mcp]'"


class Helper:
    """The helper process, while there is one, and the connections that it has."""

    def __init__(self, setup: Setup, environ: Mapping[str, str], log_file: Path) -> None:
        self._setup = setup
        self._env = {k: v for k, v in environ.items() if not k.startswith("ENGINE_")}
        self._log_file = log_file
        self._wanted = trio.Event()
        self._began = trio.Event()  # an attempt to start it is over
        self._trouble = "the MCP helper has not been started"
        self._control: trio.socket.SocketType | None = None
        self._sending = trio.Lock()
        self._clients: dict[int, trio.Event] = {}
        self._last_id = 0

    async def serve(self) -> None:
        """Have a helper run from the first that is wanted on. Cancelling ends it in order."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            try:
                await self._run()
            except OSError as exc:
                self._trouble = f"the MCP helper could not be started: {exc.strerror}"
                log.error("mcp_helper_not_started", reason=exc.strerror)
                self._tell_waiters()

    async def hand_over(self, stream: trio.SocketStream, seen: bytes, port: int | None) -> None:
        """Give a client to the helper, and come back when its connection has ended.

        Raises `HelperGone`, the client being still ours, where there is none.
        """
        control = await self._ready()
        self._last_id += 1
        id_, over = self._last_id, trio.Event()
        packet = encode(Client(id=id_, seen=seen, port=port))
        descriptor = array.array("i", [stream.socket.fileno()])
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)
        self._clients[id_] = over
        try:
            async with self._sending:
                await control.sendmsg([packet], [rights])
            stream.socket.close()  # ours alone: the other one is the helper's
            await over.wait()
        except (OSError, trio.ClosedResourceError) as exc:
            raise HelperGone("the MCP helper ended; connect again") from exc
        finally:
            self._clients.pop(id_, None)

    def _tell_waiters(self) -> None:
        """Have those who wait for the helper look whether there is one; later ones wait anew."""
        began, self._began = self._began, trio.Event()
        began.set()

    async def _ready(self) -> trio.socket.SocketType:
        if self._control is None:
            self._wanted.set()
            await self._began.wait()
        if self._control is None:
            raise HelperGone(self._trouble)
        return self._control

    async def _run(self) -> None:
        """Start a helper and listen to it until it ends. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            process = await self._start(theirs)
            theirs.close()
            control = trio.socket.from_stdlib_socket(ours)
            try:
                await control.send(encode(self._setup))
                self._control = control
                log.info("mcp_helper_started", pid=process.pid)
                self._tell_waiters()
                await self._listen(control)
            finally:
                self._control = None
                self._tell_waiters()
                for over in self._clients.values():
                    over.set()
                control.close()
                await _end(process)
        log.warning("mcp_helper_ended", pid=process.pid, exitCode=process.returncode)

    async def _start(self, theirs: socket.socket) -> trio.Process:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log_fd = os.open(self._log_file, flags, 0o600)
        try:
            return await trio.lowlevel.open_process(
                [sys.executable, "-c", _START, ROOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                env=self._env,
                cwd="/",
                start_new_session=True,  # a Ctrl-C is for the engine, which ends it in order
                pass_fds=[theirs.fileno()],
            )
        finally:
            os.close(log_fd)

    async def _listen(self, control: trio.socket.SocketType) -> None:
        """Take what the helper says, until it ends."""
        while True:
            try:
                packet = await control.recv(PACKET_MAX_BYTES)
            except ConnectionResetError:  # it ended with packets unread
                return
            if not packet:
                return
            try:
                said = decode_to_engine(packet)
            except msgspec.DecodeError as exc:  # it is not to be relied on
                log.error("mcp_helper_misspoke", reason=str(exc))
                return
            if isinstance(said, Closed):
                if (over := self._clients.get(said.id)) is not None:
                    over.set()
            else:
                _pass_on(said)


def _pass_on(note: Note) -> None:
    """Write the helper's line into the engine's log."""
    write = {"error": log.error, "warning": log.warning, "info": log.info}.get(
        note.level, log.debug
    )
    write(note.event, **note.facts)


async def _end(process: trio.Process) -> None:
    """Wait until the helper, whose control socket is closed, has ended; kill one that does not."""
    with trio.move_on_after(END_SECS, shield=True):
        await process.wait()
    if process.returncode is None:
        process.kill()
        with trio.CancelScope(shield=True):  # bounded by the kernel: nobody survives a KILL
            await process.wait()
