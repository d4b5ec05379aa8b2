"""The program that a caller's interpreter runs: one call of Python code after another.

Runs under any python3 from 3.8 on, as text handed in by descriptor, with the caller's environment
and modules; it imports nothing of ours and is itself no module that code could import. `__main__`
belongs to the caller. Standard library only, and little of it.

Descriptor 4 is this text, 3 a stream socket to the keeper. A call comes as one byte with
descriptors: [request] [code] [stdin] [stdout] and, for split streams, [stderr]; `request` is a
file that holds the JSON of {call, cwd, env}. Words to the keeper are lines of JSON:
  hello     {version, executable, pid}
  began     {call, cwd, cpu}: an interrupt reaches the code from here on
  done      {call, exitCode, value, error, cpu, held}; `held`: threads of the call live on
  failed    {call, errno, what}: the call's directory cannot be entered
  released  {call}: the last of these threads has ended
When the keeper closes the socket, the interpreter ends as at the end of a script.

Code and worker share one process, so no line is drawn between them that determined code could not
cross; what is ruled out is crossing it by accident (children, `fork`, closed or moved streams).
"""

from __future__ import annotations
import __future__ as features

import _socket
import ast
import builtins
import fcntl
import io
import json
import linecache
import os
import select
import signal
import sys
import threading
import traceback
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOCKET_FD = 3  # where the keeper puts our end
TEXT_FD = 4  # this text
PRIVATE_FD = 200  # the lowest number it may move to: code that counts descriptors begins at 3
VALUE_BYTES = 8192  # of a value's repr, as UTF-8
MESSAGE_BYTES = 2048  # of an exception's text
LINE_BYTES = 8192  # of an unfinished line held back
SOURCE_BYTES = 16 << 20  # of code remembered for tracebacks

_FEATURES = 0
for _name in features.all_feature_names:
    _FEATURES |= getattr(features, _name).compiler_flag


class Stream(io.RawIOBase):
    """Standard output or error, with a line as the unit of what the main thread writes.

    A thread that a finished call left behind goes on writing to the output of that call.
    """

    mode = "wb"

    def __init__(self, number: int, owners: Owners) -> None:
        self.name = "<stdout>" if number == 1 else "<stderr>"
        self._number = number
        self._owners = owners
        self._line = b""

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        if threading.get_ident() != self._owners.main:
            _write_all(self._owners.descriptor(self._number), piece)
        else:
            self._line += piece
            if b"\n" in piece or len(self._line) >= LINE_BYTES:
                self._emit()
        return len(piece)

    def flush(self) -> None:
        super().flush()
        if self._line and threading.get_ident() == self._owners.main:
            self._emit()

    def _emit(self) -> None:
        line, self._line = self._line, b""
        _write_all(self._number, line)

    def forget(self) -> None:
        """Drop a rest that was not flushed: it is not the next call's."""
        self._line = b""


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # a child of the code has made the pipe non-blocking
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


class Owners:
    """Which call's output the threads write to that finished calls left behind.

    Any other thread writes to the output of the present call.
    """

    def __init__(self) -> None:
        self.main = threading.get_ident()
        self._old: dict[int, tuple[threading.Thread, Call]] = {}

    def descriptor(self, number: int) -> int:
        """Where the calling thread's writes to descriptor `number` go."""
        thread, call = self._old.get(threading.get_ident(), (None, None))
        if thread is None or call is None or not thread.is_alive():  # numbers are used again
            return number
        return call.streams[number]

    def adopt(self, call: Call) -> bool:
        """Remember the threads that `call` leaves behind; whether there are any."""
        fresh = [
            thread
            for thread in threading.enumerate()
            if thread.ident not in (None, self.main) and not self._is_known(thread)
        ]
        for thread in fresh:
            self._old[thread.ident or 0] = (thread, call)
        return bool(fresh)

    def _is_known(self, thread: threading.Thread) -> bool:
        return self._old.get(thread.ident or 0, (None,))[0] is thread

    def release(self) -> list[Call]:
        """Forget threads that have ended; the calls of which none is left."""
        before = {id(call): call for _thread, call in self._old.values()}
        for ident, (thread, _call) in list(self._old.items()):
            if not thread.is_alive():
                del self._old[ident]
        left = {id(call) for _thread, call in self._old.values()}
        return [call for key, call in before.items() if key not in left]


class Call:
    """One request and the descriptors that came with it."""

    def __init__(self, fds: list[int]) -> None:
        request, code, *streams = fds
        asked = json.loads(_read_file(request))
        self.name: str = asked["call"]
        self.cwd: str | None = asked["cwd"]
        self.env: dict[str, str] = asked["env"]
        self.text = _read_file(code).decode("utf-8", "replace")
        moved = [_move_up(fd) for fd in streams]
        self.streams = (moved[0], moved[1], moved[-1])  # for 0, 1 and 2
        os.close(request)
        os.close(code)

    def close(self) -> None:
        for fd in set(self.streams):
            try:
                os.close(fd)
            except OSError:
                continue  # code that closes every number it can think of


def _read_file(fd: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while True:
        part = os.pread(fd, 1 << 20, offset)
        if not part:
            return b"".join(parts)
        parts.append(part)
        offset += len(part)


class Streams:
    """Descriptors 0, 1 and 2 and what `sys` calls stdin, stdout and stderr."""

    NAMES = ("stdin", "stdout", "stderr")

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._forms = [(s.encoding, s.errors) for s in (sys.stdin, sys.stdout, sys.stderr)]
        self._made: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
        for stream in self._made:
            stream.close()  # not the descriptors: theirs are never closed so
        self._raw: dict[int, Stream] = {}

    def connect(self, call: Call) -> None:
        """Lead them to `call`, objects and all, but for what code has put there itself."""
        for number, fd in enumerate(call.streams):
            os.dup2(fd, number)
            present = getattr(sys, self.NAMES[number], None)
            is_ours = present is self._made[number]
            # Input read ahead was the last call's.
            if number == 0 or not _is_usable(self._made[number]):
                self._made[number] = self._make(number)
                setattr(sys, "__" + self.NAMES[number] + "__", self._made[number])
            if is_ours or not _is_usable(present):
                setattr(sys, self.NAMES[number], self._made[number])

    def _make(self, number: int) -> Any:
        encoding, errors = self._forms[number]
        if number == 0:
            return open(0, encoding=encoding, errors=errors, closefd=False)
        raw: Any = Stream(number, self._owners)
        self._raw[number] = raw
        stream = io.TextIOWrapper(raw, encoding, errors, "\n", write_through=True)
        stream.mode = "w"  # type: ignore[misc]  # as the interpreter's own have it
        return stream

    def write_error(self, text: str) -> None:
        """Write to the call's standard error, whatever code has made of `sys.stderr`."""
        self._made[2].write(text)

    def flush(self) -> None:
        """Hand everything buffered to the present call's output, also that of C code."""
        for stream in (*self._made[1:], getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                continue  # the code's own object, broken or closed: its loss
        # Loading it for this would cost more than the call.
        c_functions = getattr(sys.modules.get("ctypes"), "pythonapi", None)
        if c_functions is not None:
            c_functions.fflush(None)

    def disconnect(self) -> None:
        """Lead the descriptors nowhere: what is written between calls is no call's."""
        for raw in self._raw.values():
            raw.forget()
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            if nothing != number:
                os.dup2(nothing, number)
        if nothing > 2:
            os.close(nothing)


def _is_usable(stream: Any) -> bool:
    try:
        return stream is not None and not getattr(stream, "closed", False)
    except ValueError:  # its buffer was taken from it
        return False


class Surroundings:
    """Directory and variables that hold for one call alone, and what they were before."""

    def __init__(self) -> None:
        self._last = os.path.expanduser("~")  # the directory that was there when we last looked
        self._back: str | None = None
        self._was: dict[str, str | None] = {}

    def enter(self, call: Call) -> str:
        """Set them; the working directory. Raises OSError if the call's cannot be entered."""
        here = self._existing()
        if call.cwd is not None:
            os.chdir(call.cwd)
            self._back, here = here, os.getcwd()
        self._was = {name: os.environ.get(name) for name in call.env}
        os.environ.update(call.env)
        return here

    def _existing(self) -> str:
        """The working directory, or where it has been removed its nearest parent."""
        try:
            self._last = os.getcwd()
        except OSError:
            while not os.path.isdir(self._last):
                self._last = os.path.dirname(self._last)
            os.chdir(self._last)
        return self._last

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


class Sources:
    """The code of past calls, for the lines that tracebacks show; the oldest are forgotten."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def add(self, name: str, text: str) -> None:
        # Without a time of change `linecache.checkcache` leaves an entry alone.
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        self._sizes[name] = len(text)
        while sum(self._sizes.values()) > SOURCE_BYTES and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            linecache.cache.pop(oldest, None)


class Interrupts:
    """SIGINT: the code's while a call runs, nobody's between calls."""

    def __init__(self) -> None:
        self._handler: Any = signal.getsignal(signal.SIGINT)
        self.refuse()

    def allow(self) -> None:
        # What code sets stays set; asyncio looks for the default handler itself.
        signal.signal(signal.SIGINT, self._handler)

    def refuse(self) -> None:
        """Keep the handler for the next call; whatever interrupts this comes too late."""
        while True:
            try:
                handler = signal.getsignal(signal.SIGINT)
                if handler is not None and handler is not _ignore:
                    self._handler = handler
                signal.signal(signal.SIGINT, _ignore)
                return
            except KeyboardInterrupt:
                continue


def _ignore(_number: int, _frame: Any) -> None:
    pass  # a handler and not SIG_IGN, which children would inherit


class Worker:
    """The loop. Everything of a call happens in the main thread."""

    def __init__(self, fd: int) -> None:
        moved = _move_up(fd)
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, moved)
        self._pid = os.getpid()
        fcntl.fcntl(moved, fcntl.F_SETOWN, self._pid)
        fcntl.fcntl(moved, fcntl.F_SETSIG, signal.SIGKILL)
        os.register_at_fork(after_in_child=self._on_forked)
        self._owners = Owners()
        self._streams = Streams(self._owners)
        self._surroundings = Surroundings()
        self._sources = Sources()
        self._interrupts = Interrupts()
        self._flags = 0  # `from __future__` of earlier calls
        self.module = types.ModuleType("__main__")
        self.module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self.module

    def _on_forked(self) -> None:
        self._socket.close()

    def run(self) -> None:
        """Serve calls until the keeper closes the socket."""
        self._streams.disconnect()
        version = ".".join(str(part) for part in sys.version_info[:3])
        self._tell("hello", version=version, executable=sys.executable, pid=self._pid)
        while True:
            fds = self._receive()
            if fds is None:
                return
            self._release()
            self._serve(Call(fds))

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
        self._socket.sendall(json.dumps(facts).encode() + b"\n")

    def _release(self) -> None:
        for call in self._owners.release():
            call.close()
            self._tell("released", call=call.name)

    # -- one call ------------------------------------------------------------------------------

    def _serve(self, call: Call) -> None:
        try:
            cwd = self._surroundings.enter(call)
        except OSError as exc:
            call.close()
            self._tell("failed", call=call.name, errno=exc.errno, what="cwd " + str(call.cwd))
            return
        self._streams.connect(call)
        self._die_with_keeper(wanted=True)
        outcome = self._perform(call, cwd)
        if os.getpid() != self._pid:  # code has forked, and this is the child
            os._exit(outcome["exitCode"])
        self._surroundings.leave()
        self._streams.disconnect()
        self._die_with_keeper(wanted=False)
        self._release()
        held = self._owners.adopt(call)
        if not held:
            call.close()
        self._tell("done", call=call.name, cpu=_cpu(), held=held, **outcome)

    def _perform(self, call: Call, cwd: str) -> dict[str, Any]:
        """Run the code: its exit code, its value or its error."""
        outcome: dict[str, Any] = {"exitCode": 0, "value": None, "error": None}
        try:
            try:
                self._interrupts.allow()
                self._tell("began", call=call.name, cwd=cwd, cpu=_cpu())
                outcome["value"] = self._evaluate(call)
            except SystemExit as exc:
                outcome["exitCode"] = self._exit_code(exc)
            except BaseException as exc:
                outcome.update(exitCode=1, error=_describe(exc))
                self._show(exc)
            self._streams.flush()
        except BaseException as exc:  # interrupted while it was shown or flushed
            outcome.update(exitCode=1, error=outcome["error"] or _describe(exc))
        finally:
            self._interrupts.refuse()
        return outcome

    def _evaluate(self, call: Call) -> str | None:
        name = "<call " + call.name + ">"
        self._sources.add(name, call.text)
        only_ast = self._flags | ast.PyCF_ONLY_AST
        tree: Any = compile(call.text, name, "exec", only_ast, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        body = compile(tree, name, "exec", self._flags, True)
        self._flags |= body.co_flags & _FEATURES
        space = self.module.__dict__
        if last is None:
            exec(body, space)
            return None
        expression = compile(ast.Expression(last.value), name, "eval", self._flags, True)
        exec(body, space)
        value = eval(expression, space)
        return None if value is None else _cut(repr(value), VALUE_BYTES)

    def _exit_code(self, exc: SystemExit) -> int:
        if exc.code is None:
            return 0
        if isinstance(exc.code, int):
            return exc.code & 0xFF
        self._streams.write_error(str(exc.code) + "\n")
        return 1

    def _show(self, exc: BaseException) -> None:
        """Write the traceback to standard error, as the interpreter would at the end of a script.

        The hook of the code is called if it has set one. Raises what showing it raises.
        """
        trace = _own_frames_removed(exc.__traceback__)
        exc.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(exc), exc, trace
        if sys.excepthook is not sys.__excepthook__:
            try:
                sys.excepthook(type(exc), exc, trace)
            except Exception:
                traceback.print_exc(file=sys.__stderr__)
            else:
                return
        lines = traceback.format_exception(type(exc), exc, trace)
        self._streams.write_error("".join(lines))


def _move_up(fd: int) -> int:
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FD)
    except OSError:  # a limit of fewer descriptors
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, fd)
    os.close(fd)
    return moved


def _cpu() -> float:
    """Seconds of processor time of the interpreter and of the children it has waited for."""
    return sum(os.times()[:4])


def _own_frames_removed(trace: Any) -> Any:
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    return trace


def _describe(exc: BaseException) -> dict[str, str]:
    kind = type(exc)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = str(kind.__module__) + "." + name
    try:
        text = str(exc)
    except Exception:
        text = "<exception str() failed>"  # the words of `traceback`
    return {"type": name, "message": _cut(text, MESSAGE_BYTES)}


def _cut(text: str, limit: int) -> str:
    """`text` without half surrogate pairs, at most `limit` bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def main() -> None:
    """Be the interpreter of a session until the keeper lets it go."""
    os.close(TEXT_FD)
    sys.argv = [""]
    Worker(SOCKET_FD).run()


main()
