"""Is the pipeline `ocr` faster than the rapidocr package, for one page and for eight pages from eight threads?

    python bench/ocr_vs_rapidocr.py [IMAGE] [ROUNDS]

Each round measures all contenders one after the other, so that other load of the machine affects them equally. The
output shows medians, and the median ratio to `ocr` within a round (above 1: `ocr` is faster). rapidocr is measured in
the ways that its users call it from threads: one shared engine, and one engine per thread, each with the default
number of threads and with one thread per engine.
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


def default_page() -> Path:
    """Return the scanned page that scikit-image contains."""
    import skimage

    return Path(skimage.__file__).parent / "data" / "page.png"


def timed(call: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(title: str, rounds: int, contenders: dict[str, Callable[[], object]], pages: int) -> None:
    """Measure and print all contenders; the first one is the reference of the ratios."""
    for call in contenders.values():
        call()  # warm-up
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            seconds[name].append(timed(call))
    reference = next(iter(contenders))
    print(f"\n{title}, {rounds} rounds")
    for name, values in seconds.items():
        ratios = [value / base for value, base in zip(values, seconds[reference], strict=True)]
        print(
            f"  {name:38} median {statistics.median(values) / pages * 1000:6.0f} ms per page, "
            f"slowest round {max(values) / pages * 1000:6.0f} ms, ratio to {reference} {statistics.median(ratios):.2f}"
        )


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else default_page()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    data = path.read_bytes()
    shared, shared_1 = RapidOCR(params=QUIET), RapidOCR(params=ONE_THREAD)
    own = [RapidOCR(params=QUIET) for _ in range(PAGES)]
    own_1 = [RapidOCR(params=ONE_THREAD) for _ in range(PAGES)]
    with hami.pipe("ocr") as ocr, ThreadPoolExecutor(PAGES) as threads:
        texts = [line["text"] for line in ocr({"data": data})["result"]]
        same = texts == list(shared(data).txts or ())
        print(f"{path.name}: {len(texts)} lines, text {'identical' if same else 'DIFFERENT'}")

        compare("one page", rounds, {"ocr": lambda: ocr({"data": data}), "rapidocr": lambda: shared(data)}, 1)

        def from_all_threads(call: Callable[[int], object]) -> Callable[[], object]:
            return lambda: list(threads.map(call, range(PAGES)))

        compare(
            f"{PAGES} pages from {PAGES} threads",
            rounds,
            {
                "ocr": from_all_threads(lambda i: ocr({"data": data})),
                "rapidocr, one engine": from_all_threads(lambda i: shared(data)),
                "rapidocr, engine per caller": from_all_threads(lambda i: own[i](data)),
                "rapidocr, one engine, 1 thread": from_all_threads(lambda i: shared_1(data)),
                "rapidocr, engine per caller, 1 thread": from_all_threads(lambda i: own_1[i](data)),
            },
            PAGES,
        )


if __name__ == "__main__":
    main()
