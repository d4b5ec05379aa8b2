"""Mirrors `engine/journal/levels.py` and the rules beside it: the first rule that fits decides."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from journal.scoring import levelled

from engine.journal.levels import Level, LevelFinder, _Known, is_plain
from engine.journal.words import BY_WORD


def level(text: str) -> str:
    """The word for the level of one line by itself; both ways to find it must agree."""
    found, _ = LevelFinder().find_one(text)
    assert LevelFinder().find([text]).levels == [found]
    return found.word


def levels(*texts: str) -> str:
    """The levels of lines that follow each other, a letter each."""
    letters = dict(zip(Level, "DINWECAM", strict=True))
    return "".join(letters[found] for found in LevelFinder().find(list(texts)).levels)


def test_levels_are_in_the_order_of_their_severity() -> None:
    words = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    assert [found.word for found in sorted(Level)] == words
    assert [int(found) for found in Level] == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("digit", "word"),
    [
        *[(0, "emergency"), (1, "alert"), (2, "critical"), (3, "error")],
        *[(4, "warning"), (5, "notice"), (6, "info"), (7, "debug")],
    ],
)
def test_a_sd_daemon_prefix_gives_the_level_and_leaves_the_text(digit: int, word: str) -> None:
    found = LevelFinder().find(["plain", f"<{digit}>ERROR: of no account", "plain"])
    assert found.levels[1].word == word
    assert found.texts == ["plain", "ERROR: of no account", "plain"]


@pytest.mark.parametrize("text", ["<8>text", "<33>text", "<>text", " <3>text", "<3", "<a>text"])
def test_what_only_looks_like_a_prefix_stays(text: str) -> None:
    assert LevelFinder().find([text]).texts == [text]
    assert level(text) == "info"


def test_the_prefix_comes_before_the_lines_own_level_and_this_before_its_text() -> None:
    assert level('<4>{"level":"error"}') == "warning"
    assert level('{"level":"debug","msg":"ERROR: x"}') == "debug"
    assert level("ts=1 level=info msg=ERROR error=x") == "info"
    assert level("INFO: main.c:1:2: error: x") == "info"
    assert level("2026-03-14 13:00:01 DEBUG Traceback was empty") == "debug"


@pytest.mark.parametrize("word", BY_WORD)
def test_no_level_word_is_passed_over_as_plain(word: str) -> None:
    for text in (f"ts=1 lvl={word}", f"ts=1 level={word.upper()}", f"2026-03-14 [{word}] x"):
        assert level(text) == BY_WORD[word].word


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"level":"warn"}', "warning"),
        ('{"lvl":"ERROR"}', "error"),
        ('{"severity":"EMERGENCY"}', "emergency"),
        ('{"levelname":"CRITICAL"}', "critical"),
        ('{"log.level":"error"}', "error"),
        ('{"log":{"level":"error"}}', "error"),
        ('{"level":10}', "debug"),
        ('{"level":50}', "error"),
        ('{"level":60}', "critical"),
        ('{"severity":4}', "warning"),
        ('{"PRIORITY":"3"}', "error"),
        ('{"levelno":30}', "warning"),
        ('{"level":5}', "info"),
        ('{"level":true}', "info"),
        ('{"level":null,"severity":"alert"}', "alert"),
        ('{"level":99999999999999999999999}', "info"),
        ('{"error":"x"}', "info"),
        ('{"level":"error","text":"' + "x" * 4000, "error"),
        ("{" * 4096, "info"),
        ('{"a":' * 800, "info"),
        ('[{"level":"error"}]', "info"),
        ("level=error msg=x", "error"),
        ("time=1 level=warn", "warning"),
        ('a="level=error b" level=info', "info"),
        ('a="x \\" level=error" level=notice', "notice"),
        ("level=error", "info"),
        ("set level=error now=1", "info"),
        ("loglevel=crit a=1", "critical"),
        ('2026-03-14T13:00:01Z {"level":"error"}', "error"),
        ("web-1  | ts=1 level=error", "error"),
    ],
)
def test_a_line_with_fields_has_the_level_that_it_states(text: str, word: str) -> None:
    assert level(text) == word


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ERROR", "error"),
        ("ERROR something", "error"),
        ("ERROR: something", "error"),
        ("[warn] something", "warning"),
        ("[WARNING  ] something", "warning"),
        ("E1130 13:00:01.300000    4711 controller.go:114] failed", "error"),
        ("npm ERR! code E404", "error"),
        ("npm WARN deprecated x", "warning"),
        ("2026-03-14 13:00:01 ERROR x", "error"),
        ("2026-03-14T13:00:01.123Z [app] (main) FATAL x", "critical"),
        ("[2026-03-14 13:00:01,123: WARNING/MainProcess] x", "warning"),
        ("Mar 14 13:00:01 web app[12]: ALERT: x", "alert"),
        ("13:00:01 NOTICE x", "notice"),
        ("app.db - CRITICAL - x", "critical"),
        ("W: GPG error: x", "warning"),
        ("Warning: x", "warning"),
        ("Error: x", "error"),
        ("ERROR_COUNT is 3", "info"),
        ("ERROR=3", "info"),
        ("ERROR.md", "info"),
        ("error_handler.c", "info"),
        ("Errors are data", "info"),
        ("error: null", "info"),
        ("0 errors, 0 warnings", "info"),
        ("the build said ERROR", "info"),
    ],
)
def test_a_level_word_counts_where_loggers_put_it(text: str, word: str) -> None:
    assert level(text) == word


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("main.c:1:2: error: x", "error"),
        ("main.c:1:2: fatal error: x", "error"),
        ("main.c:1:2: warning: x", "warning"),
        ("main.c:1:2: note: x", "notice"),
        ("error[E0308]: mismatched types", "error"),
        ("fatal: not a git repository", "error"),
        ("panic: runtime error: x", "error"),
        ("make: *** [Makefile:2: all] Error 1", "error"),
        ("make[2]: *** Waiting for unfinished jobs....", "error"),
        ("FAILED tests/test_a.py::test_x - assert 1", "error"),
        ("Segmentation fault (core dumped)", "error"),
        ("Killed", "error"),
        ("bash: line 3: x: command not found", "error"),
        ("/bin/sh: 1: y: z", "error"),
        ("ls: cannot access 'x': No such file or directory", "error"),
        ("thread 'main' panicked at 'x', a.rs:1:2", "error"),
        ("a.o: in function `main': undefined reference to `x'", "error"),
        ("README.md:3:ERROR: is printed when", "info"),
        ("grep -c error: a.c", "info"),
        ("test_error PASSED", "info"),
        ("+    raise ValueError(1)", "info"),
        ("Killed processes: none", "info"),
    ],
)
def test_what_compilers_and_runtimes_say_is_known(text: str, word: str) -> None:
    assert level(text) == word


def test_a_traceback_is_error_from_its_first_line_to_its_last() -> None:
    found = levels(
        "before",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "    warn = debug(0)",
        "           ^^^^^^^^",
        "KeyError: 'x'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "a.py", line 2, in <module>',
        "a.b.Custom: x",
        "  after",
    )
    assert found == "IEEEEEIEIEEEI"


def test_a_traceback_in_a_margin_ends_with_its_last_line_there() -> None:
    found = levels(
        "web-1  | Traceback (most recent call last):",
        'web-1  |   File "a.py", line 1, in <module>',
        "web-1  | KeyboardInterrupt",
        "web-1  | after",
    )
    assert found == "EEEI"


def test_an_exception_group_is_error_to_the_end_of_its_frame() -> None:
    found = levels(
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "a.py", line 1, in <module>',
        "  | ExceptionGroup: two (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | ValueError: x",
        "    +------------------------------------",
        "after",
    )
    assert found == "EEEEEEI"


def test_a_syntax_error_without_a_header_is_a_traceback_too() -> None:
    assert (
        levels('  File "a.py", line 1', "    x = = 1", "        ^", "SyntaxError: x", "y")
        == "EEEEI"
    )


def test_an_exception_of_a_small_name_and_no_text_ends_its_traceback_too() -> None:
    frame = '  File "a.py", line 1, in <module>'
    assert levels("Traceback (most recent call last):", frame, "timeout", "after") == "EEEI"
    assert levels("plain", "timeout") == "II"


def test_what_stands_behind_a_traceback_is_of_no_matter_to_it() -> None:
    # The rest of a message, or the next program's output: nobody can tell.
    frame = '  File "a.py", line 1, in <module>'
    header = "Traceback (most recent call last):"
    assert levels(header, frame, "ValueError: first", "second") == "EEEI"


def test_output_between_the_lines_of_a_traceback_ends_it() -> None:
    assert levels("Traceback (most recent call last):", "50 % done", "    indented") == "EII"
    assert levels("Traceback (most recent call last):", "INFO: x", "    indented") == "EII"


def test_a_traceback_that_is_only_spoken_of_is_none() -> None:
    assert levels('"Traceback (most recent call last):"', "  indented") == "II"
    assert levels("prints Traceback (most recent call last): x", "  indented") == "II"


def test_frames_have_the_level_of_what_they_belong_to() -> None:
    frame = "    at f (/home/dev/a.js:1:2)"
    assert levels("TypeError: x", frame, frame, "after", "", "", "", frame) == "EEEIIIII"
    assert levels("Error: x", "Require stack:", "- /home/dev/a.js", frame) == "EIIE"
    assert levels("(node:1) Warning: x", frame) == "WW"
    assert levels("plain", frame) == "II"


def test_a_plain_line_behind_an_error_is_plain_and_a_frame_behind_it_belongs_to_it() -> None:
    assert levels("Error: x", "its reason", "    at f (a:1:2)", "done") == "EIEI"
    assert levels("Error: x", "1", "2", "3", "4", "    at f (a:1:2)") == "EIIIII"
    assert levels("warning: x", "    at f (a:1:2)", "y") == "WWI"


def test_the_message_of_a_panic_stands_on_its_next_line() -> None:
    assert levels("thread 'main' panicked at a.rs:1:2:", "index out of bounds", "x") == "EEI"


WORDS = st.sampled_from(
    [
        *("ERROR", "error:", "[warn]", "warning:", "level=error", '{"level":50}', "<3>", "fatal"),
        *("Traceback (most recent call last):", '  File "a", line 1', "    at f (a:1:2)", "panic"),
        *("|", "+", "  ", "E   x", "a.c:1:2:", "2026-03-14 13:00:01", "make: ***", "\u0130"),
        *("thread 'main' panicked at a.rs:1:2:", "KeyError: x", "+ Exception Group"),
    ]
)
lines = st.lists(st.lists(WORDS | st.text(max_size=3), max_size=6).map(" ".join), max_size=12)


@given(lines.map(lambda texts: [text.replace("\n", " ") for text in texts]), st.integers(0, 12))
@example(["\u0130" * 3, "error: x", "x"], 1)
def test_levels_do_not_depend_on_how_many_lines_come_at_once(texts: list[str], at: int) -> None:
    whole = LevelFinder().find(texts)
    first = LevelFinder()
    begun = first.find(texts[:at])
    rest = LevelFinder(first.memory).find(texts[at:])
    assert begun.levels + rest.levels == whole.levels
    assert begun.texts + rest.texts == whole.texts


digits = st.integers(0, 9).map(str)


@given(st.lists(WORDS | st.text(max_size=3) | digits, max_size=8).map(" ".join), st.data())
@example("src/a.py:1:2: e501 too long", None)
def test_a_line_is_what_it_is_whatever_others_that_differ_in_digits_were(
    text: str, data: st.DataObject | None
) -> None:
    text = text.replace("\n", " ")
    others = [re.sub(r"[0-9]", "7", text), re.sub(r"[0-9]", "", text)]
    if data is not None:
        others.append(re.sub(r"[0-9]", lambda _: data.draw(digits), text))
    LevelFinder().find(others)
    alone, rest = LevelFinder().find_one(text)
    found = LevelFinder().find([text])
    assert (found.levels, found.texts) == ([alone], [rest])


def test_a_block_with_one_finding_among_lines_like_it_is_not_plain() -> None:
    like = [f"src/a{n}.py:{n}:2: x{n:02} fine" for n in range(100)]
    assert is_plain("\n".join([*like, ""]).encode())
    assert not is_plain("\n".join([*like, "src/a.py:100:2: e501 fine", *like, ""]).encode())
    assert (
        LevelFinder().find([*like, "src/a.py:1:2: E501 fine", *like]).levels[100].word == "warning"
    )


def test_what_is_known_of_lines_stays_small() -> None:
    known, most = _Known(), 0
    for start in range(0, 60_000, 1_000):
        shapes = [f"{chr(97 + n % 26) * (n % 200)} {n:x}" for n in range(start, start + 1_000)]
        assert known.verdicts(shapes)[shapes[0]] is False
        assert known.verdicts(["an error", *shapes[:3]])["an error"] is True
        held = known.verdicts([])
        assert known.size == sum(len(shape) + 150 for shape in held)
        most = max(most, len(held))
    assert 2_000_000 / 250 < most < 12_000  # of 60,000


@given(st.text(max_size=200))
def test_any_text_has_a_level_and_keeps_its_characters(text: str) -> None:
    found, rest = LevelFinder().find_one(text)
    assert found in Level
    assert text.endswith(rest)
    assert len(text) - len(rest) in (0, 3)


@pytest.mark.parametrize(
    "part",
    [
        *" :.=!|_'\"1aA/([{<-#",
        *("a.", "1:", ": ", "! ", "a: ", "::", 'a="', "a=b ", "[a] ", "Error.", "1 failed, "),
        *(" in 1", "a - ", "E   ", '{"a":', "0 ", "a:1:", "' ", "INFO | "),
    ],
)
@pytest.mark.parametrize("start", ["", "thread '", "Tests: 0 ", "bash: ", "2026-03-14 13:00:01 "])
def test_no_line_takes_long_whatever_is_in_it(part: str, start: str) -> None:
    text = (start + part * 4096)[:4090] + " error"
    begun = time.process_time()
    LevelFinder().find_one(text)
    LevelFinder().find_one(text + " Traceback (most recent call last):")
    assert time.process_time() - begun < 0.1  # seconds; a quadratic form needs more


def test_a_block_that_is_plain_has_no_line_that_is_not_info() -> None:
    plain = 0
    for _path, _labels, _levels, texts in levelled():
        for text in texts:
            alone, _ = LevelFinder().find_one(text)
            if is_plain(text.encode() + b"\n"):
                plain += 1
                assert alone is Level.INFO, text
            else:
                assert not is_plain(b"y\n" + text.encode() + b"\ny\n"), text
    assert plain > 1000
