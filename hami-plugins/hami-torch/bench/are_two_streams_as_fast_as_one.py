"""JPEG bytes to scores, 64 callers: are two instances, each with a stream of its own, as fast as one or faster?"""

from __future__ import annotations

import hami
from _work import MODEL, PREPARED, SECONDS, WHOLE, closed_loop, interleaved, medians, pictures, ratio, result, sizes

MOST = 32


def main() -> None:
    files = pictures()
    node = {"backend": WHOLE, **MODEL, **PREPARED, "graphs": sizes(MOST), "max": MOST, "batching": "max"}
    with hami.pipe({**node, "instance_num": 1}) as one, hami.pipe({**node, "instance_num": 2}) as two:
        measures = {
            "one": lambda: closed_loop(lambda file: one({"data": file}), files, 64, SECONDS),
            "two": lambda: closed_loop(lambda file: two({"data": file}), files, 64, SECONDS),
        }
        interleaved(measures, 1)  # a warm-up
        taken = interleaved(measures)
    value = ratio(taken, "two", "one")
    question = "SyncTensor with two instances / with one, the whole path, 64 callers"
    result(question, value, at_least=1.0, images_per_s=medians(taken))


if __name__ == "__main__":
    main()
