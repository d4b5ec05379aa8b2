"""The benchmark's group `output`: much output of one job, against the same into a file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Final

from scripts.bench_client import Client
from scripts.benching import Figure, blocks, ratios, running_engine

GIB: Final = 1 << 30


def output_figures(count: int) -> Iterator[Figure]:
    with running_engine() as (home, _pid):
        client = Client(home)
        target = home / "flood"
        text = f"head -c {GIB} /dev/zero"

        def through_engine() -> None:
            reply = client.bash(text, session=False, max_output_bytes=0)
            while reply["status"] == "running":
                reply = client.call("wait", taskId=reply["taskId"], max_output_bytes=0)
            if reply["outputBytes"] != GIB:
                raise RuntimeError(reply)
            client.call("forget", **{"as": "bench"}, taskId=reply["taskId"])

        def to_file() -> None:
            subprocess.run(["bash", "-c", f"{text} > {target}"], check=True)
            target.unlink()

        ours, plain = blocks(count, 1, through_engine, to_file)
        yield Figure("1 GiB by a job / to a file, time", ratios(ours, plain), "x", "0.8")
