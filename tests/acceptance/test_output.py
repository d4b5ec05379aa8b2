"""PROTOCOL 3: how much output a reply carries, and `read_output` for all of it."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate

PAGE = {"text", "offset", "nextOffset", "size", "eof", "droppedBytes"}
MARKER = re.compile(r"<(\d+) bytes, (\d+) lines left out; read_output has them>")


def read_all(caller: Caller, task: str, **params: Any) -> tuple[bytes, int]:
    """All of an output, page by page, as raw bytes; and how many pages that took."""
    data, offset, pages = b"", 0, 0
    while True:
        page = caller.call("read_output", taskId=task, offset=offset, raw=True, **params)
        assert page["offset"] == offset
        piece = base64.b64decode(page["base64"])
        assert page["nextOffset"] == offset + len(piece)
        data, offset, pages = data + piece, page["nextOffset"], pages + 1
        if page["eof"]:
            return data, pages
        assert piece


# -- in a reply --------------------------------------------------------------------------------


@pytest.mark.case("C081")
def test_the_end_of_a_long_output_is_in_the_reply(caller: Caller) -> None:
    reply = caller.bash("seq 1 2000000; echo FATAL; exit 3")

    size = 14_888_896 + 6
    assert (reply["status"], reply["exitCode"], reply["outputBytes"]) == ("failed", 3, size)
    output = reply["output"]
    assert len(output.encode()) <= 32_768
    assert output.startswith("1\n2\n3\n")
    assert output.endswith("\n2000000\nFATAL\n")
    (marker,) = MARKER.finditer(output)
    assert output[marker.start() - 1] == output[marker.end()] == "\n"
    omitted = (reply["omittedBytes"], reply["omittedLines"])
    assert (int(marker[1]), int(marker[2])) == omitted
    kept = output.replace(marker[0] + "\n", "")
    assert omitted == (size - len(kept), 2_000_001 - kept.count("\n"))
    assert reply["droppedBytes"] == 0
    whole = Path(reply["outputPath"]).read_bytes()
    assert (len(whole), whole[-13:]) == (size, b"2000000\nFATAL"[-12:] + b"\n")
    assert read_all(caller, reply["taskId"], limit_bytes=524_288)[0] == whole


@pytest.mark.parametrize("limit", [0, 1, 100, 1000, 524_288])
def test_the_limit_of_a_reply_is_what_the_caller_says(limit: int, caller: Caller) -> None:
    # Without logs: there a marker may stand for what other callers of this engine have raised.
    reply = caller.bash("seq 1 1000", max_output_bytes=limit, logs="none")
    again = caller.wait(reply["taskId"], max_output_bytes=limit, logs="none")

    # Below 256 bytes the line that tells of the gap would leave no room: it comes on top.
    shown = MARKER.sub("", reply["output"]) if limit < 256 else reply["output"]
    assert len(shown.strip().encode()) <= limit
    assert reply["outputBytes"] == 3893
    assert again == reply
    if limit >= 3893:
        assert (reply["omittedBytes"], reply["omittedLines"]) == (0, 0)
        assert reply["output"].endswith("\n999\n1000\n")
    else:
        assert reply["omittedBytes"] > 0


@pytest.mark.parametrize("limit", [-1, 524_289, 1.5, True, "1"])
def test_a_limit_out_of_bounds_is_refused(limit: object, caller: Caller) -> None:
    error = caller.refuse("bash", command="true", max_output_bytes=limit)

    assert (error["code"], error["data"]["path"]) == (-32602, "$.max_output_bytes")


def test_both_streams_share_the_limit(caller: Caller) -> None:
    reply = caller.bash("seq 1 5000; seq 1 5000 >&2", streams="split", max_output_bytes=1000)

    sizes = [len(reply[name].encode()) for name in ("stdout", "stderr")]
    assert min(sizes) > 0
    assert sum(sizes) <= 1000
    assert reply["outputBytes"] == 2 * 23_893


@pytest.mark.case("C069")
def test_a_line_longer_than_any_buffer_is_whole(caller: Caller) -> None:
    reply = caller.bash(
        "head -c 70000 /dev/zero | tr '\\0' a; echo; echo next", max_output_bytes=524_288
    )

    assert (reply["exitCode"], reply["outputBytes"]) == (0, 70_006)
    assert reply["output"] == "a" * 70_000 + "\nnext\n"
    assert Path(reply["outputPath"]).read_bytes() == b"a" * 70_000 + b"\nnext\n"


@pytest.mark.case("C070")
def test_twenty_megabytes_without_a_newline_cost_little_memory(
    caller: Caller, engine: Engine
) -> None:
    def peak() -> int:  # KiB
        status = Path(f"/proc/{engine.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)", status)
        assert found
        return int(found[1])

    caller.bash("head -c 2000000 /dev/zero | tr '\\0' a")
    before = peak()
    reply = caller.bash("head -c 20000000 /dev/zero | tr '\\0' a")

    assert (reply["exitCode"], reply["outputBytes"]) == (0, 20_000_000)
    assert Path(reply["outputPath"]).stat().st_size == 20_000_000
    assert reply["output"].count("\n") <= 2
    assert len(reply["output"]) <= 32_768
    assert peak() - before < 8192


@pytest.mark.case("C065")
def test_half_a_character_at_the_end_is_bad_and_kept(caller: Caller) -> None:
    reply = caller.bash(r"printf 'ok\xe2\x82'")

    assert reply["output"] == "ok\ufffd"
    assert Path(reply["outputPath"]).read_bytes() == b"ok\xe2\x82"


@pytest.mark.case("C066")
def test_bad_bytes_and_nul_are_valid_json(caller: Caller) -> None:
    reply = caller.bash(r"printf '\xff\xfe\x00a'")

    assert reply["output"] == "\ufffd\ufffd\u0000a"
    assert Path(reply["outputPath"]).read_bytes() == b"\xff\xfe\x00a"


@pytest.mark.case("C067")
def test_no_reply_has_a_lone_surrogate(client: Client) -> None:
    caller = client.caller()
    command = (
        r"printf '\xed\xa0\x80'; for i in {1..300}; do printf '🏷'; done; printf '\xed\xb3\xbf'"
    )
    for limit in range(300, 330):
        call = caller.send("bash", command=command, max_output_bytes=limit)
        text = json.dumps(call.message())
        assert not re.search(r"(?<!\\ud83c)\\ud[c-f]", text)
        json.loads(text)["result"]["output"].encode()


@pytest.mark.case("C072")
def test_only_a_newline_ends_a_line(caller: Caller) -> None:
    reply = caller.bash(r"printf 'a\xe2\x80\xa8b\x0bc\x0cd\xc2\x85e\n'")

    assert reply["output"] == "a\u2028b\x0bc\x0cd\x85e\n"
    cut = caller.wait(reply["taskId"], max_output_bytes=0)
    assert cut["omittedLines"] == 1


@pytest.mark.case("C073")
def test_a_progress_bar_is_shown_as_it_ends_up_and_kept_as_it_was(caller: Caller) -> None:
    reply = caller.bash(r"for i in $(seq 0 100); do printf '\r%d%%' $i; done; echo")

    assert reply["output"] == "100%\n"
    raw = Path(reply["outputPath"]).read_bytes()
    assert (len(raw), raw.count(b"\n"), reply["outputBytes"]) == (396, 1, 396)


@pytest.mark.case("C075")
def test_escape_sequences_are_kept_and_not_shown(caller: Caller) -> None:
    reply = caller.bash(r"printf '\033]0;pwned\007\033[2J\033[31mERROR\033[0m x\n'")

    assert reply["output"] == "ERROR x\n"
    assert Path(reply["outputPath"]).read_bytes() == (
        b"\x1b]0;pwned\x07\x1b[2J\x1b[31mERROR\x1b[0m x\n"
    )


@pytest.mark.case("C083")
def test_binary_output_stays_below_a_mebibyte_of_json(caller: Caller) -> None:
    call = caller.send(
        "bash", command="head -c 1048576 /dev/urandom; exit 1", max_output_bytes=524_288
    )
    message = call.message()

    assert len(json.dumps(message, ensure_ascii=False).encode()) < 1 << 20
    assert message["result"]["outputBytes"] == 1_048_576
    assert message["result"]["omittedBytes"] > 0
    assert Path(message["result"]["outputPath"]).stat().st_size == 1_048_576


@pytest.mark.case("C152")
def test_nothing_that_a_job_prints_is_a_command_to_us(caller: Caller) -> None:
    text = "::stop::\n##severity=fatal\n##vso[task.complete result=Failed]\n::set-env name=X::y\n"

    reply = caller.bash(f"cat <<'EOF'\n{text}EOF")

    assert (reply["status"], reply["exitCode"], reply["output"]) == ("succeeded", 0, text)
    assert caller.bash("echo [$X]")["output"] == "[]\n"


# -- read_output -------------------------------------------------------------------------------


def test_a_page_says_where_it_stands(caller: Caller) -> None:
    task = caller.bash("echo héllo; echo wörld")["taskId"]

    page = caller.call("read_output", taskId=task, limit_bytes=4)
    rest = caller.call("read_output", taskId=task, offset=page["nextOffset"])
    raw = caller.call("read_output", taskId=task, offset=-7, raw=True)

    assert page == {
        "text": "hél",
        "offset": 0,
        "nextOffset": 4,
        "size": 14,
        "eof": False,
        "droppedBytes": 0,
    }
    assert (rest["text"], rest["nextOffset"], rest["eof"]) == ("lo\nwörld\n", 14, True)
    assert raw.keys() == (PAGE - {"text"}) | {"base64"}
    assert (base64.b64decode(raw["base64"]), raw["offset"]) == ("wörld\n".encode(), 7)


def test_a_page_never_ends_inside_a_character(caller: Caller) -> None:
    task = caller.bash("printf 'aé€🏷%.0s' {1..50}")["taskId"]

    for limit in (1, 2, 3, 4, 7, 33):
        text, offset = "", 0
        while offset < 500:
            page = caller.call("read_output", taskId=task, offset=offset, limit_bytes=limit)
            text, offset = text + page["text"], page["nextOffset"]
        assert text == "aé€🏷" * 50


def test_the_streams_of_a_split_task_are_read_apart(caller: Caller) -> None:
    task = caller.bash("echo out; echo err >&2", streams="split")["taskId"]

    assert caller.call("read_output", taskId=task, stream="stdout")["text"] == "out\n"
    assert caller.call("read_output", taskId=task, stream="stderr")["text"] == "err\n"
    assert caller.refuse("read_output", taskId=task)["data"]["path"] == "$.stream"
    merged = caller.bash("echo x")["taskId"]
    assert caller.refuse("read_output", taskId=merged, stream="stdout")["code"] == -32602


@pytest.mark.parametrize("kind", ["\\0", "\\1", "\\377", '"'])
def test_a_page_of_any_bytes_is_below_512_kib_of_json_and_pages_make_the_whole(
    kind: str, caller: Caller
) -> None:
    task = caller.bash(f"head -c 700000 /dev/zero | tr '\\0' '{kind}'; echo end")["taskId"]
    text, offset, pages = "", 0, 0
    while True:
        page = caller.call("read_output", taskId=task, offset=offset, limit_bytes=524_288)
        assert len(json.dumps(page, ensure_ascii=False).encode()) <= 512 * 1024
        text, offset, pages = text + page["text"], page["nextOffset"], pages + 1
        if page["eof"]:
            break
    raw, _ = read_all(caller, task, limit_bytes=524_288)

    assert len(raw) == 700_004
    assert text == raw.decode("utf-8", "replace")
    assert 2 <= pages < 20


@pytest.mark.case("C132")
def test_offsets_at_the_ends_are_exact(caller: Caller) -> None:
    task = caller.bash("printf 0123456789")["taskId"]

    def at(offset: int) -> tuple[str, int]:
        page = caller.call("read_output", taskId=task, offset=offset)
        return page["text"], page["nextOffset"]

    assert at(0) == ("0123456789", 10)
    assert at(10) == ("", 10)
    assert at(-3) == ("789", 10)
    assert at(-11) == ("0123456789", 10)
    assert caller.refuse("read_output", taskId=task, offset=11)["code"] == -32602
    assert caller.refuse("read_output", taskId=task, limit_bytes=0)["code"] == -32602


@pytest.mark.case("C129")
@pytest.mark.parametrize("offset", [10**9, 2**63, "abc", 1.5, -(2**63)])
def test_an_offset_that_leads_nowhere_is_refused_with_what_is_valid(
    offset: object, caller: Caller
) -> None:
    task = caller.bash("echo x")["taskId"]

    error = caller.refuse("read_output", taskId=task, offset=offset)

    assert (error["code"], error["data"]["path"]) == (-32602, "$.offset")
    if offset == 10**9:
        assert "2" in error["data"]["expected"]
    assert caller.call("read_output", taskId=task, offset=-1)["text"] == "\n"


@pytest.mark.case("C131")
def test_half_a_line_is_read_and_then_its_rest(caller: Caller, gate: Gate) -> None:
    task = caller.start(f"printf ab; {gate.wait}; printf 'cd\\n'")["taskId"]

    first = caller.call("read_output", taskId=task, timeout_secs=5)
    gate.open()
    second = caller.call("read_output", taskId=task, offset=2, timeout_secs=5)

    assert (first["text"], first["nextOffset"], first["eof"]) == ("ab", 2, False)
    assert (second["text"], second["nextOffset"]) == ("cd\n", 5)


def test_an_output_is_followed_byte_for_byte_to_its_end(caller: Caller) -> None:
    task = caller.start("for i in $(seq 60); do echo line $i; sleep 0.01; done")["taskId"]
    text, offset, pages = "", 0, 0
    while True:
        page = caller.call("read_output", taskId=task, offset=offset, timeout_secs=10)
        text, offset, pages = text + page["text"], page["nextOffset"], pages + 1
        if page["eof"]:
            break

    assert text == "".join(f"line {i}\n" for i in range(1, 61))
    assert pages > 3
    assert page["size"] == len(text)


def test_a_follower_waits_its_time_or_until_the_end(caller: Caller, gate: Gate) -> None:
    task = caller.start(gate.wait)["taskId"]

    begun = time.monotonic()
    empty = caller.call("read_output", taskId=task, timeout_secs=0.3)
    took = time.monotonic() - begun
    following = caller.send("read_output", taskId=task, timeout_secs=20)
    gate.open()
    last = following.result()

    assert 0.3 <= took < 2
    assert (empty["text"], empty["size"], empty["eof"]) == ("", 0, False)
    assert (last["text"], last["eof"]) == ("", True)


def test_what_is_left_behind_writes_on_and_is_followed(caller: Caller, gate: Gate) -> None:
    reply = caller.bash(f"echo first; ({gate.wait}; echo later) &")

    assert reply["output"] == "first\n"
    gate.open()
    page = caller.call("read_output", taskId=reply["taskId"], offset=6)
    while not page["text"]:
        page = caller.call("read_output", taskId=reply["taskId"], offset=6)
    assert page["text"] == "later\n"
    assert caller.wait(reply["taskId"])["output"] == "first\nlater\n"


@pytest.mark.case("C133")
def test_a_follower_that_never_reads_holds_up_nobody(engine: Engine, client: Client) -> None:
    caller = client.caller()
    task = caller.start("yes | head -c 50000000; sleep 30")["taskId"]
    with engine.connect() as slow:
        for i in range(100):  # 50 MB of replies that nobody takes
            slow.caller().send("read_output", taskId=task, offset=i * 1000, limit_bytes=524_288)
        quick = client.caller()
        begun = time.monotonic()
        assert quick.bash("echo hi")["output"] == "hi\n"
        took = time.monotonic() - begun
        page = quick.call("read_output", taskId=task, timeout_secs=5)
        resident = int(Path(f"/proc/{engine.pid}/statm").read_text().split()[1]) * 4096
        slow.drop()

    assert took < 0.5
    assert page["text"].startswith("y\ny\n")
    assert resident < 300_000_000
    caller.cancel(task)


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that keeps a mebibyte of each output."""
    home = tmp_path_factory.mktemp("capped") / "home"
    options = ("--set", "output_cap_bytes=1048576", "--set", "min_free_bytes=0")
    with Engine(home, *options) as engine:
        yield engine


@pytest.mark.case("C078")
def test_over_the_cap_bytes_are_dropped_and_counted_and_the_job_runs_on(capped: Engine) -> None:
    with capped.connect() as client:
        caller = client.caller()
        reply = caller.bash("seq 1 1000000; echo LAST; exit 3")
        other = client.caller().bash("echo unharmed")
        task = reply["taskId"]
        first = caller.call("read_output", taskId=task, limit_bytes=100)
        middle = caller.refuse("read_output", taskId=task, offset=3_000_000)
        oldest = middle["data"]["oldestOffset"]
        tail = caller.call("read_output", taskId=task, offset=oldest)
        end = caller.call("read_output", taskId=task, offset=-5)

    size = 6_888_896 + 5
    assert (reply["exitCode"], reply["outputBytes"]) == (3, size)
    assert size - (1 << 20) <= reply["droppedBytes"] < size
    assert reply["output"].startswith("1\n2\n3\n")
    assert reply["output"].endswith("\nLAST\n")
    assert reply["omittedBytes"] >= reply["droppedBytes"]
    assert (middle["code"], middle["data"]["kind"]) == (-32010, "output_gone")
    assert (first["text"][:4], first["droppedBytes"]) == ("1\n2\n", reply["droppedBytes"])
    assert tail["offset"] == oldest
    assert end["text"] == "LAST\n"
    assert other["output"] == "unharmed\n"
    path = Path(reply["outputPath"])
    assert path.stat().st_blocks * 512 <= (1 << 20) + 65_536
    with path.open("rb") as file:  # what is kept stands at its own offset
        file.seek(-5, 2)
        assert file.read() == b"LAST\n"


@pytest.mark.case("C079")
def test_a_job_that_reads_its_own_output_ends_by_the_cap(capped: Engine) -> None:
    with capped.connect() as client:
        caller = client.caller()
        command = 'o=$ENGINE_HOME/tasks/${ENGINE_TASK_ID#t}/output; echo x; tail -c +1 -f "$o"'
        reply = caller.start(command, deadline_secs=1)
        done = caller.wait(reply["taskId"])
        path = Path(done["outputPath"])

        assert done["status"] == "timed_out"
        assert done["outputBytes"] > 2
        assert path.stat().st_blocks * 512 <= (1 << 20) + 65_536
