from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine.config import BadSetting, Home, Settings, load_settings


def load(home: Path, flags: dict[str, Any] | None = None, **overrides: str) -> Settings:
    return load_settings(home, overrides, flags or {})


def test_without_anything_said_the_defaults_stand(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.listen is None
    assert settings.slot_count == 16 * (os.cpu_count() or 1)
    assert settings.inline_budget_secs == 20
    assert settings.output_cap_bytes == 1_073_741_824
    assert settings.min_free_bytes == 1_073_741_824
    assert settings.queue_limit == 10_000
    assert settings.total_output_cap_bytes == 21_474_836_480
    assert settings.retention_days == 7
    assert settings.ended_tasks == 100_000
    assert settings.max_tasks_per_caller == 5_000


def test_set_wins_over_the_file_and_a_flag_over_both(tmp_path: Path) -> None:
    (tmp_path / "engine.toml").write_text('slots = 2\nqueue_limit = 3\nlisten = "[::1]:1"\n')
    settings = load(tmp_path, {"slots": 5, "listen": None}, slots="4", queue_limit="9")
    assert (settings.slots, settings.queue_limit, settings.listen) == (5, 9, "[::1]:1")


def test_a_flag_is_about_one_lane_and_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "engine.toml").write_text("[lanes]\ngpu = 1\ndb = 2\n")
    settings = load(tmp_path, {"lanes": {"gpu": 4, "big": 1}})
    assert settings.lanes == {"gpu": 4, "db": 2, "big": 1}
    assert load(tmp_path, lanes="{ gpu = 3 }").lanes == {"gpu": 3}
    assert load(tmp_path).lanes == {"gpu": 1, "db": 2}


def test_what_is_set_is_read_as_toml_and_else_as_text(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        allowed_hosts='["a", "b:1"]',
        human_token_file="/x/y = z",
        listen="127.0.0.1:80",
        inline_budget_secs="0.5",
    )
    assert settings.allowed_hosts == ("a", "b:1")
    assert settings.human_token_file == "/x/y = z"
    assert settings.listen == "127.0.0.1:80"
    assert settings.inline_budget_secs == 0.5


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("slots", "0", ">= 1"),
        ("slots", "many", "int"),
        ("slots", "true", "bool"),
        ("slots", "[" * 5000, "int"),
        ("slots", "9" * 5000, "int"),
        ("inline_budget_secs", "20.5", "<= 20"),
        ("inline_budget_secs", "-1", ">= 0"),
        ("inline_budget_secs", "nan", ">= 0"),
        ("output_cap_bytes", "5", ">= 1048576"),
        ("allowed_hosts", "[1]", "str"),
        ("log_format", "loud", "console or json"),
        ("slotz", "1", "there is no setting 'slotz'"),
    ],
)
def test_a_bad_value_is_told_with_its_name_and_why(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    with pytest.raises(BadSetting) as told:
        load(tmp_path, None, **{name: text})
    assert f"--set {name}" in str(told.value)
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"slots = \n", "Invalid value"),
        (b"slots = 1\nslots = 2\n", "overwrite"),
        (b'a = "\xff"\n', "utf-8"),
        (b"slots = " + b"[" * 5000, "recursion"),
        (b"slots = " + b"9" * 5000, "digits"),
        (b"[lane]\ngpu = 1\n", "there is no setting 'lane'"),
        (b"[lanes]\nGPU = 1\n", "matching regex"),
        (b"[lanes]\ngpu = -1\n", ">= 0"),
        (b"lanes = 1\n", "object"),
    ],
)
def test_a_file_that_does_not_read_is_told_with_its_path(
    tmp_path: Path, text: bytes, why: str
) -> None:
    (tmp_path / "engine.toml").write_bytes(text)
    with pytest.raises(BadSetting) as told:
        load(tmp_path)
    assert str(told.value).startswith(f"{tmp_path}/engine.toml: ")
    assert why in str(told.value)


def test_a_home_names_its_places_and_makes_none(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    assert home.tasks == tmp_path / "h" / "tasks"
    assert home.lock.name == "engine.lock"
    assert not home.path.exists()


def test_the_limits_are_all_settings_that_are_numbers(tmp_path: Path) -> None:
    limits = load(tmp_path, slots="3", retention_days="0.5").limits

    assert (limits["slots"], limits["retention_days"], limits["ended_tasks"]) == (3, 0.5, 100_000)
    assert limits.keys() >= {
        *("inline_budget_secs", "output_cap_bytes", "total_output_cap_bytes", "journal_lines"),
        *("queue_limit", "max_tasks_per_caller", "min_free_bytes", "max_connections"),
        *("max_waits", "max_inflight_bytes", "warm_shells", "python_sessions"),
    }
    assert load(tmp_path).limits["slots"] == 16 * (os.cpu_count() or 1)
