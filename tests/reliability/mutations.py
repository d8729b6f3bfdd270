"""Files that strangers made: each reader gets thousands of damaged ones, and answers with a typed error or a result.

    python tests/reliability/mutations.py --seconds 60

Each reader runs in a process of its own, whose address space may grow by twice its limit: a crash, a hang, another
error or too much memory breaks the promise.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hami
from promise import Clock, Figures, keep, main, resident_mb

MEMORY_MB = 512  # that a damaged file may take
SLOWEST_S = 10.0  # for one file, also on a loaded machine
INTERESTING = [
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"-1",
    b"1e999",
    b'"',
    b"[" * 99,
]


def damaged(good: bytes, chance: random.Random) -> bytes:
    """Return `good` with one to four changes: flipped, cut, doubled, moved or extreme."""
    data = bytearray(good)
    for _ in range(chance.randint(1, 4)):
        if not data:
            break
        at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        part = bytes(data[at:end][:4096])
        change = chance.randrange(6)
        if change == 0:
            data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
        elif change == 1:
            del data[at:]
        elif change == 2:
            del data[at : at + len(part)]
        elif change == 3:
            data[at:at] = part
        elif change == 4:
            data[end:end] = part
        else:
            extreme = chance.choice(INTERESTING)
            data[at : at + len(extreme)] = extreme
    return bytes(data)


# ---- readers: good files, and a function that reads one ----


def command(*words: str) -> None:
    """Run a command of `hami` in this process; raise what it prints as its error."""
    from hami.cli import main as hami_command

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        status = hami_command(words)
    if status:
        text = errors.getvalue()
        keep(text.startswith("error: ") and "Traceback" not in text, f"status {status}: {text}")
        raise hami.Error(text)


Reader = tuple[list[bytes], Callable[[bytes], object]]


def configuration() -> Reader:
    good = b"""
[global]
timeout = "50s"
[first]
backend = "S[Identity,Identity]"
max = 4
next = "second"
[second]
backend = "DI[Identity]"
instance_num = 2
map = "first[result:data]"
"""

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with hami.pipe(str(path)) as pipe:
            pipe.describe()

    path = Path(tempfile.mkdtemp(), "damaged.toml")
    return [good], read


def expression() -> Reader:
    def read(data: bytes) -> None:
        with hami.pipe(data.decode("latin-1")) as pipe:
            pipe.describe()

    return [b"S[Identity,DI[Identity],Identity]"], read


def picture() -> Reader:
    import cv2
    import numpy

    drawn = numpy.random.default_rng(1).integers(0, 255, (48, 64, 3), numpy.uint8)
    good = [cv2.imencode(ending, drawn)[1].tobytes() for ending in (".jpg", ".png", ".webp", ".tiff", ".bmp")]
    pipe = hami.pipe("DecodeMat")
    return good, lambda data: pipe({"data": data})


def model() -> Reader:
    from onnx import TensorProto, helper

    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.5] * 16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "small", rows[:1], rows[1:], [weights])
    good = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    path = Path(tempfile.mkdtemp(), "damaged.onnx")

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with hami.pipe({"backend": "OnnxTensor", "model": str(path)}) as pipe:
            pipe.describe()

    return [good], read


def tokenizer() -> Reader:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate(["[UNK]", "a", "small", "text"])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    path = Path(tempfile.mkdtemp(), "tokenizer.json")

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with hami.pipe({"backend": "Tokenize", "model": str(path)}) as pipe:
            pipe({"data": "a small text"})

    return [made.to_str().encode()], read


def array() -> Reader:
    import numpy

    files = [io.BytesIO(), io.BytesIO()]
    numpy.save(files[0], numpy.arange(12.0).reshape(3, 4))
    numpy.savez(files[1], x=numpy.arange(4), y=numpy.ones((2, 2)))
    folder = Path(tempfile.mkdtemp())

    def read(data: bytes) -> None:
        path = folder / ("damaged.npz" if data[:2] == b"PK" else "damaged.npy")
        path.write_bytes(data)
        command("run", "Identity", str(path))

    return [file.getvalue() for file in files], read


def timeline() -> Reader:
    folder = Path(tempfile.mkdtemp())
    path = folder / "good.pftrace"
    with hami.pipe("S[Identity,Identity]") as pipe, pipe.trace(path):
        pipe([{"data": number} for number in range(4)])

    def read(data: bytes) -> None:
        (folder / "damaged.pftrace").write_bytes(data)
        command("trace", "convert", str(folder / "damaged.pftrace"), "--chrome", str(folder / "out.json"))

    return [path.read_bytes()], read


def catalogue() -> Reader:
    from hami.packages import SNAPSHOT, parse_catalog

    return [SNAPSHOT.read_bytes()], lambda data: parse_catalog(data, "a catalogue")


READERS: dict[str, Callable[[], Reader]] = {
    made.__name__: made for made in (configuration, expression, picture, model, tokenizer, array, timeline, catalogue)
}


# ---- running them ----


def read_damaged(name: str, seconds: float) -> None:
    """Read damaged files for some time, and print the counts; runs in a process of its own."""
    good, read = READERS[name]()
    for data in good:
        read(data)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + 2 * MEMORY_MB * 1_000_000,) * 2)
    chance = random.Random(name)
    counts = {"files": 0, "refused": 0}
    slowest, before = 0.0, resident_mb()
    clock = Clock(seconds)
    while clock or counts["files"] < 20:
        data = damaged(chance.choice(good), chance)
        began = time.monotonic()
        try:
            read(data)
        except hami.Error:
            counts["refused"] += 1
        except BaseException as error:
            print(f"{name}: {data[:300]!r} … of {len(data)} bytes, file {counts['files']}: {error!r}")
            raise
        slowest = max(slowest, time.monotonic() - began)
        counts["files"] += 1
    print(json.dumps({**counts, "slowest s": round(slowest, 3), "MB": round(resident_mb() - before)}))


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def results(seconds: float) -> Iterator[tuple[str, dict[str, float]]]:
    for name in READERS:
        command = [sys.executable, __file__, "--reader", name, "--seconds", str(seconds / len(READERS))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
        keep(done.returncode == 0, f"{name}: status {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        yield name, json.loads(done.stdout.splitlines()[-1])


def run(seconds: float, strict: bool) -> Figures:
    """Give each reader its share of the time."""
    files, slowest, most = 0, 0.0, 0.0
    for name, result in results(seconds):
        keep(result["slowest s"] <= SLOWEST_S, f"{name}: a file took {result['slowest s']} s")
        keep(result["MB"] <= MEMORY_MB, f"{name}: + {result['MB']} MB")
        files += int(result["files"])
        slowest, most = max(slowest, result["slowest s"]), max(most, result["MB"])
    return {"readers": len(READERS), "damaged files": files, "slowest s": slowest, "most MB": most}


if __name__ == "__main__":
    if "--reader" in sys.argv:
        read_damaged(sys.argv[2], float(sys.argv[4]))
    else:
        main(run, "a damaged file is answered with a typed error")
