"""Sample requests of a bundle, and the answers that its pipeline must give to them before the first request."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hami import ConfigError, Pipe
from hami.cli import describe_exception, printable

from hami_tools.bundle.boot.layout import problem_with_name
from hami_tools.differences import Tolerance, compare

FOLDER = "samples"
LIST = f"{FOLDER}/samples.json"
# Largest difference of a number, relative to the largest number of the answer, that the type of an answer explains.
TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-3, "float64": 1e-6}
TOLERANCE = 1e-3  # of other numbers: floats of Python are often converted from float32


def encoded(value: Any, name: str, files: dict[str, bytes]) -> Any:
    """Return a value as JSON; bytes and arrays go to `files`, by names that begin with `name`."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _stored("bytes", bytes(value), f"{name}.bin", files)
    if isinstance(value, (list, tuple)):
        return [encoded(each, f"{name}.{index}", files) for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        pairs = [(key, encoded(each, f"{name}.{index}", files)) for index, (key, each) in enumerate(value.items())]
        plain = all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs)
        return dict(pairs) if plain else {"$pairs": [list(pair) for pair in pairs]}
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _stored("array", _npy(value), f"{name}.npy", files)
    raise ConfigError(f"a sample of a bundle cannot have a {type(value).__name__}; give --input files, text or JSON")


def _stored(kind: str, content: bytes, name: str, files: dict[str, bytes]) -> dict[str, str]:
    files[name] = content
    return {f"${kind}": name}


def _npy(value: Any) -> bytes:
    import numpy

    array = numpy.asarray(value if hasattr(value, "__array__") else value.tolist())
    if array.dtype.hasobject:
        raise ConfigError(f"a sample of a bundle cannot have an array of {array.dtype}")
    out = io.BytesIO()
    numpy.save(out, array, allow_pickle=False)
    return out.getvalue()


def decoded(value: Any, folder: str) -> Any:
    """Return the value of what `encoded` returned, with the files in a folder."""
    if isinstance(value, list):
        return [decoded(each, folder) for each in value]
    if not isinstance(value, dict):
        return value
    if "$bytes" in value:
        return _file(value["$bytes"], folder).read_bytes()
    if "$array" in value:
        import numpy

        return numpy.load(_file(value["$array"], folder), allow_pickle=False)
    if "$pairs" in value:
        return {key: decoded(each, folder) for key, each in value["$pairs"]}
    return {key: decoded(each, folder) for key, each in value.items()}


def _file(name: Any, folder: str) -> Path:
    """Return the file of a sample; raise ValueError for a name that leads out of the folder."""
    if problem := problem_with_name(name):
        raise ValueError(f"the name {name!r} {problem}")
    return Path(folder, name)


def answered(pipe: Pipe, requests: Iterable[tuple[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Run the samples, given as name and data; return them with their answers, and the files of both."""
    samples: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for number, (label, data) in enumerate(requests, 1):
        try:
            answer = pipe({"data": data})["result"]
        except Exception as error:
            raise ConfigError(f"the sample {label} has no answer: {describe_exception(error)}") from error
        name = f"{FOLDER}/{number}"
        sample = {"label": label, "data": encoded(data, f"{name}.data", files)}
        samples.append({**sample, "answer": encoded(answer, f"{name}.answer", files)})
    return samples, files


def text_of(samples: list[dict[str, Any]]) -> bytes:
    """Return the content of the list of samples."""
    return json.dumps(samples, ensure_ascii=False, indent=1).encode("utf-8") + b"\n"


def require_answers(pipe: Pipe, path: str, folder: str, tolerance: float | None) -> int:
    """Compare the answers of a pipe with those in a bundle; return their number, or raise ConfigError."""
    samples = _samples(path, folder)
    for name, data, expected in samples:
        label = f"{os.path.basename(path)}: the sample {printable(name)}"
        try:
            found = pipe({"data": data})["result"]
        except Exception as error:
            raise ConfigError(
                f"{label} has no answer here, and the bundle has one: {describe_exception(error)}"
            ) from error
        allowed = (_tolerance(expected) if tolerance is None else tolerance) * max(1.0, _scale(expected))
        difference = compare(expected, found, Tolerance(0.0, allowed))
        if difference.differs:
            numbers = f"numbers differ by up to {difference.largest:.3g}, and at most {allowed:.3g} is allowed"
            what = difference.reason or numbers
            raise ConfigError(
                f"{label} has another answer here than in the bundle: {what}; with the packages of the bundle: "
                f"python {path} verify"
            )
    return len(samples)


def _samples(path: str, folder: str) -> list[tuple[str, Any, Any]]:
    """Return the samples: name, data and answer."""
    try:
        listed = json.loads(Path(folder, LIST).read_text("utf-8"))
        return [(str(each["label"]), decoded(each["data"], folder), decoded(each["answer"], folder)) for each in listed]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"the samples in {printable(path)} cannot be read: {describe_exception(error)}; make the bundle again"
        ) from error


def _tolerance(value: Any) -> float:
    if isinstance(value, dict):
        return max(map(_tolerance, value.values()), default=0.0)
    if isinstance(value, list):
        return max(map(_tolerance, value), default=0.0)
    return TOLERANCES.get(str(getattr(value, "dtype", "")), TOLERANCE)


def _scale(value: Any) -> float:
    """Return the largest absolute value of the numbers in an answer."""
    if isinstance(value, dict):
        return max(map(_scale, value.values()), default=0.0)
    if isinstance(value, list):
        return max(map(_scale, value), default=0.0)
    if isinstance(value, (int, float)):  # also True and False, which are exact
        return abs(value)
    if getattr(value, "size", 0) and getattr(value, "dtype", None) is not None and value.dtype.kind in "fiu":
        import numpy

        finite = numpy.abs(value[numpy.isfinite(value)]) if value.ndim else numpy.abs(value)
        return float(finite.max()) if finite.size else 0.0
    return 0.0
