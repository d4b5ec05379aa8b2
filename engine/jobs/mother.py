"""The fork server of keepers as a child process of the engine: see `engine.keeper.mother`."""

from __future__ import annotations

import array
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog

from engine.jobs.executor import LaunchRefused
from engine.keeper import mother

KEPT_DESCRIPTORS: Final = 48  # that jobs do not get
_END_SECS: Final = 5  # for a mother told to end

log = structlog.get_logger()


class Mother:
    """The fork server as a child process of the engine."""

    def __init__(self, sockets: Path, log_file: Path) -> None:
        self._sockets, self._log_file = sockets, log_file
        # Jobs get the limit that the user had, whatever the engine has raised for itself.
        self.nofile, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log_fd = -1
        try:
            log_fd = os.open(self._log_file, flags, 0o600)
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", mother.__file__),
                    *(str(theirs.fileno()), str(self._sockets), str(self.nofile)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                env={},
                pass_fds=[theirs.fileno()],
            )
        except OSError:
            ours.close()
            raise
        finally:
            if log_fd >= 0:
                os.close(log_fd)
            theirs.close()
        ours.setblocking(False)
        self._socket = ours

    def bear(self, kind: bytes = b"k") -> socket.socket:
        """The control link of a new keeper, at once: the keeper follows. Raises LaunchRefused.

        `kind`: see `mother`. Raises OSError, also where the last descriptors are reached: to answer
        calls, to say so, and to cancel takes some too.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and theirs.fileno() >= soft - KEPT_DESCRIPTORS:
            ours.close()
            theirs.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        with theirs:
            try:
                self._ask_for_keeper(theirs, kind)
            except BaseException:
                ours.close()
                raise
        return ours

    def _ask_for_keeper(self, control: socket.socket, kind: bytes) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [control.fileno()]))
        self._process.send_signal(signal.SIGCONT)  # somebody may have stopped it
        try:
            self._socket.sendmsg([kind], [rights])
        except BlockingIOError as exc:
            raise LaunchRefused("the mother of keepers does not answer") from exc
        except OSError:
            log.error("mother_died", status=self._process.poll())
            self._end()
            try:
                self._start()
                self._socket.sendmsg([kind], [rights])
            except OSError as exc:
                raise LaunchRefused(f"the mother of keepers does not start: {exc}") from exc

    def _end(self) -> None:
        self._socket.close()
        self._process.send_signal(signal.SIGCONT)
        if not self._has_ended_within(_END_SECS):
            self._process.kill()
        self._process.wait()

    def _has_ended_within(self, limit_secs: float) -> bool:
        try:
            fd = os.pidfd_open(self._process.pid)
        except OSError:  # gone; or no descriptor to wait with, and then it has no time
            return False
        try:
            poll = select.poll()  # its number may be over what select takes
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(limit_secs * 1000))
        finally:
            os.close(fd)

    def close(self) -> None:
        """End mother; keepers with a job stay."""
        self._end()
