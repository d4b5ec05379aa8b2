from __future__ import annotations

import os
import pwd
from typing import Any

from engine.jobs.directory import Base, Spec
from engine.model import Kind
from engine.tasks.starting import Starter, default_base


def spec(**more: Any) -> Spec:
    base = Base(cwd="/base", env={"PATH": "/bin", "A": "base", "TERM": "xterm"})
    facts: dict[str, Any] = {"id": "aaaaaa", "caller": "ci", "kind": Kind.ARGV, "title": "x"}
    return Spec(**{**facts, "order": 1, "created_at": 0, "base": base, **more})


def test_of_the_engines_environment_a_call_sees_only_what_is_listed() -> None:
    base = default_base(
        {
            "HOME": "/",
            "PATH": "/x",
            "LC_TIME": "C",
            "XDG_RUNTIME_DIR": "/run/x",
            "TZ": "UTC",
            "API_TOKEN": "secret",
            "ENGINE_HOME": "/h",
            "LANG": "\udcff",
        }
    )
    name = pwd.getpwuid(os.getuid()).pw_name
    assert base.cwd == "/"
    assert base.env == {
        "HOME": "/",
        "PATH": "/x",
        "LC_TIME": "C",
        "XDG_RUNTIME_DIR": "/run/x",
        "TZ": "UTC",
        "USER": name,
        "LOGNAME": name,
    }


def test_a_program_gets_what_was_said_for_it_over_the_base_over_the_defaults() -> None:
    order, plan = Starter("/home/e", 5).order(
        spec(argv=["x"], env={"A": "own", "ENGINE_CALLER": "forged"}), None
    )
    assert plan is None
    assert (order.argv, order.path, order.cwd, order.cwd_or_parent) == (["x"], None, "/base", True)
    assert order.env == {
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "TERM": "xterm",
        "PATH": "/bin",
        "A": "own",
        "ENGINE_TASK_ID": "taaaaaa",
        "ENGINE_CALLER": "ci",
        "ENGINE_HOME": "/home/e",
    }


def test_a_directory_that_was_asked_for_by_name_must_be_there() -> None:
    order, _plan = Starter("/home/e", 5).order(spec(argv=["x"], cwd="/asked"), None)
    assert (order.cwd, order.cwd_or_parent) == ("/asked", False)


def test_an_interpreter_starts_with_the_base_and_a_call_adds_its_own() -> None:
    starter = Starter("/home/e", 5)
    asked = spec(kind=Kind.CODE, code="é", env={"A": "own"}, stdin="in", deadline_secs=2.0)
    first = starter.python_order(asked)
    assert (first.python, first.cwd) == ("python3", "/base")
    assert first.env == {
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "TERM": "xterm",
        "PATH": "/bin",
        "A": "base",
        "ENGINE_CALLER": "ci",
        "ENGINE_HOME": "/home/e",
    }
    order = starter.code_order(asked)
    assert (order.code, order.stdin, order.cwd) == (b"\xc3\xa9", b"in", None)
    assert (order.env, order.split, order.deadline_secs) == ({"A": "own"}, False, 2.0)
    assert order.output_cap_bytes == 5
