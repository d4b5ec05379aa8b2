"""Mirrors `engine/client/target.py`."""

from __future__ import annotations

import pytest
from client.fake_engine import AGENT, OBSERVER, FakeEngine

from engine.client.target import Target


def test_the_engine_of_a_home_is_reached_by_its_socket(fake: FakeEngine) -> None:
    target = Target(fake.home)
    place = target.find()
    assert (place.socket, place.token) == (f"{fake.home}/engine.sock", AGENT)
    assert target.is_local
    assert Target(fake.home, role="observer").find().token == OBSERVER


def test_what_the_program_left_out_the_environment_says(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_HOME", str(fake.home))
    assert Target().home == str(fake.home)
    monkeypatch.setenv("ENGINE_URL", "ws://127.0.0.1:9/rpc")
    target = Target()
    assert target.find().address == ("127.0.0.1", 9)
    assert not target.is_local


def test_a_url_with_its_token_needs_no_home() -> None:
    target = Target("/nowhere", "ws://127.0.0.1:9/rpc", "x" * 43)
    assert (target.find().token, target.is_local) == ("x" * 43, False)


def test_a_role_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="role 'bogus' is not one of agent, observer, human"):
        Target(role="bogus")  # type: ignore[arg-type]
