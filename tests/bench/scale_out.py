"""Times one call of a backend on a thread, in a Process, of a server by Remote, and of a replica of Ray Serve.

Usage: python scale_out.py [ROUNDS], with hami-serve[remote,ray]. The ways run in turn in every round; the figures are
medians over the rounds of the median call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "hami-plugins" / "hami-process" / "bench"))

import bench_backends
import hami
import numpy as np

FOLDER = Path(bench_backends.__file__).parent
PORT = 18000
DATA = {"a text": "to be or not", "1 MB array there and back": np.ones((1, 1 << 18), np.float32)}
CALLS = 50


@contextmanager
def server() -> Iterator[None]:
    command = [sys.executable, "-m", "hami", "serve", "Same", "--import", "bench_backends.py", "--http", str(PORT)]
    running = subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/health/ready", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        running.terminate()
        running.wait()


def replica(leaving: ExitStack) -> Callable[[Any], Any]:
    import hami_serve.ray
    from ray import serve

    os.chdir(FOLDER)
    handle = serve.run(hami_serve.ray.deployment("Same", imports=["bench_backends.py"]))
    leaving.callback(serve.shutdown)
    return lambda data: handle.call.remote({"data": data}).result()


def main(rounds: int) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
    with ExitStack() as leaving:
        leaving.enter_context(server())
        thread = leaving.enter_context(hami.pipe("Same"))
        process = leaving.enter_context(hami.pipe("Process[Same]"))
        remote = leaving.enter_context(hami.pipe(f"Remote(url='http://127.0.0.1:{PORT}',model=Same)"))
        ways: dict[str, Callable[[Any], Any]] = {
            "thread": lambda data: thread({"data": data}),
            "Process": lambda data: process({"data": data}),
            "Remote": lambda data: remote({"data": data}),
            "Ray": replica(leaving),
        }
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, {rounds} rounds of {CALLS} calls")
        for what, data in DATA.items():
            found: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds + 1):  # the first round warms up
                for way, call in ways.items():
                    times = []
                    for _ in range(CALLS):
                        begun = time.perf_counter()
                        call(data)
                        times.append(time.perf_counter() - begun)
                    found[way].append(median(times))
            shown = (f"{way} {median(times[1:]) * 1e6:,.0f} µs" for way, times in found.items())
            print(f"{what}: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
