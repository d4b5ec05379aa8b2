"""Mirrors `engine/cli/sparing.py`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

LIMIT = 60.0  # seconds


def run(code: str) -> str:
    """What a Python of its own prints that has spared its modules first."""
    head = "import sys\nfrom engine.cli.sparing import spare_modules\nspare_modules()\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_daemon_loads_neither_rich_nor_asyncio_nor_openssl() -> None:
    code = (
        "import engine.daemon, json; print(json.dumps([m for m in sys.modules if sys.modules[m]]))"
    )
    modules = set(json.loads(run(code)))
    assert {"trio", "structlog", "trio_websocket", "sqlite3"} <= modules
    heavy = {"rich", "rich.console", "pygments", "_ssl", "_hashlib", "asyncio.events"}
    assert not modules & heavy


def test_a_daemon_that_has_run_a_job_has_openssl_nowhere_in_its_memory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = [str(Path(sys.executable).with_name("engine")), "--home", str(home)]
    ready, notify = os.pipe()
    with (
        open(ready, "rb") as told,
        subprocess.Popen(
            [*program, "serve", "--notify-fd", str(notify)],
            pass_fds=[notify],
            stderr=subprocess.DEVNULL,
        ) as daemon,
    ):
        os.close(notify)
        try:
            assert told.readline() == b"ready\n"
            done = subprocess.run(
                [*program, "run", "echo fig"], capture_output=True, timeout=LIMIT, check=True
            )
            assert done.stdout == b"fig\n"
            maps = Path(f"/proc/{daemon.pid}/maps").read_text()
            assert "sqlite3" in maps
            assert "libcrypto" not in maps
        finally:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(LIMIT) == 0


def test_what_is_spared_is_loaded_where_it_is_used_after_all() -> None:
    code = (
        "import asyncio, asyncio.events, ssl\n"
        "from ssl import SSLContext\n"
        "async def fig():\n"
        "    await asyncio.sleep(0)\n"
        "    return 'fig'\n"
        "print(asyncio.run(fig()), isinstance(ssl.create_default_context(), SSLContext))\n"
        "print(sys.modules['ssl'].SSLContext is SSLContext)"
    )
    assert run(code) == "fig True\nTrue\n"


def test_the_hashes_of_a_daemon_are_those_of_everybody() -> None:
    code = (
        "import hashlib\n"
        "print(hashlib.sha256(b'fig').hexdigest()[:16])\n"
        "print(hashlib.blake2b(b'fig', digest_size=8).hexdigest())"
    )
    # printf fig | sha256sum; printf fig | b2sum -l 64
    assert run(code) == "8c39c63488260c31\n2e41b528253af0b4\n"
