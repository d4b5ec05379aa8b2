"""Mirrors `engine/server/tokens.py`."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from engine.server.tokens import (
    BadTokenFile,
    Tokens,
    load_or_make_tokens,
    write_facts,
    write_private,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(home: Path, tokens: Tokens) -> None:
    write_facts(
        home,
        tokens,
        url="ws://127.0.0.1:8420/rpc",
        socket="/home/u/engine.sock",
        pid=7,
        version="0.1.0",
        started_at="2026-01-02T03:04:05.678Z",
    )


def test_tokens_are_43_characters_of_base64url_and_all_different(tmp_path: Path) -> None:
    tokens = load_or_make_tokens(tmp_path)
    three = {tokens.agent, tokens.observer, tokens.human}
    assert len(three) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in three)


def test_tokens_are_the_same_after_a_restart(tmp_path: Path) -> None:
    tokens = load_or_make_tokens(tmp_path)
    write(tmp_path, tokens)
    assert load_or_make_tokens(tmp_path) == tokens


def test_engine_json_tells_clients_all_they_need_and_not_the_humans_token(tmp_path: Path) -> None:
    tokens = load_or_make_tokens(tmp_path)
    write(tmp_path, tokens)
    text = (tmp_path / "engine.json").read_text(encoding="utf-8")
    assert json.loads(text) == {
        "url": "ws://127.0.0.1:8420/rpc",
        "socket": "/home/u/engine.sock",
        "pid": 7,
        "version": "0.1.0",
        "startedAt": "2026-01-02T03:04:05.678Z",
        "tokens": {"agent": tokens.agent, "observer": tokens.observer},
    }
    assert tokens.human not in text
    assert (tmp_path / "human.token").read_text(encoding="utf-8") == f"{tokens.human}\n"


def test_token_files_are_private_whatever_the_umask_and_whoever_opened_them(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        write(tmp_path, load_or_make_tokens(tmp_path))
    finally:
        os.umask(before)
    files = [tmp_path / "engine.json", tmp_path / "human.token"]
    assert [mode(path) for path in files] == [0o600, 0o600]
    for path in files:
        path.chmod(0o644)
    load_or_make_tokens(tmp_path)
    assert [mode(path) for path in files] == [0o600, 0o600]


def test_the_humans_token_can_be_kept_elsewhere(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    tokens = load_or_make_tokens(home, elsewhere / "token")
    assert not (home / "human.token").exists()
    assert mode(elsewhere / "token") == 0o600
    assert load_or_make_tokens(home, elsewhere / "token").human == tokens.human


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("engine.json", b"{"),
        ("engine.json", b"[]"),
        ("engine.json", b"{}"),
        ("engine.json", b'{"tokens": {"agent": "short"}}'),
        ("engine.json", b'{"tokens": 5}'),
        ("human.token", b""),
        ("human.token", b"short\n"),
        ("human.token", b"\xff" * 43),
    ],
)
def test_a_damaged_token_file_is_named_and_left_alone(
    name: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadTokenFile, match=re.escape(str(tmp_path / name)) + ".*; remove it"):
        load_or_make_tokens(tmp_path)
    assert (tmp_path / name).read_bytes() == content


def test_a_token_file_in_a_folder_that_is_not_there_is_an_error_that_names_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadTokenFile, match="nowhere/token: No such file or directory"):
        load_or_make_tokens(tmp_path, tmp_path / "nowhere" / "token")


def test_what_an_engine_left_that_was_killed_while_it_wrote_is_gone_after_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _be_killed)
        with pytest.raises(_Killed):
            write_private(tmp_path / "f", b"lost")
    assert len(list(tmp_path.iterdir())) == 1
    write_private(tmp_path / "f", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"new"


class _Killed(BaseException):
    """Nothing runs after it, as after a kill: no handler of ours is for it."""


def _be_killed(_from: Path, _to: Path) -> None:
    raise _Killed


def test_a_file_is_replaced_whole_and_no_other_file_stays(tmp_path: Path) -> None:
    write_private(tmp_path / "f", b"old")
    write_private(tmp_path / "f", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"new"


def test_tokens_do_not_show_themselves(tmp_path: Path) -> None:
    tokens = load_or_make_tokens(tmp_path)
    assert repr(tokens) == str(tokens) == "Tokens(…)"
