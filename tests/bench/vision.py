"""Measure hami-vision: suppression of boxes, frames per second of four videos, the cost of a frame, and bad streams.

    python tests/bench/vision.py [--rounds N] [--seconds S]

The model is a sleep of 2 ms, as one on another device. The contenders alternate, and ratios are within a round.
torchvision is compared where it is installed.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cv2
import hami
import numpy as np
from _measure import about_hami, about_this_machine, alternate, percentile, show
from hami_tensor.boxes import nms
from hami_vision.readers import Reader, Reading, SourceError
from hami_vision.sinks import VideoWriter
from hami_vision.sources import Sources

MODEL = 0.002  # seconds
VIDEOS, FRAMES = 4, 240
STREAMS, BAD, RATE = 32, 8, 5  # RATE: frames per second
OUTSTANDING = 16
BATCH = 4  # frames, one of each video: one at a time, a model of 2 ms takes no more than 500 frames per second


@hami.register
class BenchModel(hami.Backend):
    """A model of 2 ms."""

    def forward(self, batch: list[Any]) -> None:
        time.sleep(MODEL)
        for item in batch:
            item["result"] = item["data"].shape


@hami.register
class BenchNothing(hami.Backend):
    """A model that takes no time."""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"].shape


def numpy_nms(boxes: Any, scores: Any, threshold: float = 0.45) -> list[int]:
    """Greedy suppression, as it is commonly written."""
    order, kept = scores.argsort()[::-1], []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    while len(order):
        first, order = order[0], order[1:]
        kept.append(int(first))
        sides = np.minimum(boxes[first, 2:], boxes[order, 2:]) - np.maximum(boxes[first, :2], boxes[order, :2])
        both = np.maximum(sides, 0).prod(1)
        order = order[both <= threshold * (areas[first] + areas[order] - both)]
    return kept


def suppression(rounds: int) -> None:
    random = np.random.default_rng(0)
    corners = random.uniform(0, 600, (8400, 2)).astype(np.float32)
    boxes = np.hstack([corners, corners + random.uniform(5, 40, (8400, 2)).astype(np.float32)])
    scores = random.random(8400).astype(np.float32)
    best = np.sort(scores)[-300]
    few = np.flatnonzero(scores >= best)
    for title, part, calls in (("300 of 8,400 boxes", few, 200), ("8,400 boxes", np.arange(8400), 3)):
        given = np.ascontiguousarray(boxes[part]), np.ascontiguousarray(scores[part])
        contenders: dict[str, Callable[[], object]] = {
            "hami_tensor.boxes.nms": lambda given=given: nms(*given, iou_threshold=0.45),
            "NumPy": lambda given=given: numpy_nms(*given),
        }
        try:
            import torch
            import torchvision

            tensors = tuple(map(torch.from_numpy, given))
            contenders["torchvision"] = lambda tensors=tensors: torchvision.ops.nms(*tensors, 0.45)
        except ImportError:
            print("torchvision: not measured, it is not installed")
        print(f"suppression, {title}:")
        show(alternate(contenders, rounds, calls), "hami_tensor.boxes.nms")


def videos(folder: str) -> list[str]:
    """Write videos of 1280 x 720 with some texture that moves."""
    base = cv2.resize(np.random.default_rng(0).integers(0, 255, (90, 200, 3), np.uint8), (1600, 720))
    files = [os.path.join(folder, f"{i}.webm") for i in range(VIDEOS)]
    with VideoWriter(files[0], 25) as video:
        for i in range(FRAMES):
            left = abs(i * 4 % 640 - 320)
            video.write(np.ascontiguousarray(base[:, left : left + 1280]))
    for file in files[1:]:
        Path(file).write_bytes(Path(files[0]).read_bytes())
    return files


def decode_alone(files: list[str]) -> int:
    with Sources(files) as sources:
        return sum(1 for _ in sources)


def bare_loop(files: list[str]) -> int:
    opened = [cv2.VideoCapture(file) for file in files]
    count = 0
    while opened:
        for video in list(opened):
            ok, _ = video.read()
            if not ok:
                opened.remove(video)
                video.release()
                continue
            time.sleep(MODEL)
            count += 1
    return count


def with_pipe(files: list[str], pipe: hami.Pipe) -> int:
    running: deque[Any] = deque()
    count = 0
    with Sources(files) as sources:
        for frame in sources:
            running.append(pipe.submit(frame.request()))
            if len(running) > OUTSTANDING:
                running.popleft().result()
            count += 1
        while running:
            running.popleft().result()
    return count


def throughput(rounds: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        hami.pipe({"backend": "BenchModel", "max": BATCH}) as pipe,
        hami.pipe("BenchModel") as single,
    ):
        files = videos(folder)
        contenders: dict[str, Callable[[], int]] = {
            "decoding alone": lambda: decode_alone(files),
            "bare loop": lambda: bare_loop(files),
            "Sources and pipe": lambda: with_pipe(files, pipe),
            "single frames": lambda: with_pipe(files, single),
        }
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        costs: dict[str, list[float]] = {name: [] for name in contenders}  # milliseconds of processors for a frame
        for _ in range(rounds):
            for name, work in contenders.items():
                start, spent = time.perf_counter(), time.process_time()
                count = work()
                rates[name].append(count / (time.perf_counter() - start))
                costs[name].append((time.process_time() - spent) / count * 1e3)
        print(f"{VIDEOS} videos of 1280 x 720, model of 2 ms, frames/s:")
        for name, found in rates.items():
            ratio = spread([ours / other for ours, other in zip(rates["Sources and pipe"], found, strict=True)])
            cost = spread([other / ours for ours, other in zip(costs["Sources and pipe"], costs[name], strict=True)])
            print(
                f"  {name:18}{statistics.median(found):8.0f}   ours / it {ratio}; "
                f"{statistics.median(costs[name]):.2f} ms of processors a frame, it / ours {cost}"
            )


def spread(values: list[float], digits: int = 2) -> str:
    low, middle, high = (f"{each:.{digits}f}" for each in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} … {high})"


def each_result(pipe: hami.Pipe, requests: Iterable[dict[str, Any]]) -> None:
    for request in requests:
        pipe(request)


def results_later(pipe: hami.Pipe, requests: Iterable[dict[str, Any]]) -> None:
    running: deque[Any] = deque()
    for request in requests:
        running.append(pipe.submit(request))
        if len(running) > OUTSTANDING:
            running.popleft().result()
    while running:
        running.popleft().result()


def overhead(rounds: int, frames: int = 2000) -> None:
    """Print the processor time of all threads for a frame, less that of a loop over the same requests."""
    image = np.zeros((72, 128, 3), np.uint8)
    with (
        hami.pipe("Identity") as identity,
        hami.pipe("BenchNothing") as single,
        hami.pipe({"backend": "BenchNothing", "max": BATCH}) as batches,
    ):
        ways: dict[str, Callable[[Iterable[dict[str, Any]]], None]] = {
            "none": lambda requests: deque(requests, 0) and None,
            "on the caller's thread": lambda requests: each_result(identity, requests),
            "a backend in Python, one frame after the other": lambda requests: each_result(single, requests),
            f"the same, {OUTSTANDING} frames at a time in batches": lambda requests: results_later(batches, requests),
        }
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, work in ways.items():
                with Sources([[image] * frames]) as sources:
                    start = time.process_time()
                    work(frame.request() for frame in sources)
                    costs[name].append((time.process_time() - start) / frames * 1e6)
    for name in [*ways][1:]:
        more = [ours - none for ours, none in zip(costs[name], costs["none"], strict=True)]
        print(f"cost of the pipe for a frame, processor time, {name}: {spread(more, 1)} µs")


def camera(seconds: float) -> Iterator[tuple[float, Any]]:
    image = np.zeros((36, 64, 3), np.uint8)
    start = time.monotonic()
    for i in range(int(seconds * RATE)):
        time.sleep(max(0.0, start + i / RATE - time.monotonic()))
        yield time.monotonic(), image


class BadCamera(Reader):
    """A stream that stalls, ends, or sends frames of another form, in turns."""

    is_live = True

    def __init__(self, number: int, until: float) -> None:
        self._opened, self._until = number, until

    def __iter__(self) -> Iterator[Reading]:
        self._opened += 1
        yield Reading(lambda: np.zeros((36, 64, 3), np.uint8))
        if self._opened % 3 == 0:
            time.sleep(max(0.0, min(2.0, self._until - time.monotonic())))
        elif self._opened % 3 == 1:
            yield Reading(lambda: np.zeros((36, 64), np.float32))
        raise SourceError("lost")


def streams(seconds: float, bad: int) -> tuple[list[float], int, float]:
    """Return the seconds from each frame of a healthy stream to its result, frames out of order, and that of close."""
    until = time.monotonic() + seconds
    given: dict[str, Any] = {f"good{i}": camera(seconds) for i in range(STREAMS - BAD)}
    given |= {f"bad{i}": BadCamera(i, until) for i in range(bad)}
    late, last, disorder = [], dict.fromkeys(given, -1), 0
    with hami.pipe("BenchModel") as pipe, Sources(given, take="latest", retry=0.1) as sources:
        while time.monotonic() < until:
            frame = sources.next(0.1)
            if frame is None:
                continue
            disorder += frame.index <= last[frame.source]
            last[frame.source] = frame.index
            pipe(frame.request())
            if frame.source.startswith("good"):
                late.append(time.monotonic() - frame.raw_time)
        start = time.monotonic()
        sources.close()
        closing = time.monotonic() - start
    return late, disorder, closing


def bad_streams(rounds: int, seconds: float) -> None:
    ratios, closings, disorders, memory = [], [], 0, []
    for _ in range(rounds):
        p99 = {}
        for bad in (0, BAD):
            late, disorder, closing = streams(seconds, bad)
            p99[bad] = percentile(late, 0.99) * 1e3
            disorders += disorder
            closings.append(closing)
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        ratios.append(p99[BAD] / p99[0])
        print(f"  p99 of healthy streams {p99[0]:.1f} ms alone, {p99[BAD]:.1f} ms beside {BAD} bad ones", flush=True)
    print(
        f"{STREAMS - BAD} streams and {BAD} bad ones, {seconds:g} s each: ratio of p99 {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} … {max(ratios):.2f}); {disorders} frames out of order; "
        f"close at most {max(closings):.2f} s; "
        f"largest memory after each round {', '.join(f'{each:.0f}' for each in memory)} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement with 32 streams")
    asked = parser.parse_args()
    print(f"{about_hami()}; {about_this_machine()}; load {os.getloadavg()[0]:.1f}")
    suppression(asked.rounds)
    throughput(asked.rounds)
    overhead(asked.rounds)
    bad_streams(asked.rounds, asked.seconds)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
