"""Fixtures of 2026-07-28 that answer with questions, and are called again with what was said."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import shlex
from collections.abc import Callable
from typing import Any, Final

from mcp import types
from mcp.shared.exceptions import MCPError

from scripts.mcp_fixtures.jobs import Job
from scripts.mcp_fixtures.words import Given, form, said, sample

BAD_PARAMS: Final = -32602
_KEY: Final = secrets.token_bytes(32)
Answer = types.CallToolResult | types.InputRequiredResult | Job
Requests = dict[str, Any]


def _ask(requests: Requests, state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def _seal(**facts: Any) -> str:
    """A state that nobody else can make."""
    text = json.dumps(facts)
    return f"{hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()}.{text}"


def _open(state: str) -> dict[str, Any]:
    """What was sealed. Raises MCPError for what was not."""
    seal, _dot, text = state.partition(".")
    wanted = hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(seal, wanted):
        raise MCPError(BAD_PARAMS, "requestState is not what was given")
    facts: dict[str, Any] = json.loads(text)
    return facts


def _elicitation(given: Given) -> Answer:
    name = given.content("user_name", "name")
    if name is None:
        return _ask({"user_name": form("What is your name?", "name", "string")})
    return said(f"Hello, {name}!")


def _sampling(given: Given) -> Answer:
    answer = given.responses.get("sample_request")
    if answer is None:
        return _ask({"sample_request": sample("What is the capital of France?")})
    return said(f"Sampled: {getattr(answer.content, 'text', '')}")


def _roots(given: Given) -> Answer:
    answer = given.responses.get("roots_request")
    if answer is None:
        return _ask({"roots_request": types.ListRootsRequest()})
    return said(f"Roots: {len(answer.roots)}")


def _state(given: Given) -> Answer:
    if given.state is None or given.content("confirm", "ok") is None:
        return _ask({"confirm": form("Is it right?", "ok", "boolean")}, _seal(nonce="state"))
    _open(given.state)
    return said("state-ok")


def _tampered(given: Given) -> Answer:
    if given.state is not None:
        _open(given.state)
        if given.content("confirm", "ok") is not None:
            return said("integrity-ok")
    return _ask({"confirm": form("Is it right?", "ok", "boolean")}, _seal(nonce="tamper"))


def _several(given: Given) -> Answer:
    requests: Requests = {
        "user_name": form("What is your name?", "name", "string"),
        "greeting": sample("Greet me"),
        "client_roots": types.ListRootsRequest(),
    }
    if given.state is None or not requests.keys() <= given.responses.keys():
        return _ask(requests, _seal(nonce="several"))
    _open(given.state)
    return said(f"All three, {given.content('user_name', 'name')}.")


def _rounds(given: Given) -> Answer:
    facts = {} if given.state is None else _open(given.state)
    if facts.get("round") == 2 and (color := given.content("step2", "color")) is not None:
        return said(f"{facts['name']} likes {color}.")
    if facts.get("round") == 1 and (name := given.content("step1", "name")) is not None:
        request = {"step2": form("Which color?", "color", "string")}
        return _ask(request, _seal(round=2, name=name))
    return _ask({"step1": form("Who are you?", "name", "string")}, _seal(round=1))


def _capable(given: Given) -> Answer:
    """Asks only for what the client declares that it can do."""
    if given.responses:
        return said("answered: " + ", ".join(sorted(given.responses)))
    requests: Requests = {
        "elicit_input": form("A value?", "value", "string"),
        "sample_input": sample("A sample"),
    }
    kinds = {"elicit_input": "elicitation", "sample_input": "sampling"}
    asked = {name: request for name, request in requests.items() if _can(given, kinds[name])}
    return _ask(asked, _seal(nonce="capable")) if asked else said("This client can do neither.")


def _can(given: Given, kind: str) -> bool:
    return kind in given.capabilities


def _then_task(given: Given) -> Answer:
    """Asks, and then begins a job: the two compose."""
    name = given.content("user_name", "name")
    if name is None:
        return _ask({"user_name": form("Your name?", "name", "string")}, _seal(nonce="task"))
    return Job(f"sleep 0.3; echo {shlex.quote(name)}")


ASKING: Final[dict[str, Callable[[Given], Answer]]] = {
    "test_input_required_result_elicitation": _elicitation,
    "test_input_required_result_sampling": _sampling,
    "test_input_required_result_list_roots": _roots,
    "test_input_required_result_request_state": _state,
    "test_input_required_result_tampered_state": _tampered,
    "test_input_required_result_multiple_inputs": _several,
    "test_input_required_result_multi_round": _rounds,
    "test_input_required_result_capabilities": _capable,
    "test_tool_with_task": _then_task,
}
