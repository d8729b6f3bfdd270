"""Is the pipeline `ocr` faster than the rapidocr package: one page, and eight pages from eight threads?

    python bench/is_ocr_faster_than_rapidocr.py [IMAGE] [ROUNDS]

Every round measures all contenders one after the other, so that what else the machine does hits them alike; printed are
medians, and the ratio to `ocr` within each round (above 1: ocr is faster). rapidocr is measured as its users call it
from threads: one engine that all share, and one engine for each thread; also with its engines set to one thread each.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hami
from rapidocr import RapidOCR

PAGES = 8
QUIET = {"Global.log_level": "error"}
ONE_THREAD = {**QUIET, "EngineConfig.onnxruntime.intra_op_num_threads": 1}


def page_of_scikit_image() -> Path:
    import skimage

    return Path(skimage.__file__).parent / "data" / "page.png"


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(title: str, rounds: int, contenders: dict[str, Callable[[], object]], pages: int) -> None:
    for call in contenders.values():
        call()  # opens the models
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            seconds[name].append(timed(call))
    first = next(iter(contenders))
    print(f"\n{title}, {rounds} rounds")
    for name, values in seconds.items():
        ratios = [value / ours for value, ours in zip(values, seconds[first], strict=True)]
        print(
            f"  {name:34} median {statistics.median(values) / pages * 1000:6.0f} ms per page, "
            f"slowest round {max(values) / pages * 1000:6.0f}, time / ocr's {statistics.median(ratios):.2f}"
        )


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else page_of_scikit_image()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    data = path.read_bytes()
    shared, shared_one = RapidOCR(params=QUIET), RapidOCR(params=ONE_THREAD)
    each = [RapidOCR(params=QUIET) for _ in range(PAGES)]
    each_one = [RapidOCR(params=ONE_THREAD) for _ in range(PAGES)]
    with hami.pipe("ocr") as ocr, ThreadPoolExecutor(PAGES) as threads:
        ours = [line["text"] for line in ocr({"data": data})["result"]]
        same = ours == list(shared(data).txts or ())
        print(f"{path.name}: {len(ours)} lines, text {'identical' if same else 'DIFFERENT'}")

        compare("one page", rounds, {"ocr": lambda: ocr({"data": data}), "rapidocr": lambda: shared(data)}, 1)

        def eight(call: Callable[[int], object]) -> Callable[[], object]:
            return lambda: list(threads.map(call, range(PAGES)))

        compare(
            f"{PAGES} pages from {PAGES} threads",
            rounds,
            {
                "ocr": eight(lambda i: ocr({"data": data})),
                "rapidocr, one engine": eight(lambda i: shared(data)),
                "rapidocr, an engine each": eight(lambda i: each[i](data)),
                "rapidocr, one engine of 1 thread": eight(lambda i: shared_one(data)),
                "rapidocr, an engine of 1 thread each": eight(lambda i: each_one[i](data)),
            },
            PAGES,
        )


if __name__ == "__main__":
    main()
