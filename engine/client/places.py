"""Where an engine is to be found: the home, `engine.json`, the tokens. Reads files, no more.

The environment variables are those of the reference: ENGINE_HOME, ENGINE_URL, ENGINE_TOKEN_FILE.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final, Literal, NamedTuple, get_args

from engine.client.errors import NotReachable, TokenUnreadable, WrongUrl

FACTS: Final = "engine.json"
WAY_OUT: Final = "remove it to have new ones made"  # tokens: engine serve makes them
HUMAN_TOKEN: Final = "human.token"
Role = Literal["agent", "observer", "human"]
MAX_TOKEN_FILE: Final = 4096  # bytes; a token has 43 characters
DEFAULT_PORT: Final = 80


class Place(NamedTuple):
    """One way to one engine. `socket` is a path, or `address` a host and port; never both."""

    url: str
    socket: str | None
    address: tuple[str, int] | None
    host: str  # the Host header
    token: str
    home: str
    pid: int | None  # as engine.json has it; None where it was not read
    token_from: str = ""  # the file that it stands in, where that is not engine.json


def check_choice(name: str, given: object, choices: object) -> None:
    """Raise ValueError unless `given` is one of `choices`, a Literal."""
    known = get_args(choices)
    if given not in known:
        raise ValueError(f"{name} {given!r} is not one of {', '.join(known)}")


def find_home(given: str | None, environ: dict[str, str]) -> str:
    """The home's absolute path: `--home`, else ENGINE_HOME, else the user's data directory."""
    chosen = given or environ.get("ENGINE_HOME")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    import platformdirs  # only here: most calls name a home, and the import costs 10 ms

    return platformdirs.user_data_dir("engine", appauthor=False)


def tilde(path: str) -> str:
    """`path` with the user's home shortened to `~`, for people to read."""
    user = os.path.expanduser("~").rstrip("/")
    if user and (path == user or path.startswith(user + "/")):
        return "~" + path[len(user) :]
    return path


def read_facts(home: str) -> dict[str, Any]:
    """What `engine.json` in `home` says. Raises `NotReachable` where there is none to read."""
    path = os.path.join(home, FACTS)
    try:
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
    except FileNotFoundError:
        raise NotReachable(
            f"no engine at home in {tilde(home)} (no {FACTS}). engine serve", absent=True
        ) from None
    except (OSError, ValueError) as exc:
        damaged = f"it is damaged; {WAY_OUT}"
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else damaged
        raise NotReachable(f"{tilde(path)} cannot be read: {reason}") from exc
    if not isinstance(facts, dict):
        raise NotReachable(f"{tilde(path)} cannot be read: it is damaged; {WAY_OUT}")
    return facts


def read_token_file(path: str) -> str:
    """The token in the file at `path`. Raises `TokenUnreadable`, naming the file."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(MAX_TOKEN_FILE).strip()
    except OSError as exc:
        reason = (exc.strerror or "unreadable").lower()
        raise TokenUnreadable(f"needs the token in {tilde(path)}: {reason}") from exc
    except ValueError as exc:
        raise TokenUnreadable(f"{tilde(path)} holds no token") from exc
    if not token or not token.isprintable() or " " in token:
        raise TokenUnreadable(f"{tilde(path)} holds no token")
    return token


def find_place(
    home: str,
    url: str | None,
    environ: dict[str, str],
    *,
    role: Role = "agent",
    token: str | None = None,
) -> Place:
    """Where to connect and with which token: the home's Unix socket, or `url` where one is given.

    `role` says whose token is wanted; the human's stands in a file of its own, and where
    ENGINE_TOKEN_FILE names one, that counts; a `token` that is given counts before all. Raises
    `NotReachable`, `WrongUrl` or `TokenUnreadable`.
    """
    target = url or environ.get("ENGINE_URL")
    address, host = parse_url(target) if target else (None, "localhost")
    token_file = environ.get("ENGINE_TOKEN_FILE")
    needs_facts = not target or not (token or role == "human" or token_file)
    facts = read_facts(home) if needs_facts else {}
    token_from = ""
    if not token:
        token_from = token_file or (os.path.join(home, HUMAN_TOKEN) if role == "human" else "")
        token = _find_token(home, facts, token_file, role)
    pid = facts.get("pid") if isinstance(facts.get("pid"), int) else None
    if target:
        return Place(target, None, address, host, token, home, pid, token_from)
    socket = os.path.join(home, str(facts.get("socket") or "engine.sock"))
    return Place(str(facts.get("url", "")), socket, None, host, token, home, pid, token_from)


def _find_token(home: str, facts: dict[str, Any], token_file: str | None, role: Role) -> str:
    if token_file:
        return read_token_file(token_file)
    if role == "human":
        try:
            return read_token_file(os.path.join(home, HUMAN_TOKEN))
        except TokenUnreadable as exc:
            raise TokenUnreadable(
                str(exc).replace("the token in", "the human token,", 1)
                + "; ENGINE_TOKEN_FILE may name another place"
            ) from exc
    tokens = facts.get("tokens")
    token = tokens.get(role) if isinstance(tokens, dict) else None
    if not isinstance(token, str) or not token.isascii() or not token:
        raise NotReachable(f"{tilde(os.path.join(home, FACTS))} holds no token; {WAY_OUT}")
    return token


def parse_url(url: str) -> tuple[tuple[str, int], str]:
    """Address and Host header of a `ws://HOST:PORT/rpc` URL. Raises `WrongUrl`."""
    from urllib.parse import urlsplit  # only here: most calls go through the Unix socket

    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise WrongUrl(f"{url} is no URL: {exc}") from exc
    if parts.scheme != "ws" or not parts.hostname or parts.path not in ("", "/", "/rpc"):
        raise WrongUrl(f"{url} is not of the form ws://HOST:PORT/rpc")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    header = host if port is None else f"{host}:{port}"
    try:
        header.encode("idna")
    except UnicodeError as exc:
        raise WrongUrl(f"{url} is no URL: its host is no name") from exc
    return (parts.hostname, port or DEFAULT_PORT), header


def is_alive(pid: int) -> bool:
    """Whether a process of this id is there, and no mere zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return os.path.isdir("/proc/self") is False and _signals(pid)
    except ProcessLookupError:
        return False


def _signals(pid: int) -> bool:
    """The plain way where there is no /proc: a zombie counts as alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
