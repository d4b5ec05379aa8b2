"""Mirrors `engine/jobs/channel.py`: the other end is a plain socket."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from engine.jobs.channel import Channel, ChannelClosed, connect

Ends = tuple[Channel, socket.socket]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = Channel(ours)
    theirs.settimeout(10)
    yield channel, theirs
    channel.close()
    theirs.close()


async def test_a_message_and_its_payload_arrive_whole(ends: Ends) -> None:
    channel, other = ends
    other.sendall(b'{"ev": "taken", "payload": 5}\n{"\n\x00}{"ev": "gone"}\n')
    with trio.fail_after(5):
        assert await channel.receive() == ({"ev": "taken", "payload": 5}, b'{"\n\x00}')
        assert await channel.receive() == ({"ev": "gone"}, b"")


async def test_a_payload_of_many_megabytes_arrives_byte_for_byte(ends: Ends) -> None:
    channel, other = ends
    payload = os.urandom(1 << 20) * 8
    got: list[bytes] = []

    async def receive() -> None:
        got.append((await channel.receive())[1])

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            data = b'{"ev": "taken", "payload": %d}\n' % len(payload) + payload
            await trio.to_thread.run_sync(other.sendall, data)
    assert got == [payload]


async def test_receiving_given_up_loses_nothing(ends: Ends) -> None:
    channel, other = ends
    other.sendall(b'{"ev": "taken", "payload": 3}\nab')
    with trio.move_on_after(0.05) as scope:
        await channel.receive()
    assert scope.cancelled_caught
    other.sendall(b"c")
    with trio.fail_after(5):
        assert await channel.receive() == ({"ev": "taken", "payload": 3}, b"abc")


@pytest.mark.parametrize(
    "data",
    [
        b"no json\n",
        b"[]\n",
        b"5\n",
        b'{"ev": "taken", "payload": "x"}\n',
        b'{"ev": "taken", "payload": null}\n',
        b'{"ev": "taken", "payload": -40}\n',
        b'{"ev": "taken", "payload": 1e999}\n',
        b'{"ev": "taken", "payload": 99999999999}\n',
        b'{"ev": "grew"}\n',
        b"[" * 99999 + b"\n",
    ],
)
async def test_what_no_keeper_says_closes_the_channel(ends: Ends, data: bytes) -> None:
    channel, other = ends
    other.sendall(data)
    with trio.fail_after(5), pytest.raises(ChannelClosed):
        await channel.receive()


async def test_the_end_of_the_keeper_closes_the_channel(ends: Ends) -> None:
    channel, other = ends
    other.sendall(b'{"ev": "gr')
    other.close()
    with trio.fail_after(5), pytest.raises(ChannelClosed):
        await channel.receive()
    with trio.fail_after(5), pytest.raises(ChannelClosed):
        await channel.send({"op": "survey"})


async def test_a_closed_channel_says_so(ends: Ends) -> None:
    channel, _other = ends
    channel.close()
    with trio.fail_after(5), pytest.raises(ChannelClosed):
        await channel.receive()
    with trio.fail_after(5), pytest.raises(ChannelClosed):
        await channel.send({"op": "survey"})


async def test_descriptors_ride_with_their_message(ends: Ends) -> None:
    channel, other = ends
    read_end, write_end = os.pipe()
    try:
        with trio.fail_after(5):
            await channel.send({"op": "launch"}, [read_end])
        data, ancillary, _flags, _address = other.recvmsg(100, socket.CMSG_SPACE(4))
        assert json.loads(data) == {"op": "launch"}
        [(_level, kind, payload)] = ancillary
        assert kind == socket.SCM_RIGHTS
        [received] = array.array("i", payload)
        os.write(write_end, b"x")
        assert os.read(received, 1) == b"x"
        os.close(received)
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_messages_sent_side_by_side_are_not_mixed(ends: Ends) -> None:
    channel, other = ends
    lines: list[dict[str, str]] = []

    def read_all() -> None:
        with other.makefile("rb") as file:
            lines.extend(json.loads(file.readline()) for _ in range(20))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for letter in "abcdefghijklmnopqrst":
                nursery.start_soon(channel.send, {"text": letter * 300_000})
            await trio.to_thread.run_sync(read_all)
    assert sorted(line["text"][0] for line in lines) == list("abcdefghijklmnopqrst")
    assert all(line["text"] == line["text"][0] * 300_000 for line in lines)


async def test_a_socket_is_reached_however_long_its_path_is(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    folder_fd = os.open(folder, os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"/proc/self/fd/{folder_fd}/1-2.sock")
        listener.listen(1)
        with trio.fail_after(5):
            channel = await connect(folder, "1-2.sock")
            other, _address = listener.accept()
            with other:
                other.sendall(b'{"ev": "absent"}\n')
                assert await channel.receive() == ({"ev": "absent"}, b"")
            channel.close()
    os.close(folder_fd)


async def test_nobody_listening_is_a_closed_channel(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "dead.sock"))
    for name in ("dead.sock", "none.sock"):
        with trio.fail_after(5), pytest.raises(ChannelClosed):
            await connect(tmp_path, name)
