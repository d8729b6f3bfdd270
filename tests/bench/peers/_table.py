"""The result table: which figures are compared, their goals, and whether these are reached."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Place = tuple[str, str, int]  # work, contender, callers


@dataclass(frozen=True)
class Row:
    """A figure of HAMi, alone or as a ratio to the largest figure at the places `over` in the same round."""

    text: str
    goal: str  # "≤ 2"
    figure: str
    of: Place
    over: tuple[Place, ...] = ()
    over_figure: str = ""


def rows() -> list[Row]:
    idle, worker, sleep = ("identity", "hami", 1), ("worker", "hami", 64), ("sleep", "hami", 64)
    one, four, many = (("jpeg", "hami", callers) for callers in (1, 4, 64))
    crowd, alone = ("jpeg", "direct", 64), ("fake", "direct", 1)
    mlp, fake, tasks = ("mlp", "hami", 64), ("fake", "hami", 64), ("identity", "tasks_hami", 64)
    rate, p50, p99 = "calls_per_s", "p50_us", "p99_us"
    listed = [
        Row("Identity, idle, one caller: p50 in µs", "≤ 2", p50, idle),
        Row("… ratio to omniback", "≤ 0.1", p50, idle, (("identity", "omniback", 1),)),
        Row("Identity through a worker, 64 threads: calls/s", "≥ 100000", rate, worker),
        Row("… ratio to queue.Queue", "≥ 3", rate, worker, (("worker", "batcher", 64),)),
        Row("… ratio to omniback", "", rate, worker, (("worker", "omniback", 64),)),
        Row("… CPU time per call in µs", "≤ 10", "cpu_us", worker),
        Row("asyncio, 64 tasks, Identity: calls/s", "≥ 250000", rate, tasks),
        Row("… ratio to asyncio.Queue and futures", "", rate, tasks, (("identity", "tasks_queue", 64),)),
        Row(
            "sleep 1 ms, max 8, 64 threads: calls/s, ratio to the limit",
            "≥ 0.97",
            rate,
            sleep,
            (("sleep", "limit", 1),),
        ),
        Row("… p99, ratio to p50", "≤ 1.3", p99, sleep, (sleep,), p50),
        Row("… calls/s, ratio to the batcher", "", rate, sleep, (("sleep", "batcher", 64),)),
        Row("… calls/s, ratio to omniback", "", rate, sleep, (("sleep", "omniback", 64),)),
        Row("JPEG → CNN → top 5, 1 caller: p50, ratio to direct", "≤ 1.03", p50, one, (("jpeg", "direct", 1),)),
        Row("… 4 callers: calls/s, ratio to direct", "≥ 0.97", rate, four, (("jpeg", "direct", 4),)),
        Row("… 4 callers: calls/s, ratio to the batcher", "", rate, four, (("jpeg", "batcher", 4),)),
        Row("… 64 callers: calls/s, ratio to the limit", "≥ 0.90", rate, many, (("jpeg", "limit", 2),)),
        Row("… 64 callers: p99, ratio to p50", "≤ 1.3", p99, many, (many,), p50),
        Row("… 64 callers, direct instead of HAMi: p99, ratio to p50", "", p99, crowd, (crowd,), p50),
        Row("… 64 callers: memory, ratio to the pool", "≤ 1.3", "rss_mb", many, (("jpeg", "pool", 64),)),
        Row("… 64 callers: calls/s, ratio to the batcher", "", rate, many, (("jpeg", "batcher", 64),)),
        Row("… 64 callers: calls/s, ratio to omniback", "", rate, many, (("jpeg", "omniback", 64),)),
        Row(
            "… 64 callers, default configuration: calls/s, ratio to the tuned one",
            "≥ 0.95",
            rate,
            ("jpeg", "default", 64),
            (many,),
        ),
        Row("mlp, 64 callers: calls/s, ratio to the limit", "≥ 0.92", rate, mlp, (("mlp", "limit", 1),)),
        Row("… ratio to the batcher", "≥ 1.1", rate, mlp, (("mlp", "batcher", 64),)),
        Row("… ratio to omniback", "", rate, mlp, (("mlp", "omniback", 64),)),
        Row(
            "… default configuration: ratio to the best one",
            "≥ 0.95",
            rate,
            ("mlp", "default", 64),
            (("mlp", "best", 64),),
        ),
        Row("fake accelerator, 64 callers: calls/s, ratio to the limit", "≥ 0.95", rate, fake, (("fake", "limit", 1),)),
        Row("… ratio to the batcher", "", rate, fake, (("fake", "batcher", 64),)),
        Row("… ratio to omniback", "", rate, fake, (("fake", "omniback", 64),)),
        Row("… default configuration: ratio to the tuned one", "≥ 0.95", rate, ("fake", "default", 64), (fake,)),
        Row("fake accelerator, 1 caller: p50, ratio to a direct call", "≤ 1.05", p50, ("fake", "hami", 1), (alone,)),
        Row("DAG hop, inline, in µs", "≤ 1", "hop_us", ("hop_inline", "hami", 1)),
        Row("DAG hop to another thread on one core, in µs", "≤ 5", "hop_us", ("hop_handed_over", "hami", 1)),
    ]
    for work, text in (("worker", "Identity through a worker"), ("sleep", "sleep 1 ms")):
        peak = tuple((work, "hami", callers) for callers in (1, 8, 64, 512))
        listed += [
            Row(f"{text}, {callers} callers: calls/s, ratio to the peak", "≥ 0.9", rate, (work, "hami", callers), peak)
            for callers in (8, 64, 512)
        ]
    return [
        *listed,
        Row("1000 pipes opened and closed: threads left", "≤ 0", "threads_left", ("pipes", "hami", 1)),
        Row("… memory growth in MB", "≤ 10", "rss_grown_mb", ("pipes", "hami", 1)),
    ]


def table(lines: list[dict[str, Any]]) -> str:
    """Return a Markdown table without the rows whose figures were not measured."""
    rounds: dict[int, dict[Place, dict[str, Any]]] = defaultdict(dict)
    problems = []
    for line in lines:
        if "error" in line:
            problems.append(f"* {line['work']}, {line['contender']}: {line['error']}")
        else:
            rounds[line["round"]][line["work"], line["contender"], line["callers"]] = line
    written = [
        "| | HAMi | peer | ratio, median (min … max) | goal | |",
        "|---|---|---|---|---|---|",
        *filter(None, (_written(row, list(rounds.values())) for row in rows())),
    ]
    return "\n".join([*written, *([""] if problems else []), *problems])


def _written(row: Row, rounds: list[dict[Place, dict[str, Any]]]) -> str:
    pairs = []
    for measured in rounds:
        if row.of in measured and all(place in measured for place in row.over):
            beside = [float(measured[place][row.over_figure or row.figure]) for place in row.over]
            pairs.append((float(measured[row.of][row.figure]), max(beside, default=1.0)))
    if not pairs:
        return ""
    values = sorted(figure / beside for figure, beside in pairs)
    middle = statistics.median(values)
    spread = f"({_number(values[0])} … {_number(values[-1])})"
    if row.over:
        figures = [_number(statistics.median(column)) for column in zip(*pairs, strict=True)]
        shown = f"{figures[0]} | {figures[1]} | {_number(middle)} {spread}"
    else:
        shown = f"{_number(middle)} {spread} | | "
    return f"| {row.text} | {shown} | {row.goal} | {_verdict(row.goal, middle)} |"


def _verdict(goal: str, value: float) -> str:
    if not goal:
        return ""
    relation, number = goal.split()
    reached = value <= float(number) if relation == "≤" else value >= float(number)
    return "reached" if reached else "missed"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
