"""The connections of the soak: they break, and are opened again.

Every one is read by a thread of its own; a call waits for its reply in the thread that made it.
`LinkLost` means that nobody knows whether the engine had the call.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, Final

from acceptance.running import Client, Engine, RpcError
from websockets.exceptions import ConnectionClosed

from scripts.soak_jobs import Json

NICE: Final = 5  # of the clients: the engine and its jobs go first
OVER_SECS: Final = 30.0  # that a reply may take beyond what its call may wait
UP_SECS: Final = 60.0  # that an engine may be away


class LinkLost(Exception):
    """The connection ended before the reply came."""


class NotAnswered(Exception):
    """There is a connection and no reply, long after it was due."""


class Line:
    """A connection that is opened again and again, for any number of threads."""

    def __init__(self, name: str, *, is_tcp: bool) -> None:
        self.name, self.is_tcp = name, is_tcp
        self.is_deaf = False  # what comes is lost, until it is opened again
        self._client: Client | None = None
        self._lock = threading.Lock()  # a reply may come before its call is noted
        self._pending: dict[Any, Future[Json]] = {}
        self._up = threading.Event()
        self._reader: threading.Thread | None = None

    def open(self, engine: Engine) -> None:
        """Connect to an engine that is ready, and let those who wait for it go on."""
        client = self._client = engine.connect(tcp=self.is_tcp)
        self.is_deaf = False
        self._reader = threading.Thread(target=self._read, args=[client], daemon=True)
        self._reader.start()
        self._up.set()

    def hold(self) -> None:
        """Send nothing more on this connection."""
        with self._lock:
            self._up.clear()

    def part(self) -> None:
        """Hang up once all that the engine has written is read.

        For a connection on which calls of one caller run side by side: the second acknowledges
        what the first was answered, whether or not somebody has read that.
        """
        self.hold()
        if self._client is not None and self._reader is not None:
            with contextlib.suppress(OSError):
                self._client.websocket.socket.shutdown(socket.SHUT_WR)
            self._reader.join(OVER_SECS)
        self.drop()

    def drop(self) -> None:
        """Vanish, without a closing handshake; whoever waits for a reply has lost it."""
        if self._client is not None and self._reader is not None:
            with contextlib.suppress(OSError):  # the engine may be dead already
                self._client.drop()
            self._reader.join(OVER_SECS)  # it tells them
            self._client = None

    def wait_up(self) -> None:
        if not self._up.wait(UP_SECS):
            raise NotAnswered(f"no engine for {UP_SECS} s")

    def _read(self, client: Client) -> None:
        os.nice(NICE)
        try:
            while True:
                try:
                    message = client.receive()
                except TimeoutError:
                    continue
                if self.is_deaf:
                    continue
                with self._lock:
                    future = self._pending.pop(message["id"], None)
                if future is not None:
                    future.set_result(message)
        except ConnectionClosed:
            self._up.clear()
            with self._lock:
                lost, self._pending = list(self._pending.values()), {}
            for future in lost:
                future.set_exception(LinkLost())

    def send(self, method: str, params: Json) -> Future[Json]:
        """Send a call; its response comes, or LinkLost."""
        future: Future[Json] = Future()
        try:
            with self._lock:
                if self._client is None or not self._up.is_set():
                    raise LinkLost
                self._pending[self._client.send(method, params).id] = future
        except (ConnectionClosed, LinkLost):
            future.set_exception(LinkLost())
        return future

    def call(self, method: str, **params: Any) -> Json:
        """The result. Raises LinkLost, NotAnswered, RpcError."""
        params = {name.removesuffix("_"): value for name, value in params.items()}
        return result_of(self.send(method, params), params.get("timeout_secs", 0))

    def insist(self, method: str, **params: Any) -> Json:
        """The result of a call that may be made twice, over any number of kills."""
        while True:
            self.wait_up()
            try:
                return self.call(method, **params)
            except LinkLost:
                continue


def result_of(future: Future[Json], waits_secs: float) -> Json:
    """The result of a call that may wait so long. Raises LinkLost, NotAnswered, RpcError."""
    try:
        message = future.result(waits_secs + OVER_SECS)
    except NotInTime as exc:
        raise NotAnswered(f"no reply within {waits_secs + OVER_SECS} s") from exc
    if "error" in message:
        raise RpcError(message["error"])
    result: Json = message["result"]
    return result
