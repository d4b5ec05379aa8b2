"""Mirrors `engine/cli/doctor.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.fuller_engine import FullerEngine
from cli.looks import WIDTHS, golden, view
from cli.program import engine

from engine.cli.checks import Finding
from engine.cli.doctor import doctor_lines

FINDINGS = [
    Finding("home", "ok", "~/.local/share/engine, yours, closed to other users"),
    Finding("engine", "note", "none runs here", "engine run TEXT starts one; so does engine serve"),
    Finding(
        "version",
        "bad",
        "the engine is 0.1.1, this client 0.1.0",
        "engine stop, then engine serve (jobs run on)",
    ),
    Finding(
        "disk",
        "bad",
        "800 MiB free of 20 GiB: under 1 GiB new jobs are refused",
        "free some space, or lower min_free_bytes in engine.toml",
    ),
]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_findings_at_each_width(width: int | None) -> None:
    assert doctor_lines(FINDINGS, view(width)) == golden("doctor", width)


def test_each_line_fits_the_width() -> None:
    for width in (30, 50, 80):
        assert max(map(len, doctor_lines(FINDINGS, view(width)))) <= width


def found(home: Path, *options: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """The last finding of each kind; of several, one that is not well."""
    done = engine(home, "doctor", "--json", *options)
    assert (done.code, done.err) == (code, "")
    findings = [json.loads(line) for line in done.out.splitlines()]
    return {f["check"]: f for f in sorted(findings, key=lambda f: f["state"] != "ok")}


def test_where_no_engine_is_nothing_is_wrong_and_nothing_is_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said = found(home)
    assert said["engine"] == {
        "check": "engine",
        "state": "note",
        "text": "none runs here",
        "mend": "engine run TEXT starts one; so does engine serve",
    }
    assert said["home"]["state"] == "note"
    assert not home.exists()


def test_an_engine_that_is_well_is_told_with_its_pid_and_version(fake: FullerEngine) -> None:
    said = found(fake.home)
    assert fake.process is not None
    assert said["engine"]["text"].startswith("answers in ")
    assert f", pid {fake.process.pid}, up " in said["engine"]["text"]
    assert said["version"]["text"] == "0.1.0, protocol 1, client and engine"
    looked_at = ["home", "engine", "version", "settings", "files", "disk", "python", "bash"]
    assert set(said) == {*looked_at, "limits", "cgroup"}


@pytest.mark.parametrize(
    ("info", "text"),
    [
        ({"version": "0.0.9"}, "the engine is 0.0.9, this client 0.1.0"),
        ({"protocol": 2}, "the engine speaks protocol 2, this client 1"),
    ],
)
def test_an_engine_of_another_release_is_to_be_started_afresh(
    fake: FullerEngine, info: dict[str, Any], text: str
) -> None:
    fake.info = info
    version = found(fake.home, code=1)["version"]
    assert (version["state"], version["text"]) == ("bad", text)
    assert version["mend"] == "engine stop, then engine serve (jobs run on)"


def test_what_the_engine_says_is_wrong_is_passed_on(fake: FullerEngine) -> None:
    fake.degraded = ["index.db does not take writes: disk full"]
    said = found(fake.home, code=1)["engine"]
    assert (said["state"], said["text"]) == ("bad", "index.db does not take writes: disk full")


def test_an_engine_that_is_there_and_silent_is_bad_one_that_is_gone_is_not(
    fake: FullerEngine,
) -> None:
    fake.stop()
    assert fake.process is not None
    said = found(fake.home, code=1)["engine"]
    assert (said["state"], said["mend"]) == (
        "bad",
        f"see engine.log; kill {fake.process.pid}, engine serve",
    )
    fake._end_process()
    assert found(fake.home)["engine"]["state"] == "note"


def test_a_token_that_is_refused_is_bad(fake: FullerEngine) -> None:
    facts = json.loads((fake.home / "engine.json").read_text())
    facts["tokens"]["observer"] = "x" * 43
    (fake.home / "engine.json").write_text(json.dumps(facts))
    assert found(fake.home, code=1)["engine"]["state"] == "bad"


def test_settings_that_stop_the_engine_are_found_before_it_starts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "engine.toml").write_text("slotz = 3\n")
    said = found(home, code=1)["settings"]
    assert (said["state"], said["text"]) == (
        "bad",
        f"{home}/engine.toml: there is no setting 'slotz'",
    )
    (home / "engine.toml").write_text("min_free_bytes = 4611686018427387904\n")
    assert found(home, code=1)["disk"]["state"] == "bad"


def test_of_an_engine_that_is_afar_only_what_it_says_is_looked_at(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("o" * 43)
    done = engine(
        tmp_path / "home",
        *("doctor", "--url", "ws://127.0.0.1:9/rpc"),
        ENGINE_TOKEN_FILE=str(token),
    )
    assert done == (
        1,
        b"bad   engine    not reachable at ws://127.0.0.1:9/rpc (refused); "
        b"mend: look at the machine where it runs\n",
        "",
    )
