"""The three tokens of a home, and the files that hold them: made once, read ever after.

`engine.json` tells clients where the engine is and holds the tokens `agent` and `observer`; the
human's stands alone, so that it can be kept where jobs cannot read it. Both are private from
their first byte and are replaced whole. A token never goes into a log or a message.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec

FACTS_FILE: Final = "engine.json"
HUMAN_TOKEN_FILE: Final = "human.token"
TOKEN_BYTES: Final = 32  # 43 characters of unpadded base64url
PRIVATE_MODE: Final = 0o600

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")


class BadTokenFile(Exception):
    """A file that must hold tokens holds something else, or cannot be read or made."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path}: {fault}")


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    observer: str
    human: str

    def __repr__(self) -> str:
        return "Tokens(…)"


def load_or_make_tokens(home: Path, human_token_file: Path | None = None) -> Tokens:
    """The tokens of `home`; those that are not there yet are made.

    The human's is written at once, the others with `write_facts`. Raises `BadTokenFile`.
    """
    kept = _read_kept(home / FACTS_FILE)
    return Tokens(
        agent=kept.get("agent") or make_token(),
        observer=kept.get("observer") or make_token(),
        human=_load_or_make_human(human_token_file or home / HUMAN_TOKEN_FILE),
    )


def make_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def write_facts(
    home: Path, tokens: Tokens, *, url: str, socket: str, pid: int, version: str, started_at: str
) -> None:
    """Replace `engine.json`, by which clients find this engine."""
    facts: dict[str, Any] = {
        "url": url,
        "socket": socket,
        "pid": pid,
        "version": version,
        "startedAt": started_at,
        "tokens": {"agent": tokens.agent, "observer": tokens.observer},
    }
    write_private(home / FACTS_FILE, msgspec.json.format(msgspec.json.encode(facts)) + b"\n")


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, whole or not at all, readable by its owner alone."""
    # Always the same name: what an engine that was killed here has left goes with the next write.
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(temporary, flags, PRIVATE_MODE), "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _read_kept(path: Path) -> dict[str, str]:
    """The tokens in an `engine.json` of an earlier start; empty where there is none."""
    try:
        facts = msgspec.json.decode(path.read_bytes())
        kept: Any = facts["tokens"]
        _make_private(path)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise BadTokenFile(path, exc.strerror or "cannot be read") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as exc:
        raise BadTokenFile(path, "holds no tokens; remove it to have new ones made") from exc
    if not isinstance(kept, dict) or not all(map(_is_token, kept.values())):
        raise BadTokenFile(path, "holds a bad token; remove it to have new ones made")
    return kept


def _load_or_make_human(path: Path) -> str:
    try:
        token = path.read_bytes().decode("ascii", "replace").strip()
        _make_private(path)
    except FileNotFoundError:
        token = make_token()
        _write_human(path, token)
    except OSError as exc:
        raise BadTokenFile(path, exc.strerror or "cannot be read") from exc
    if not _is_token(token):
        raise BadTokenFile(path, "holds no token; remove it to have a new one made")
    return token


def _write_human(path: Path, token: str) -> None:
    try:
        write_private(path, token.encode() + b"\n")
    except OSError as exc:
        raise BadTokenFile(path, exc.strerror or "cannot be written") from exc


def _make_private(path: Path) -> None:
    """Close a file that was opened to others since it was made."""
    if path.stat().st_mode & 0o077:
        path.chmod(PRIVATE_MODE)


def _is_token(value: object) -> bool:
    return isinstance(value, str) and _TOKEN.match(value) is not None
