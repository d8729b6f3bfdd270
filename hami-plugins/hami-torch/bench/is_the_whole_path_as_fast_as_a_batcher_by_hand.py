"""JPEG bytes to scores, 64 callers: is a pipe as fast as a batcher that is written and tuned by hand?

The callers are threads, and then tasks of one loop; both sides choose their setting anew. All settings are tried in
turns, and the two best of each side once more: how fast threads wake up may change from one second to the next, and
which setting is the best changes with it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import hami
from _by_hand import Batcher, ByHand
from _work import (
    MODEL,
    ON_GPU,
    PREPARED,
    SECONDS,
    WHOLE,
    closed_loop,
    closed_loop_of_tasks,
    interleaved,
    medians,
    module,
    pictures,
    ratio,
    result,
    say,
    sizes,
)

CALLERS = 64


class Setting(NamedTuple):
    """Most in a batch, how many batches at once, how many ms one waits for more: both sides choose among them."""

    most: int
    at_once: int
    wait: float

    def __str__(self) -> str:
        return f"max {self.most}, {self.at_once} at once, wait {self.wait} ms"


SETTINGS = (Setting(12, 5, 4.0), Setting(16, 4, 4.0), Setting(20, 3, 4.0), Setting(24, 3, 4.0), Setting(32, 2, 4.0))

Loop = Callable[[float], float]  # images a second, in so many seconds
SIDES = ("by hand", "pipe")


def make_batcher(setting: Setting) -> Batcher:
    model = module()
    workers = [ByHand(model, sizes(setting.most)) for _ in range(setting.at_once)]
    return Batcher(workers, setting.most, setting.wait)


def make_pipe(setting: Setting) -> hami.Pipe:
    node = {"backend": WHOLE, **MODEL, **PREPARED, "graphs": sizes(setting.most), "max": setting.most}
    node |= {"instance_num": setting.at_once, "batching": "max", "batching_timeout": setting.wait}
    return hami.pipe(node)


def loops_of_batcher(batcher: Batcher, files: list[bytes]) -> dict[str, Loop]:
    return {
        "threads": partial(closed_loop, batcher, files, CALLERS),
        "tasks": partial(closed_loop_of_tasks, batcher.acall, files, CALLERS),
    }


def loops_of_pipe(pipe: hami.Pipe, files: list[bytes]) -> dict[str, Loop]:
    return {
        "threads": partial(closed_loop, lambda file: pipe({"data": file}), files, CALLERS),
        "tasks": partial(closed_loop_of_tasks, lambda file: pipe.acall({"data": file}), files, CALLERS),
    }


def best(taken: dict[str, list[float]], side: str, count: int) -> list[str]:
    """Return the settings of a side that did most, by their medians."""
    of_side = [name for name in taken if name.startswith(side)]
    return sorted(of_side, key=lambda name: statistics.median(taken[name]), reverse=True)[:count]


def compare(kind: str, loops: dict[str, Loop]) -> None:
    say(f"callers are {kind}")
    for loop in loops.values():
        loop(SECONDS / 4)  # a warm-up
    tried = interleaved({name: partial(loop, SECONDS / 4) for name, loop in loops.items()}, rounds=3)
    finalists = [name for side in SIDES for name in best(tried, side, 2)]
    taken = interleaved({name: partial(loops[name], SECONDS) for name in finalists})
    by_hand, pipe = (best(taken, side, 1)[0] for side in SIDES)
    result(
        f"JPEG bytes to ResNet-50 scores, 64 callers ({kind}) / a hand-written batcher, each at its best setting",
        ratio(taken, pipe, by_hand),
        at_least=1.0,
        compared=f"{pipe} / {by_hand}",
        images_per_s=medians(taken),
    )


def main() -> None:
    files = pictures()
    say(f"{len(files)} files of {sum(map(len, files)) / len(files) / 1000:.0f} kB")
    loops: dict[str, dict[str, Loop]] = {}
    with ExitStack() as made:
        for setting in SETTINGS if ON_GPU else SETTINGS[:2]:
            batcher = make_batcher(setting)
            made.callback(batcher.close)
            loops[f"by hand: {setting}"] = loops_of_batcher(batcher, files)
            loops[f"pipe: {setting}"] = loops_of_pipe(made.enter_context(make_pipe(setting)), files)
        for kind in ("threads", "tasks"):
            compare(kind, {name: each[kind] for name, each in loops.items()})


if __name__ == "__main__":
    main()
