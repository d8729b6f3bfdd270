"""A process of one contender: reads works from stdin, one JSON object a line, and writes their figures to stdout."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _contenders import CONTENDERS, Contender, memory, set_memory_back
from _texts import of_length, varied

Call = Callable[[str], Any]


def by_threads(call: Call, texts: list[str], callers: int) -> dict[str, float]:
    """Let each caller, a thread, take the next text as soon as its last one is answered."""
    times: list[float] = []
    taken = itertools.count()

    def run() -> None:
        while (number := next(taken)) < len(texts):
            before = time.perf_counter()
            call(texts[number])
            times.append(time.perf_counter() - before)

    threads = [threading.Thread(target=run) for _ in range(callers)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return figures(times, time.perf_counter() - begin)


def by_tasks(contender: Any, texts: list[str], callers: int) -> dict[str, float]:
    """Do the same with tasks of the event loop that the contender has."""
    times: list[float] = []
    taken = itertools.count()

    async def run() -> None:
        while (number := next(taken)) < len(texts):
            before = time.perf_counter()
            await contender.aone(texts[number])
            times.append(time.perf_counter() - before)

    async def all_of_them() -> None:
        await asyncio.gather(*(run() for _ in range(callers)))

    begin = time.perf_counter()
    contender.wait(all_of_them())
    return figures(times, time.perf_counter() - begin)


def figures(times: list[float], seconds: float) -> dict[str, float]:
    times.sort()
    return {"rate": len(times) / seconds, "p50": times[len(times) // 2], "p99": times[int(0.99 * len(times))]}


def callers(contender: Contender, texts: list[str], number: int = 64) -> dict[str, float]:
    if hasattr(contender, "aone"):
        return by_tasks(contender, texts, number)
    return by_threads(contender.one, texts, number)


def offline(contender: Contender, texts: list[str]) -> dict[str, float]:
    begin = time.perf_counter()
    contender.many(texts)
    return {"rate": len(texts) / (time.perf_counter() - begin)}


def among_short(contender: Contender, count: int) -> dict[str, float]:
    """Measure short texts without and with a long one among them, and the memory that the long one takes."""
    short = [of_length(10, seed) for seed in range(count)]
    callers(contender, short)
    set_memory_back()
    without, before = callers(contender, short), memory()
    long = threading.Timer(0.3 * count / without["rate"], contender.one, [of_length(512)])
    long.start()
    among = callers(contender, short)
    long.join()
    return {"p99": among["p99"] / without["p99"], "memory": (memory() - before) / 1e6}


def tokenizing(contender: Contender, texts: list[str]) -> dict[str, float]:
    if hasattr(contender, "tokenizer"):
        begin = time.perf_counter()
        contender.tokenizer.encode_batch_fast(texts)
        return {"rate": len(texts) / (time.perf_counter() - begin)}
    return by_threads(contender.tokenized, texts, 64)


def work(contender: Contender, name: str, count: int, file: str) -> dict[str, float]:
    if name in ("vectors", "alone"):
        texts = varied(count)
        vectors = contender.many(texts) if name == "vectors" else [contender.one(text) for text in texts]
        np.save(file, np.asarray(vectors, np.float32))
        return {}
    if name == "callers":
        return callers(contender, varied(count))
    if name == "offline":
        return offline(contender, varied(count, seed=8))
    if name == "tokenizing":
        return tokenizing(contender, varied(count))
    return among_short(contender, count)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print
    contender = CONTENDERS[sys.argv[1]](sys.argv[2])
    contender.many([of_length(16), of_length(64)])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        before = time.process_time()
        found = work(contender, **asked)
        found["cpu"] = (time.process_time() - before) * 1000 / asked["count"]
        print(json.dumps(found), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # some libraries have threads that never end


if __name__ == "__main__":
    main()
