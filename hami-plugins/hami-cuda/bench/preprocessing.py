"""Compare the preprocessing of hami-cuda, that of torchpipe, and nvJPEG and the kernels alone: images per second.

Callers are threads in a closed loop, each with one JPEG file of 640 x 480 at a time. The sides run in turns.
"""

from __future__ import annotations

import io
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hami-torch" / "bench"))
from _workload import closed_loop, interleaved, log, medians, ratio, result

CALLERS = (1, 10, 64)
SECONDS = float(os.environ.get("HAMI_BENCH_SECONDS", "1"))
ROUNDS = int(os.environ.get("HAMI_BENCH_ROUNDS", "3"))
CHAIN = ("DecodeTensor", "ResizeTensor", "CvtColorTensor", "SyncTensor")
SIZE = {"width": 224, "height": 224, "color": "bgr"}
KEYS = {**SIZE, "max": 16, "instance_num": 2}
BATCH = 32  # of the ceilings
LEARNS_S = 3.0  # before the default configuration is measured


def jpeg_files(count: int = 64) -> list[bytes]:
    """Return different files of 640 x 480 pixels."""
    random = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC)).astype(int)
        noise = random.integers(-12, 13, pixels.shape)
        file = io.BytesIO()
        Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
        files.append(file.getvalue())
    return files


def backend(owner: str) -> str:
    return f"S[{','.join(f'{owner}::{name}' for name in CHAIN)}]"


def chain(owner: str, **keys: Any) -> dict[str, Any]:
    return {"backend": backend(owner), **KEYS, **keys}


def batches_per_second(config: dict[str, Any], requests: Callable[[], list[dict[str, Any]]]) -> float:
    """Return images per second of batches of BATCH that one caller sends, one after the other."""
    with hami.pipe({**config, "max": BATCH, "batching": "greedy", "instance_num": 1}) as pipe:
        for _ in range(3):
            pipe(requests())
        started, images = time.perf_counter(), 0
        while time.perf_counter() - started < SECONDS:
            images += len(pipe(requests()))
        return images / (time.perf_counter() - started)


def latency(call: Callable[[bytes], Any], files: list[bytes]) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for number in range(200):
        started = time.perf_counter()
        call(files[number % len(files)])
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def torchpipe_call() -> Callable[[bytes], Any] | None:
    """Return the same chain in torchpipe; None, with the reason in the log, if torchpipe cannot be used."""
    try:
        import torchpipe

        keys = {"resize_w": KEYS["width"], "resize_h": KEYS["height"], "color": KEYS["color"]}
        counts = {"max": KEYS["max"], "instance_num": KEYS["instance_num"]}
        pipe = torchpipe.pipe({"images": {"backend": f"S[{','.join(CHAIN)}]", **keys, **counts}})
        pipe({"data": jpeg_files(1)[0]})
    except Exception as error:
        log(f"torchpipe is left out: {type(error).__name__}: {error}")
        return None
    return lambda file: pipe({"data": file})


# Bounds by the other side: of the median latency of one caller, and of images per second of 10 and 64 callers.
BOUNDS = {"torchpipe": (0.85, 3.0, 5.0)}


def compare_callers(files: list[bytes]) -> None:
    pipe = hami.pipe(chain("hami-cuda"))
    calls: dict[str, Callable[[bytes], Any]] = {"hami-cuda": lambda file: pipe({"data": file})}
    if peer := torchpipe_call():
        calls["torchpipe"] = peer
    for call in calls.values():
        closed_loop(call, files, 16, 1.0)
    for number, callers in enumerate(CALLERS):
        samples = interleaved(
            {
                name: (lambda call=call, callers=callers: closed_loop(call, files, callers, SECONDS))
                for name, call in calls.items()
            },
            ROUNDS,
        )
        for other in calls.keys() & BOUNDS.keys():
            metric = f"Preprocessing, {callers} caller{'s' if callers > 1 else ''}: hami-cuda / {other}"
            bound = BOUNDS[other][number] if callers > 1 else 1.0
            result(metric, ratio(samples, "hami-cuda", other), at_least=bound, images_per_s=medians(samples))
    samples = interleaved({name: (lambda call=call: latency(call, files)) for name, call in calls.items()}, ROUNDS)
    for other in calls.keys() & BOUNDS.keys():
        metric = f"Preprocessing, one caller, median latency: hami-cuda / {other}"
        result(metric, ratio(samples, "hami-cuda", other), at_most=BOUNDS[other][0], median_in_us=medians(samples))
    spent = {
        name: time_per_image(lambda call=call: closed_loop(call, files, 64, SECONDS)) for name, call in calls.items()
    }
    metric = "Preprocessing, 64 callers: processor time per image of hami-cuda in µs"
    result(metric, spent["hami-cuda"], at_most=60, processor_time_in_us=spent)
    pipe.close()


def time_per_image(measurement: Callable[[], float]) -> float:
    """Return the processor time per image in microseconds; the measurement returns images per second."""
    before, started = processor_time(), time.perf_counter()
    rate = measurement()
    return round((processor_time() - before) / (rate * (time.perf_counter() - started)) * 1e6, 1)


def processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def compare_instances(files: list[bytes]) -> None:
    pipes = {str(count): hami.pipe(chain("hami-cuda", instance_num=count)) for count in (1, 2, 4, 8)}
    measurements = {
        count: (lambda pipe=pipe: closed_loop(lambda file: pipe({"data": file}), files, 64, SECONDS))
        for count, pipe in pipes.items()
    }
    interleaved(measurements, 1)
    samples = interleaved(measurements, ROUNDS)
    best = max(medians(samples).values())
    metric = "hami-cuda, 64 callers: 8 instances / best of 1, 2, 4, 8 instances"
    result(metric, medians(samples)["8"] / best, at_least=0.97, images_per_s=medians(samples))
    for pipe in pipes.values():
        pipe.close()


def compare_default(files: list[bytes]) -> None:
    """Compare a node without `max` and `instance_num` with the best of three that are configured."""
    configs = {f"{count} of {most}": {"instance_num": count, "max": most} for count, most in ((2, 16), (4, 16), (8, 8))}
    pipes = {name: hami.pipe(chain("hami-cuda", **keys)) for name, keys in configs.items()}
    pipes["default"] = hami.pipe({"backend": backend("hami-cuda"), **SIZE})
    calls = {name: (lambda file, pipe=pipe: pipe({"data": file})) for name, pipe in pipes.items()}
    for callers in CALLERS:
        loops = {
            name: (lambda call=call, callers=callers: closed_loop(call, files, callers, SECONDS))
            for name, call in calls.items()
        }
        closed_loop(calls["default"], files, callers, LEARNS_S)
        interleaved(loops, 1)
        samples = interleaved(loops, ROUNDS)
        rates = medians(samples)
        best = max(configs, key=lambda name: rates[name])
        metric = f"Preprocessing, {callers} caller{'s' if callers > 1 else ''}: default configuration / best of three"
        in_use = pipes["default"].stats()["default"].instances_in_use
        result(metric, ratio(samples, "default", best), at_least=0.95, images_per_s=rates, instances_in_use=in_use)
    for pipe in pipes.values():
        pipe.close()


def ceilings(files: list[bytes]) -> None:
    """Measure decoding alone, and the kernels alone, in batches without callers."""
    decode = {"backend": "S[hami-cuda::DecodeTensor,hami-cuda::SyncTensor]"}
    resize = {"backend": "S[hami-cuda::ResizeTensor,hami-cuda::CvtColorTensor,hami-cuda::SyncTensor]", **KEYS}
    images = torch.randint(0, 256, (BATCH, 1, 3, 480, 640), dtype=torch.uint8, device="cuda")
    moved = [
        hami.pipe("S[hami-cuda::GpuTensor,hami-cuda::SyncTensor]")({"data": image.cpu()})["result"] for image in images
    ]
    whole = chain("hami-cuda")
    measurements = {
        "decode": lambda: batches_per_second(decode, lambda: [{"data": file} for file in files[:BATCH]]),
        "resize and color": lambda: batches_per_second(resize, lambda: [{"data": image} for image in moved]),
        "whole chain": lambda: batches_per_second(whole, lambda: [{"data": file} for file in files[:BATCH]]),
    }
    samples = interleaved(measurements, ROUNDS)
    for name, measurement in measurements.items():
        log(f"{name}, batches of {BATCH}: {time_per_image(measurement)} µs of processor time per image")
    metric = f"hami-cuda, batches of {BATCH} without callers, images/s: whole chain / decoding alone"
    result(metric, ratio(samples, "whole chain", "decode"), at_least=0.6, images_per_s=medians(samples))


def main() -> None:
    files = jpeg_files()
    ceilings(files)
    compare_callers(files)
    compare_instances(files)
    compare_default(files)


if __name__ == "__main__":
    main()
