"""Mirrors `engine/server/listeners.py`."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import pytest
import trio

from engine.server.listeners import (
    CannotListen,
    missed_port,
    name_again,
    open_tcp,
    open_unix,
    parse_listen,
    remove_socket,
    tcp_port,
    tcp_url,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8420", ("127.0.0.1", 8420)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("127.8.9.10:1", ("127.8.9.10", 1)),
    ],
)
def test_a_loopback_address_is_taken(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    "text", ["", "8420", "127.0.0.1", "::1:80", "127.0.0.1:65536", "127.0.0.1:x", "[::1]", "a:b:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CannotListen, match="expected HOST:PORT"):
        parse_listen(text)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "192.168.1.5", "[::]", "example.org", "[::ffff:1.2.3.4]"]
)
def test_an_address_that_others_reach_is_refused_with_the_reason(host: str) -> None:
    with pytest.raises(CannotListen, match="needs TLS, which this engine does not offer yet"):
        parse_listen(f"{host}:8420")


async def test_the_port_is_chosen_once_and_kept(tmp_path: Path) -> None:
    async with open_tcp(tmp_path) as first:
        port = tcp_port(first)
        assert tcp_url(first) == f"ws://127.0.0.1:{port}/rpc"
    async with open_tcp(tmp_path, "127.0.0.1:0") as other:
        assert tcp_port(other) != port
    async with open_tcp(tmp_path) as again:
        assert tcp_port(again) == port


async def test_where_the_kept_port_is_taken_another_is_used_and_the_kept_one_stays_kept(
    tmp_path: Path,
) -> None:
    async with open_tcp(tmp_path) as first:
        port = tcp_port(first)
        assert missed_port(tmp_path, first) is None
        async with open_tcp(tmp_path) as second:
            assert tcp_port(second) != port
            assert missed_port(tmp_path, second) == port
        words = f"cannot listen on 127.0.0.1:{port}: Address already in use"
        with pytest.raises(CannotListen, match=re.escape(words)):  # one that somebody named is his
            open_tcp(tmp_path, f"127.0.0.1:{port}")
    assert (tmp_path / "listen.port").read_text(encoding="ascii") == f"{port}\n"


async def test_a_socket_that_has_lost_its_name_gets_it_again(tmp_path: Path) -> None:
    async with open_unix(tmp_path) as listener:
        (tmp_path / "engine.sock").unlink()
        name_again(tmp_path)
        client = await trio.open_unix_socket(tmp_path / "engine.sock")
        with trio.fail_after(5):
            async with await listener.accept(), client:
                pass
    remove_socket(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", ["", "x", "0", "65536", "-1", "\u0661"])
def test_a_damaged_port_file_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "listen.port").write_text(content, encoding="utf-8")
    with pytest.raises(CannotListen, match="holds no port; remove it"):
        open_tcp(tmp_path)


async def test_ipv6_loopback_has_its_url(tmp_path: Path) -> None:
    async with open_tcp(tmp_path, "[::1]:0") as listener:
        assert tcp_url(listener) == f"ws://[::1]:{tcp_port(listener)}/rpc"


async def test_the_socket_is_private_and_takes_the_place_of_one_left_over(tmp_path: Path) -> None:
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(str(tmp_path / "engine.sock"))
    left_over.close()
    async with open_unix(tmp_path) as listener:
        mode = (tmp_path / "engine.sock").stat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        client = await trio.open_unix_socket(tmp_path / "engine.sock")
        with trio.fail_after(5):
            async with await listener.accept(), client:
                pass
    remove_socket(tmp_path)
    remove_socket(tmp_path)
    assert not (tmp_path / "engine.sock").exists()


async def test_a_home_with_a_path_longer_than_an_address_holds_has_its_socket(
    tmp_path: Path,
) -> None:
    home = tmp_path / ("h" * 100) / ("h" * 100)
    home.mkdir(parents=True)
    async with open_unix(home) as listener:
        assert (home / "engine.sock").is_socket()
        assert listener.socket.family == socket.AF_UNIX


def test_a_home_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match=r"nowhere/engine\.sock: No such file or directory"):
        open_unix(tmp_path / "nowhere")
