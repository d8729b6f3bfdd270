"""JPEG bytes to scores, 64 callers: is a pipe as fast as a batcher that is written and tuned by hand?"""

from __future__ import annotations

import hami
from _by_hand import Batcher, ByHand
from _work import (
    MODEL,
    ON_GPU,
    PREPARED,
    SECONDS,
    WHOLE,
    Captured,
    closed_loop,
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
# Most in a batch, workers, how many ms a worker waits for more; both sides choose among them.
SETTINGS = ((16, 2, 0.0), (32, 1, 0.0), (32, 2, 0.0), (32, 2, 4.0))


def make_batcher(most: int, workers: int, wait: float) -> Batcher:
    model = module()
    return Batcher([ByHand(Captured(model, sizes(most))) for _ in range(workers)], most, wait)


def make_pipe(most: int, instances: int, wait: float) -> hami.Pipe:
    node = {"backend": WHOLE, **MODEL, **PREPARED, "graphs": sizes(most), "max": most, "instance_num": instances}
    return hami.pipe({**node, "batching": "max", "batching_timeout": wait})


def main() -> None:
    files = pictures()
    say(f"{len(files)} files of {sum(map(len, files)) / len(files) / 1000:.0f} kB")
    by_hand, by_pipe = {}, {}
    for setting in SETTINGS if ON_GPU else SETTINGS[:1]:
        batcher = make_batcher(*setting)
        for _ in range(2):  # the first is a warm-up
            by_hand[setting] = closed_loop(batcher, files, CALLERS, SECONDS / 2)
        batcher.close()
        with make_pipe(*setting) as pipe:
            for _ in range(2):
                by_pipe[setting] = closed_loop(lambda file: pipe({"data": file}), files, CALLERS, SECONDS / 2)
            speeds = f"by hand {by_hand[setting]:.0f}, pipe {by_pipe[setting]:.0f} images/s"
            say(f"max {setting[0]}, {setting[1]} at once, wait {setting[2]} ms: {speeds}")
            say(f"  {pipe.stats()['default']}")
    best_hand, best_pipe = max(by_hand, key=by_hand.__getitem__), max(by_pipe, key=by_pipe.__getitem__)
    batcher = make_batcher(*best_hand)
    with make_pipe(*best_pipe) as pipe:
        taken = interleaved(
            {
                "by hand": lambda: closed_loop(batcher, files, CALLERS, SECONDS),
                "pipe": lambda: closed_loop(lambda file: pipe({"data": file}), files, CALLERS, SECONDS),
            }
        )
    batcher.close()
    value = ratio(taken, "pipe", "by hand")
    result(
        "JPEG bytes to ResNet-50 scores, 64 callers / a batcher by hand, each at its best setting",
        value,
        at_least=1.0,
        images_per_s=medians(taken),
        by_hand=f"max {best_hand[0]}, {best_hand[1]} workers, wait {best_hand[2]} ms",
        pipe=f"max {best_pipe[0]}, {best_pipe[1]} instances, wait {best_pipe[2]} ms",
    )


if __name__ == "__main__":
    main()
