"""What lies in an engine's home and somebody else has written: settings, task files, rows.

Each is put where the engine looks for it and read as the engine reads it; what it accepts must do
for what it does next with it. Works in a folder of its own, which `finish` removes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.config import BadSetting, Settings, load_settings
from engine.jobs.directory import Spec, TaskDirectory
from engine.keeper import processes, taskfiles
from engine.model import Kind, TaskRecord, rfc3339
from engine.store.index import _is_sound
from engine.store.told import Position, Told, ToldFile
from engine.tasks import ending
from engine.tasks.infolder import record_of
from engine.tasks.starting import Starter
from scripts.fuzzing import BASE_SECS, Fault, Target
from scripts.mutating import vary_json

_MEMORY: Final = Path("/dev/shm")  # where there is one, no disk is worn
_END: Final = (
    b'{"pid":12,"cause":"exit","exitCode":3,"signal":null,"error":null,"startedAt":1764500000000,'
    b'"endedAt":1764500000100,"durationMs":100,"cpuMs":5,"cwd":"/tmp","survivors":[{"pid":13,'
    b'"command":"sleep 9"}],"sizes":[5],"dropped":[[[1,2]]]}\ncomplete\n'
)
_ENDS: Final = (
    _END + b" " * 3000,
    _END.replace(b'"exit"', b'"signal"').replace(b"null", b"9", 1),
    _END.replace(b'"error":null', b'"error":{"errno":2,"message":"x"}').replace(
        b"exit", b"spawn_error", 1
    ),
    _END.replace(b"}\n", b',"value":"3","sessionReset":true}\n'),
    _END.replace(b'"sizes":[5],"dropped":[[[1,2]]]', b'"sizes":[5,0],"dropped":[[],[[0,1],[3,4]]]'),
    b" " * 4096,
)
_SPECS: Final = (
    b'{"v":1,"id":"aaaaaa","kind":"bash","title":"echo hi","order":1,"created_at":1764500000000,'
    b'"caller":"ci","base":{"cwd":"/","env":{"PATH":"/bin","A":"b"}},"command":"echo hi",'
    b'"session":true,"cwd":"/tmp","env":{"X":"y"},"stdin":"in","deadline_secs":5.5,"key":"k",'
    b'"digest":"d","pty":false,"split":true,"stdin_open":false}',
    b'{"id":"aaaaaa","kind":"argv","title":"true","order":2,"created_at":5,"caller":"a","base":'
    b'{"cwd":"/","env":{}},"argv":["true","x y"]}',
    b'{"id":"aaaaaa","kind":"code","title":"1","order":3,"created_at":5,"caller":"a","base":'
    b'{"cwd":"/","env":{}},"code":"1+1","session":true}',
)
_RECORD: Final = TaskRecord(
    id="aaaaaa", caller="ci", kind=Kind.BASH, title="x", order=1, created_at=1, session=True
)
_TOLD: Final = (
    b'\n{"type":"position","caller":"ci","marks":[1,2,3,4,5,6,7,8],"read_to":9}\n'
    b'{"type":"told","task":"aaaaaa","caller":"ci","output":[5],"lines":[0,0,0,0,0,0,0,1]}',
    b'\n{"type":"told","task":"aaaaaa","caller":"ci","output":[5,6],"lines":[0,0,0,0,0,0,0,1]}',
)
_SETTINGS: Final = (
    b'listen = "127.0.0.1:0"\nslots = 4\ninline_budget_secs = 2.5\noutput_cap_bytes = 1048576\n',
    b'allowed_origins = ["http://a", "b"]\nallowed_hosts = []\nlog_format = "json"\n# note\n',
    b"queue_limit = 10_000\nmin_free_bytes = 0x10\nmax_waits = 1\nlog_files = 0\n",
    b'human_token_file = """/a\nb"""\nwarm_shells = 0\n[a]\nb = {c = 1, d = [1979-05-27]}\n',
    b"",
)
_JSON_WORDS: Final = (
    *(
        b"null",
        b"true",
        b"1e999",
        b"-1",
        b"9" * 30,
        b"[" * 3000,
        b'{"a":' * 3000,
        b'"\\ud800"',
        b"1.5",
    ),
    *(
        b'"\\u0000"',
        b'"\xff"',
        b"[]",
        b"{}",
        b'""',
        b'"exit"',
        b'"lost"',
        b"\ncomplete\n",
        b"\n",
        b",",
    ),
    *(b"NaN", b"Infinity", b"-0", b"18446744073709551616", b"2147483648", b"[[1,2]]", b'"x":1,'),
)
_TOML_WORDS: Final = (
    *(
        b"[" * 3000,
        b"{a=" * 2000,
        b"a." * 3000,
        b"'''",
        b'"""',
        b"true",
        b"nan",
        b"inf",
        b"-",
        b"1e400",
    ),
    *(
        b"9" * 5000,
        b"0o7",
        b"1979-05-27T07:32:00Z",
        b"[[x]]\n",
        b"= ",
        b"slots",
        b"\r\n",
        b'"\\u0000"',
    ),
    *(name.encode() + b" = " for name in Settings.__struct_fields__),
)


class Home:
    """A home with one task, in which files are put."""

    def __init__(self) -> None:
        where = _MEMORY if _MEMORY.is_dir() else None
        self.path = Path(tempfile.mkdtemp(prefix="engine-fuzz-", dir=where))
        self.task = TaskDirectory(self.path, "aaaaaa")
        self.task.path.mkdir()
        self.starter = Starter(str(self.path), 1 << 30)

    def put(self, name: str, data: bytes) -> None:
        fd = os.open(self.task.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def check_exit(self, data: bytes) -> Hashable:
        """An `exit` is none, or an end that a task can be given."""
        self.put(taskfiles.EXIT, data)
        end = self.task.read_exit()
        if end is None:
            return None
        record = ending.ended(_RECORD, end)
        for moment in (record.started_at, record.ended_at):
            rfc3339(moment or 0)
        if not 0 <= record.output_bytes < 1 << 63 or abs(record.dropped_bytes) >= 1 << 63:
            raise Fault(f"{record.output_bytes} bytes, {record.dropped_bytes} dropped")
        if not record.status.is_final:
            raise Fault(f"ended as {record.status}")
        if msgspec.json.decode(msgspec.json.encode(record), type=TaskRecord) != record:
            raise Fault("its record does not come back")
        return (
            record.status,
            record.reason,
            record.error is None,
            len(record.sizes),
            record.value is None,
        )

    def check_spec(self, data: bytes) -> Hashable:
        """A `spec.json` is none, or a job that can be handed to a keeper or refused."""
        self.put("spec.json", data)
        spec = self.task.read_spec()
        if spec is None:
            return None
        rfc3339(record_of(spec).created_at)
        if spec.order >= 1 << 63:
            raise Fault(f"its order is {spec.order}")
        if msgspec.json.decode(msgspec.json.encode(spec), type=Spec) != spec:
            raise Fault("it does not come back")
        if spec.kind is Kind.CODE:
            self.starter.code_order(spec)
        else:
            self.starter.order(spec, None)
        return spec.kind, spec.session, spec.pty, spec.split, spec.stdin is None, spec.argv is None

    def check_claim(self, data: bytes) -> Hashable:
        """A `claim` is nobody's, or of somebody who is not alive."""
        path = self.task.path / taskfiles.CLAIM
        path.unlink(missing_ok=True)
        text = data.replace(b"\0", b"").strip()[:4000]
        if not text:
            return None
        os.symlink(text, os.fsencode(path))
        claim = self.task.read_claim()
        if claim is None:
            raise Fault("it is not there")
        if processes.is_alive(claim):
            raise Fault(f"{claim!r} is alive")
        return claim == "", len(claim.split(" ")), self.task.claimed_at() is None

    def check_told(self, data: bytes) -> Hashable:
        """Of `record.told` the lines count that are ours, and they are written anew as they are."""
        path = self.path / "record.told"
        path.write_bytes(data)
        file = ToldFile(path)
        try:
            entries = file.read()
            file.rewrite(entries)
            if file.read() != entries:
                raise Fault("written anew it is another file")
        finally:
            file.close()
        for entry in entries:
            if isinstance(entry, Position) and not all(
                0 <= mark < 1 << 63 for mark in (*entry.marks, entry.read_to)
            ):
                raise Fault(f"{entry} is not for the store")
        return len(entries), sum(isinstance(entry, Told) for entry in entries)

    def check_settings(self, data: bytes) -> Hashable:
        """Settings are refused with a reason, or within their bounds."""
        (self.path / "engine.toml").write_bytes(data)
        name, _, text = data.partition(b"=")
        outcomes = []
        for path, typed in (
            (self.path, {}),
            (self.path / "none", {name.decode("latin-1").strip(): text.decode("utf-8", "replace")}),
        ):
            try:
                settings = load_settings(path, typed, {})
            except BadSetting as exc:
                str(exc).encode()
                outcomes.append(str(exc).partition(": ")[2][:24])
                continue
            _check_settings(settings)
            outcomes.append(str([f for f in Settings.__struct_fields__ if getattr(settings, f)]))
        return tuple(outcomes)


def _check_settings(settings: Settings) -> None:
    if not 0 <= settings.inline_budget_secs <= 20:
        raise Fault(f"inline_budget_secs is {settings.inline_budget_secs}")
    if settings.slot_count < 1 or settings.queue_limit < 1 or settings.min_free_bytes < 0:
        raise Fault(f"{settings}")
    if msgspec.convert(msgspec.to_builtins(settings), Settings) != settings:
        raise Fault("they do not come back")


def check_row(data: bytes) -> Hashable:
    """A row of the index is dropped, or a record whose next states can be told."""
    if not _is_sound(data):
        return None
    record = msgspec.json.decode(data, type=TaskRecord)
    return record.status, record.kind, len(record.sizes), record.output_bytes > record.dropped_bytes


def _end(data: bytes) -> dict[str, Any]:
    end: dict[str, Any] = msgspec.json.decode(data.partition(b"\ncomplete\n")[0])
    return end


def _rows() -> Target:
    rows = [msgspec.json.encode(ending.ended(_RECORD, _end(data))) for data in _ENDS[:5]]
    return Target(name="rows", seeds=rows, check=check_row, words=_JSON_WORDS, vary=vary_json)


def _of_a_home(name: str, seeds: tuple[bytes, ...], words: tuple[bytes, ...]) -> Target:
    home = Home()
    return Target(
        name=name,
        seeds=seeds,
        check=getattr(home, f"check_{name}"),
        words=words,
        vary=vary_json if words is _JSON_WORDS else None,
        pumped=0,
        # The library's parser is quadratic in the parts of a name; nobody but the user is held up.
        secs=5.0 if name == "settings" else BASE_SECS,
        finish=home.remove,
    )


def _claim() -> Target:
    boot = processes.boot_id().encode()
    claims = (b"12 345 " + boot, b"engine", b"1 1 1", b"999999999 1 " + boot)
    return _of_a_home("claim", claims, (boot, b" ", b"-1", b"\xc2\xb2", b"engine", b"/", b"0"))


MAKERS: Final[dict[str, Callable[[], Target]]] = {
    "settings": lambda: _of_a_home("settings", _SETTINGS, _TOML_WORDS),
    "exit": lambda: _of_a_home("exit", _ENDS, _JSON_WORDS),
    "spec": lambda: _of_a_home("spec", _SPECS, _JSON_WORDS),
    "told": lambda: _of_a_home("told", _TOLD, _JSON_WORDS),
    "claim": _claim,
    "rows": _rows,
}
