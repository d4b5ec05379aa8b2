"""The code of a session's calls: compiled, evaluated in `__main__`, its exceptions shown.

A part of the program that `worker` describes.
"""

from __future__ import annotations
import __future__ as features

import ast
import builtins
import linecache
import sys
import traceback
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from engine.keeper.worker_streams import Streams
    from engine.keeper.worker_threads import Call

VALUE_BYTES = 8192  # of a value's repr, as UTF-8
MESSAGE_BYTES = 2048  # of an exception's text
SOURCE_BYTES = 16 << 20  # of code remembered for tracebacks

FEATURES = 0
for _name in features.all_feature_names:
    FEATURES |= getattr(features, _name).compiler_flag


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


class Code:
    """The session's `__main__`, and what of one call's code holds for the next."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._sources = Sources()
        self._flags = 0  # `from __future__` of earlier calls
        self._module = types.ModuleType("__main__")
        sys.modules["__main__"] = self._module

    def evaluate(self, call: Call) -> str | None:
        """Run the code of `call`; the repr of its last expression, if that has a value.

        Raises what the code raises.
        """
        name = "<call " + call.name + ">"
        self._sources.add(name, call.text)
        only_ast = self._flags | ast.PyCF_ONLY_AST
        tree: Any = compile(call.text, name, "exec", only_ast, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        body = compile(tree, name, "exec", self._flags, True)
        self._flags |= body.co_flags & FEATURES
        space = self._module.__dict__
        space.setdefault("__builtins__", builtins)  # else `exec` puts in what we have for it
        if last is None:
            exec(body, space)
            return None
        expression = compile(ast.Expression(last.value), name, "eval", self._flags, True)
        exec(body, space)
        value = eval(expression, space)
        return None if value is None else cut(repr(value), VALUE_BYTES)

    def exit_code(self, exc: SystemExit) -> int:
        """What a script would exit with; words are written to standard error."""
        if exc.code is None:
            return 0
        if isinstance(exc.code, int):
            return exc.code & 0xFF
        self._streams.write_error(str(exc.code) + "\n")
        return 1

    def show(self, exc: BaseException) -> None:
        """Write the traceback to standard error, as the interpreter would at the end of a script.

        The hook of the code is called if it has set one. Raises what showing it raises.
        """
        trace = own_frames_removed(exc.__traceback__)
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


def own_frames_removed(trace: Any) -> Any:
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    return trace


def describe(exc: BaseException) -> dict[str, str]:
    kind = type(exc)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = str(kind.__module__) + "." + name
    try:
        text = str(exc)
    except Exception:
        text = "<exception str() failed>"  # the words of `traceback`
    return {"type": name, "message": cut(text, MESSAGE_BYTES)}


def cut(text: str, limit: int) -> str:
    """`text` without half surrogate pairs, at most `limit` bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
