"""Which engine a client is for, found anew at each attempt to connect; and how to start it."""

from __future__ import annotations

import os

from engine.client.places import Place, Role, check_choice, find_home, find_place
from engine.client.start import start_engine


class Target:
    """`home`, `url` and `token` as a program gave them; what it left out the environment says."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        url: str | None = None,
        token: str | None = None,
        *,
        role: Role = "agent",
    ) -> None:
        """Raises ValueError for a role that there is not."""
        check_choice("role", role, Role)
        self._environ = dict(os.environ)
        self._url, self._token, self._role = url, token, role
        self.home = find_home(None if home is None else os.fspath(home), self._environ)

    @property
    def is_local(self) -> bool:
        """Whether it is the engine of the home, and not of a URL: one that may be started."""
        return not (self._url or self._environ.get("ENGINE_URL"))

    def find(self) -> Place:
        """Where to connect. Raises `NotReachable` or `TokenUnreadable`."""
        return find_place(self.home, self._url, self._environ, role=self._role, token=self._token)

    def start(self) -> None:
        """Start an engine in the home and wait until it is ready. Raises `CannotStart`."""
        start_engine(self.home, self._environ)
