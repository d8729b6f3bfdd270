"""Compare HAMi with direct calls, a thread pool, a hand-written batcher and omniback, on the same work.

    python tests/bench/peers/compare.py DATA [--json FILE] [--rounds 5] [--seconds 1.2] [--minutes 12]
                                                           [--only WORK,…] [--contenders NAME,…]

Contenders alternate over several rounds, each in a process of its own, so that other work on the machine affects all of
them. Prints a JSON line for each measurement (also to FILE) and then a Markdown table: median, minimum and maximum over
the rounds; ratios are taken within a round. No round starts that would end after MINUTES.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from _measure import about_hami, about_this_machine  # noqa: E402
from _table import table  # noqa: E402

# Work, contender, numbers of callers. Every figure of the table comes from one of these.
CELLS = [
    ("identity", "hami", "1"),
    ("identity", "omniback", "1"),
    ("worker", "hami", "1,8,64,512"),
    ("worker", "batcher", "1,8,64,512"),
    ("worker", "omniback", "64"),
    ("identity", "tasks_hami", "64"),
    ("identity", "tasks_queue", "64"),
    ("sleep", "limit", "1"),
    ("sleep", "hami", "1,8,64,512"),
    ("sleep", "batcher", "64"),
    ("sleep", "omniback", "64"),
    ("jpeg", "limit", "2"),
    ("jpeg", "direct", "1,4,64"),
    ("jpeg", "pool", "64"),
    ("jpeg", "batcher", "1,4,64"),
    ("jpeg", "hami", "1,4,64"),
    ("jpeg", "default", "64"),
    ("jpeg", "omniback", "64"),
    ("mlp", "limit", "1"),
    ("mlp", "batcher", "64"),
    ("mlp", "hami", "64"),
    ("mlp", "best", "64"),
    ("mlp", "default", "64"),
    ("mlp", "omniback", "64"),
    ("fake", "limit", "1"),
    ("fake", "direct", "1"),
    ("fake", "batcher", "64"),
    ("fake", "hami", "1,64"),
    ("fake", "default", "64"),
    ("fake", "omniback", "64"),
    ("hop_inline", "hami", "1"),
    ("hop_handed_over", "hami", "1"),
    ("pipes", "hami", "1"),
]


def measure(data: Path, cell: tuple[str, str, str], seconds: float) -> list[dict[str, Any]]:
    work, contender, callers = cell
    if work == "jpeg":
        seconds *= 2  # the longest calls
    command = [sys.executable, str(HERE / "_cell.py"), str(data), work, contender, callers, str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * seconds)
        problem = " ".join(done.stderr.split())[-400:] if done.returncode else ""
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        problem, output = "timed out", (late.stdout or b"").decode()
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if problem or not lines:
        lines.append({"work": work, "contender": contender, "error": problem or "no output"})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder written by make_models.py and make_images.py")
    parser.add_argument("--json", type=Path, help="append every measurement to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.2, help="of each measurement")
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--only", help="only these works")
    parser.add_argument("--contenders", help="only these contenders")
    options = parser.parse_args()

    chosen = [
        cell
        for cell in CELLS
        if (not options.only or cell[0] in options.only.split(","))
        and (not options.contenders or cell[1].removeprefix("tasks_") in options.contenders.split(","))
    ]
    start = time.monotonic()
    longest = 0.0
    lines: list[dict[str, Any]] = []
    for number in range(options.rounds):
        round_start = time.monotonic()
        if round_start - start + longest > options.minutes * 60:
            break
        for cell in chosen:
            for line in measure(options.data, cell, options.seconds):
                lines.append({"round": number, **line})
                print(json.dumps(lines[-1]), flush=True)
                if options.json:
                    with options.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
        longest = max(longest, time.monotonic() - round_start)
    rounds = 1 + max((line["round"] for line in lines), default=-1)
    minutes = (time.monotonic() - start) / 60
    how_often = f"{rounds} rounds, {options.seconds} s for each measurement, {minutes:.1f} minutes"
    print(f"\n{about_this_machine()}; {about_hami()}; {how_often}\n")
    print(table(lines))


if __name__ == "__main__":
    main()
