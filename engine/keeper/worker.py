"""The program that a caller's interpreter runs: one call of Python code after another.

Runs under any python3 from 3.8 on, as text handed in by descriptor, with the caller's environment
and modules; it imports nothing of ours and is itself no module that code could import. `__main__`
belongs to the caller. Standard library only, and little of it. The text has parts, each a file
beside this one (see `interpreter`), that share one namespace; this part is the last.

Descriptor 4 is this text, 3 a stream socket to the keeper. A call comes as one byte with
descriptors: [request] [code] [stdin] [stdout] and, for split streams, [stderr]; `request` is a
file that holds the JSON of {call, cwd, env, once}. Words to the keeper are lines of JSON:
  hello     {version, executable, pid}
  began     {call, cwd, missing, cpu}: an interrupt reaches the code from here on; `missing`: the
            session's directory, where that is gone
  done      {call, exitCode, value, error, cpu, held}; `held`: threads of the call live on
  result    the same of a call with `once`, which ends when the interpreter does: it is about to
  failed    {call, errno, what}: the call's directory cannot be entered
  released  {call}: the last of these threads has ended
When the keeper closes the socket, the interpreter ends as at the end of a script.

Code and worker share one process, so no line is drawn between them that determined code could not
cross; what is ruled out is crossing it by accident (children, `fork`, closed or moved streams,
functions of the library and of `builtins` that code replaces).
"""

from __future__ import annotations

import _socket
import atexit
import builtins
import fcntl
import json
import os
import signal
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from engine.keeper.worker_code import Code, describe
    from engine.keeper.worker_streams import Streams
    from engine.keeper.worker_threads import Call, Lines, Threads

SOCKET_FD = 3  # where the keeper puts our end
TEXT_FD = 4  # this text
PRIVATE_FD = 200  # the lowest number it may move to: code that counts descriptors begins at 3


class Surroundings:
    """Directory and variables that hold for one call alone, and what they were before."""

    def __init__(self) -> None:
        self._last = os.path.expanduser("~")  # the directory that was there when we last looked
        self._back: str | None = None
        self._was: dict[str, str | None] = {}

    def enter(self, call: Call) -> tuple[str, str | None]:
        """Set them; the working directory, and the one that is gone in whose place it is.

        Raises OSError if the call's cannot be entered.
        """
        here, missing = self._existing()
        if call.cwd is not None:
            os.chdir(call.cwd)
            self._back, here, missing = here, os.getcwd(), None
        self._was = {name: os.environ.get(name) for name in call.env}
        os.environ.update(call.env)
        return here, missing

    def _existing(self) -> tuple[str, str | None]:
        """The working directory, or where it has been removed its nearest parent, and it."""
        missing = None
        try:
            self._last = os.getcwd()
        except OSError:
            missing = self._last
            while not self._is_entered():
                self._last = self._last.rpartition("/")[0] or "/"
        return self._last, missing

    def _is_entered(self) -> bool:
        try:
            os.chdir(self._last)
        except OSError:
            return False
        return True

    def leave(self) -> None:
        for name, value in self._was.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        back, self._was, self._back = self._back, {}, None
        if back is not None:
            try:
                os.chdir(back)
            except OSError:
                self._last = back  # gone: the next call begins in its nearest parent
                return
        try:
            self._last = os.getcwd()
        except OSError:
            return  # gone: see `_existing`


class Interrupts:
    """SIGINT: the code's while a call runs, nobody's between calls."""

    def __init__(self) -> None:
        self._handler: Any = signal.getsignal(signal.SIGINT)
        self._is_late = False
        self.refuse()

    def allow(self) -> None:
        # What code sets stays set; asyncio looks for the default handler itself.
        signal.signal(signal.SIGINT, self._handler)

    def refuse(self) -> None:
        """Keep the handler for the next call; whatever interrupts this comes too late."""
        self._is_late = False
        while True:
            try:
                handler = signal.getsignal(signal.SIGINT)
                if handler is not None and handler != self._ignore:
                    self._handler = handler
                signal.signal(signal.SIGINT, self._ignore)
                return
            except KeyboardInterrupt:
                self._is_late = True

    def allow_end(self) -> None:
        """Let them reach the end of the interpreter, one that has come since `refuse` too."""
        self.allow()
        if self._is_late:
            os.kill(os.getpid(), signal.SIGINT)

    def _ignore(self, _number: int, _frame: Any) -> None:
        self._is_late = True  # a handler and not SIG_IGN, which children would inherit


class Worker:
    """The loop. Everything of a call but its threads happens in the main thread."""

    def __init__(self, fd: int) -> None:
        moved = move_up(fd)
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, moved)
        self._pid = os.getpid()
        fcntl.fcntl(moved, fcntl.F_SETOWN, self._pid)
        fcntl.fcntl(moved, fcntl.F_SETSIG, signal.SIGKILL)
        os.register_at_fork(after_in_child=self._on_forked)
        self._lines = Lines()
        self._threads = Threads(self._lines.flush_thread, self._on_released)
        self._lines.threads = self._threads
        atexit.register(self._lines.stop_holding_back)  # the first, hence the last to be called
        self._streams = Streams(self._lines)
        self._surroundings = Surroundings()
        self._interrupts = Interrupts()
        self._code = Code(self._streams)

    def _on_forked(self) -> None:
        self._socket.close()
        self._threads.forget_others()
        self._lines.forget_all()

    def run(self) -> int:
        """Serve calls until the keeper closes the socket or one has `once`; the exit code."""
        self._streams.disconnect(None)
        version = ".".join(str(part) for part in sys.version_info[:3])
        self._tell("hello", version=version, executable=sys.executable, pid=self._pid)
        while True:
            fds = self._receive()
            if fds is None:
                return 0
            code = self._serve(Call(fds))
            if code is not None:
                return code

    def _receive(self) -> list[int] | None:
        """The descriptors of the next call, all of them close-on-exec; None: there is none."""
        data, ancillary, _flags, _address = self._socket.recvmsg(
            1, _socket.CMSG_SPACE(5 * 4), _socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            return None
        payload = ancillary[0][2]
        return [
            int.from_bytes(payload[i : i + 4], sys.byteorder) for i in range(0, len(payload), 4)
        ]

    def _die_with_keeper(self, *, wanted: bool) -> None:
        """Have the kernel kill this process when the keeper dies: its code would be nobody's.

        Between calls that end is heard, and is no reason to skip what `atexit` has to do.
        """
        # The signal comes with anything at all from the keeper: in a call it says nothing.
        flags = os.O_RDWR | (os.O_ASYNC if wanted else 0)
        fcntl.fcntl(self._socket.fileno(), fcntl.F_SETFL, flags)

    def _tell(self, word: str, **facts: Any) -> None:
        facts["ev"] = word
        with self._threads.lock:
            self._socket.sendall(json.dumps(facts).encode() + b"\n")

    def _on_released(self, call: Call) -> None:
        if self._threads.running is None:
            self._streams.disconnect(self._threads.latest)
        call.close()
        try:
            self._tell("released", call=call.name)
        except OSError:
            return  # the keeper is gone, as the main thread hears too

    # -- one call ------------------------------------------------------------------------------

    def _serve(self, call: Call) -> int | None:
        """Run it; the exit code if the interpreter is to end now."""
        try:
            cwd, missing = self._surroundings.enter(call)
        except OSError as exc:
            call.close()
            self._tell("failed", call=call.name, errno=exc.errno, what="cwd " + str(call.cwd))
            return None
        with self._threads.lock:
            self._lines.flush_all()  # what was written since the last call
            self._streams.connect(call)
            self._threads.running = call
        self._die_with_keeper(wanted=True)
        outcome = self._perform(call, cwd, missing)
        if call.is_once:
            return self._leave(call, outcome)
        if os.getpid() != self._pid:  # code has forked, and this is the child
            self._lines.flush_all()
            os._exit(outcome["exitCode"])
        self._surroundings.leave()
        with self._threads.lock:
            self._lines.flush_all()
            held = self._threads.end(call)
            self._streams.disconnect(self._threads.latest)
            self._die_with_keeper(wanted=False)
            if not held:
                call.close()
            self._tell("done", call=call.name, cpu=_cpu(), held=held, **outcome)
        return None

    def _leave(self, call: Call, outcome: dict[str, Any]) -> int:
        """Say what came of the one call, and have the interpreter end as that of a script does."""
        if os.getpid() == self._pid:
            self._tell("result", call=call.name, cpu=_cpu(), held=False, **outcome)
        self._interrupts.allow_end()
        code: int = outcome["exitCode"]
        return code

    def _perform(self, call: Call, cwd: str, missing: str | None) -> dict[str, Any]:
        """Run the code: its exit code, its value or its error."""
        outcome: dict[str, Any] = {"exitCode": 0, "value": None, "error": None}
        try:
            try:
                self._interrupts.allow()
                self._tell("began", call=call.name, cwd=cwd, missing=missing, cpu=_cpu())
                outcome["value"] = self._code.evaluate(call)
            except SystemExit as exc:
                outcome["exitCode"] = self._code.exit_code(exc)
            except BaseException as exc:
                outcome.update(exitCode=1, error=describe(exc))
                self._code.show(exc)
            self._streams.flush()
        except BaseException as exc:  # interrupted while it was shown or flushed
            outcome.update(exitCode=1, error=outcome["error"] or describe(exc))
        finally:
            self._interrupts.refuse()
        return outcome


def move_up(fd: int) -> int:
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FD)
    except OSError:  # a limit of fewer descriptors
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, fd)
    os.close(fd)
    return moved


def _cpu() -> float:
    """Seconds of processor time of the interpreter and of the children it has waited for."""
    return sum(os.times()[:4])


def keep_modules() -> None:
    """Have our names for modules lead to copies: what code replaces in one is replaced for code.

    `builtins` are a copy from the start, see `interpreter`; `sys` is shared for its data.
    """
    space = globals()
    for name, found in list(space.items()):
        if isinstance(found, types.ModuleType) and found not in (sys, builtins):
            space[name] = kept = types.ModuleType(name)
            kept.__dict__.update(found.__dict__)


def main() -> int:
    """Be the interpreter of a session until the keeper lets it go; the exit code."""
    os.close(TEXT_FD)
    sys.argv = [""]
    worker = Worker(SOCKET_FD)
    keep_modules()
    return worker.run()


if __name__ == "session":
    sys.exit(main())
