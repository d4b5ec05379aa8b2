"""Mirrors `engine/cli/signals.py`."""

from __future__ import annotations

import select
import signal

from engine.cli.signals import Signals


def test_a_signal_is_noted_and_wakes_a_wait() -> None:
    with Signals(signal.SIGUSR1, signal.SIGUSR2) as signals:
        poll = select.poll()
        poll.register(signals.fileno(), select.POLLIN)
        assert not poll.poll(0)
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
        assert poll.poll(5_000)
        signals.drain()
        assert not poll.poll(0)
        assert signals.take() == [signal.SIGUSR1, signal.SIGUSR2]
        assert signals.take() == []


def test_afterwards_signals_do_what_they_did() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with Signals(signal.SIGUSR1):
        assert signal.getsignal(signal.SIGUSR1) is not before
    assert signal.getsignal(signal.SIGUSR1) is before


def test_draining_what_is_empty_does_not_block() -> None:
    with Signals(signal.SIGUSR1) as signals:
        signals.drain()
