"""Data that names code: a module, a library and a pickle are planted, and data of every kind names them everywhere.

python tests/reliability/code_from_data.py --seconds 60

The promise is broken if the planted module is imported, in this process or in a child, if the planted library is
loaded, or if an audit hook sees that anything planted is compiled, executed or unpickled.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hami
from code_watch import makes_a_tree
from mutations import Reader, array, catalogue, command, configuration, expression, model, timeline, tokenizer
from promise import Clock, Figures, keep, main

MODULE = "stranger_in_data"
EVENTS = ("compile", "exec", "import", "pickle.find_class", "ctypes.dlopen", "os.system")
NODELETE, FLAGS_1, PT_DYNAMIC = 8, 0x6FFFFFFB, 2  # of ELF files
TEXTS = ("str", "file", "path", "library")  # types of parameters
MOST_BYTES = 20_000  # of a file in which texts are replaced
LEAST = 40  # of each kind, in the short form


class Planted:
    """A folder with code that must not run, and the names by which data could reach it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ran = folder, folder / "ran"
        module = folder / f"{MODULE}.py"
        module.write_text(f"open({str(self.ran)!r}, 'a').write('imported\\n')\ndef run(*_): pass\n")
        sys.path.insert(0, str(folder))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.library = folder / f"lib{MODULE}.so"
        self.library.write_bytes(stays_loaded(small_library().read_bytes()))
        self.pickle = f"c{MODULE}\nrun\n(tR.".encode()  # calls its function
        pickles = [folder / f"{MODULE}{ending}" for ending in (".pkl", ".pt", ".npy", ".onnx", ".json", ".toml")]
        for path in pickles:
            path.write_bytes(self.pickle)
        self.names = [
            MODULE,
            f"{MODULE}:run",
            f"{MODULE}.run",
            f"__import__('{MODULE}')",
            str(module),
            str(self.library),
            *map(str, pickles),
        ]
        self.model = str(folder / f"{MODULE}.onnx")
        self.events: list[str] = []

    def on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook: note what names the planted code."""
        if event in EVENTS and not (event == "compile" and makes_a_tree(sys._getframe(1))):
            code = getattr(arguments[0], "co_filename", "")
            if MODULE in f"{code} {arguments!r}":
                self.events.append(f"{event} {arguments!r}"[:300])

    def check(self, what: str) -> None:
        """Raise Broken if anything planted has run since."""
        loaded = str(self.library) in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        keep(not self.ran.exists(), f"{what}: the planted module was imported")
        keep(not loaded, f"{what}: the planted library was loaded")
        keep(not self.events, f"{what}: {self.events[:3]}")


def small_library() -> Path:
    """Return a library that this process has loaded, and can load again by another name."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return Path(next(line.split()[-1] for line in maps.splitlines() if "/libm" in line))


def stays_loaded(library: bytes) -> bytes:
    """Return a library of 64 bits with the flag by which it stays loaded after dlclose, so that maps show it."""
    data = bytearray(library)
    at, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<2H", data, 54)
    headers = [struct.unpack_from("<2I6Q", data, at + size * number) for number in range(count)]
    start, length = next((header[2], header[5]) for header in headers if header[0] == PT_DYNAMIC)
    for place in range(start, start + length, 16):
        tag, value = struct.unpack_from("<qQ", data, place)
        if tag in (FLAGS_1, 0):  # 0: the end of the list, which more such entries follow
            struct.pack_into("<qQ", data, place, FLAGS_1, value | NODELETE)
            return bytes(data)
    raise ValueError("the list of the library is full")


# ---- data: each is read once, and an error is as good as a result ----

Data = Iterator[tuple[str, Callable[[], object]]]  # what it is, and a function that reads it


def parameters(planted: Planted, chance: random.Random) -> Data:
    """Yield configurations of each backend in which each of its parameters names the planted code."""
    loads = [f"{name}={planted.library}" for name in ("LD_PRELOAD", "HAMI_PLUGIN_PATH", "HAMI_ALLOWED_LIBRARIES")]
    for name, backend in hami.backends(load=True).items():
        items = {"[backend, backend]": "[Identity,Identity]", "[instance, instance]": "[]"}
        filled = items.get(backend.brackets or "", "[Identity]") if backend.brackets else ""
        given = {entry["name"]: entry for entry in backend.params or ()}
        needed = {key: default(entry, planted) for key, entry in given.items() if entry["required"]}
        for key, entry in given.items():
            if entry["type"] == "list":
                values: list[Any] = [[each] for each in (*loads, MODULE, planted.names[1])]
            elif entry["type"] in TEXTS and not entry["choices"]:
                values = planted.names
            else:
                continue
            for value in values:
                yield f"{name}: {key} = {value!r}", opened({"backend": name + filled, **needed, key: value})
    for name in planted.names:
        for key in ("backend", "next", "map", "entrypoint", "extends", "requires"):
            yield f"key {key} = {name!r}", opened({"backend": "Identity", key: name})


def default(entry: dict[str, Any], planted: Planted) -> object:
    texts = {"str": MODULE, "file": planted.model, "path": planted.model, "library": str(planted.library)}
    return entry["choices"][0] if entry["choices"] else texts.get(entry["type"], 8)


def opened(node: dict[str, Any]) -> Callable[[], object]:
    def read() -> None:
        with hami.pipe({"n": node}) as pipe:
            pipe({"data": "text"}, timeout=1)

    return read


def texts(planted: Planted, chance: random.Random) -> Data:
    """Yield files of each kind in which the planted names take the place of a text."""
    for made in (configuration, expression, model, tokenizer, array, timeline, catalogue, lock, recipe):
        good, read = made()
        for data in good:
            places = [match.span() for match in re.finditer(rb"[\w./-]{2,}", data[:MOST_BYTES])]
            for start, end in chance.sample(places, min(len(places), 12)):
                for name in planted.names:
                    yield f"{made.__name__}: {name}", partial(read, data[:start] + name.encode() + data[end:])


def lock() -> Reader:
    good = f"""lock-version = "1.0"
[[packages]]
name = "small"
version = "1.0"
wheels = [{{name = "s-1.0-py3-none-any.whl", path = "s-1.0-py3-none-any.whl", hashes = {{sha256 = "{"0" * 64}"}}}}]
"""
    path = Path(tempfile.mkdtemp(), "pylock.toml")

    def read(data: bytes) -> None:
        path.write_bytes(data)
        command("sync", str(path), "--dry-run", "--from", str(path.parent))

    return [good.encode()], read


def recipe() -> Reader:
    """Recipes of hami-accel."""
    path = Path(tempfile.mkdtemp(), "recipe.toml")

    def read(data: bytes) -> None:
        path.write_bytes(data)
        command("compile", str(path), str(path.with_suffix(".packed")))

    return [b'[[model]]\nname = "small"\nfile = "small.onnx"\nquantise = "dynamic"\n'], read


def models(planted: Planted, chance: random.Random) -> Data:
    """Yield ONNX models that name the planted code in their metadata, operators and files of weights."""
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    path = planted.folder / "made.onnx"
    for name in planted.names:
        for place in ("metadata", "operator", "domain", "function", "weights"):
            node = helper.make_node(name if place == "operator" else "Relu", ["x"], ["y"], name=name, doc_string=name)
            weights = helper.make_tensor("w", TensorProto.FLOAT, [4], [0.5] * 4)
            if place == "domain":
                node.domain = name
            if place == "weights":
                weights.ClearField("float_data")
                weights.data_location = TensorProto.EXTERNAL
                weights.external_data.add(key="location", value=name)
            graph = helper.make_graph([node], name, ports[:1], ports[1:], [weights])
            opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(name, 1)] if place == "domain" else ())]
            made = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=name)
            helper.set_model_props(made, dict.fromkeys(("custom_ops", "library", "hami", name), name))
            data = made.SerializeToString()

            def read(data: bytes = data) -> None:
                path.write_bytes(data)
                opened({"backend": "OnnxTensor", "model": str(path)})()

            yield f"a model, {place}: {name}", read


def bundles(planted: Planted, chance: random.Random) -> Data:
    """Yield bundles that are whole, and name the planted code in their manifest and in their configuration."""
    from hami_tools.bundle import build

    path = planted.folder / "made.hami"
    for name in planted.names:
        text = f'[n]\nbackend = "Identity"\nmodel = {json.dumps(name)}\n'.encode()
        members = {"data/pipe.toml": text, name.strip("/"): planted.pickle}
        for key in ("", "source", "plugins", "targets", "samples", "requires", "python", "command"):
            facts: dict[str, Any] = {"source": "data/pipe.toml", "plugins": {}, "targets": []}
            facts |= {key: {name: name} if key == "plugins" else [name] if key == "targets" else name} if key else {}

            def read(facts: dict[str, Any] = facts, members: dict[str, bytes] = members) -> None:
                build._write(path, facts, [build._of_bytes(*member) for member in members.items()], None)
                command("run", str(path), "--text", "hello")

            yield f"a bundle, {key}: {name}", read


def pickles(planted: Planted, chance: random.Random) -> Data:
    """Yield files whose content is a pickle that calls the planted function, alone or inside an array."""
    import numpy

    class Calls:
        def __reduce__(self) -> tuple[object, ...]:
            return _call, ()

    array_file = io.BytesIO()
    numpy.save(array_file, numpy.array([Calls()], object), allow_pickle=True)
    content = array_file.getvalue().replace(f"{_call.__module__}".encode(), MODULE.encode())
    for ending in (".npy", ".npz", ".pt", ".pkl", ".json", ".onnx", ".toml", ".hami", ".pftrace"):
        for number, data in enumerate((planted.pickle, content)):
            path = planted.folder / f"data{number}{ending}"
            path.write_bytes(data)
            for words in (("run", "Identity"), ("show",), ("check",), ("trace", "convert", "--chrome", "/dev/null")):
                yield f"a pickle as {words[0]} {path.name}", partial(command, *words, str(path))


def _call() -> None:
    """Stand for the planted function while a pickle is made."""


KINDS = {made.__name__: made for made in (parameters, texts, models, bundles, pickles)}


def planted_code() -> Planted:
    """Plant the code, and watch this process from now on."""
    planted = Planted(Path(tempfile.mkdtemp()))
    sys.addaudithook(planted.on_event)
    logging.getLogger("hami").setLevel(logging.CRITICAL)
    return planted


def read_one(planted: Planted, what: str, read: Callable[[], object]) -> None:
    """Read data. Raise Broken if that runs planted code; its errors are not those of this promise."""
    with contextlib.suppress(Exception, SystemExit):
        read()
    planted.check(what)


def run(seconds: float, strict: bool) -> Figures:
    """Read data of each kind in random order, as much as there is or time for."""
    planted = planted_code()
    counts: Figures = {}
    try:
        for kind, made in KINDS.items():
            chance, clock = random.Random(), Clock(seconds / len(KINDS))
            data = list(made(planted, chance))
            chance.shuffle(data)
            for done, (what, read) in enumerate(data):
                if not clock and done >= LEAST:
                    break
                read_one(planted, what, read)
                counts[kind] = done + 1
    finally:
        shutil.rmtree(planted.folder, ignore_errors=True)
    return counts


if __name__ == "__main__":
    main(run, "data of every kind never runs code that it names")
