"""A call that is typed by what it answers with, and how its answer becomes that type. Pure."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec

from engine.client.errors import ProtocolFailure
from engine.client.wire import Params
from engine.protocol.parts import Part
from engine.protocol.results import RESULTS, required

T = TypeVar("T")


@dataclass(frozen=True)
class Request(Generic[T]):
    """A call to be made, answered with a T."""

    method: str
    params: Params
    budget: float = 0.0  # seconds that the engine may take by the call's own terms
    resend: bool = True  # whether it may be sent twice

    def as_caller(self, name: str) -> Request[T]:
        """The same, asked by `name` where it does not say who asks."""
        if self.params.get("as") is not None:
            return self
        return Request(self.method, {**self.params, "as": name}, self.budget, self.resend)

    def decode(self, result: Any) -> T:
        """The result, decoded from JSON, as its type. Raises `ProtocolFailure`."""
        types = RESULTS.get(self.method)
        if types is None:
            return cast(T, result)
        try:
            return cast(T, msgspec.convert(result, _fitting(types, result)))
        except msgspec.ValidationError as exc:
            raise ProtocolFailure(f"that is no result of {self.method}: {exc}") from exc


_required = functools.cache(required)


def _fitting(types: tuple[type[Part], ...], result: Any) -> type[Part]:
    """The first type of which all members are there that must be."""
    members = result.keys() if isinstance(result, dict) else set()
    return next((each for each in types if _required(each) <= members), types[-1])
