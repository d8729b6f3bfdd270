"""`hami quantize`: an ONNX model with 8-bit convolutions and products, and by how much its outputs differ."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hami
import numpy as np
from hami.cli import print_table, printable
from numpy.typing import NDArray

_LAST_OF_CORNERS = 10  # the last opset whose Resize has no coordinate_transformation_mode
_MIN_OPSET = 13  # scales for each channel
_COSTLY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_HELD_OUT = 5  # one of so many samples is for the comparison alone, if there are as many
_DYNAMIC = "DynamicQuantizeLinear"
Sample = dict[str, NDArray[Any]]


def add_quantize(subparsers: Any) -> None:
    """Add `hami quantize`."""
    from hami.cli import add_command

    parser = add_command(
        subparsers,
        "quantize",
        "hami_onnx.quantize:quantize_command",
        "write an ONNX model with 8-bit weights and activations",
        examples=["hami quantize detector.onnx --data samples --output detector.int8.onnx"],
    )
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "--data", required=True, metavar="DIR", help="folder of .npy or .npz files, each an input as the model takes it"
    )
    parser.add_argument("--output", metavar="FILE", help="by default MODEL with .int8.onnx")


def quantize_command(arguments: argparse.Namespace) -> int:
    """Quantize a model, and print how its outputs differ."""
    source = Path(arguments.model)
    target = Path(arguments.output) if arguments.output else source.with_suffix(".int8.onnx")
    found = quantize(source, arguments.data, target)
    if arguments.json:
        print(json.dumps(hami.to_json(found)))
        return 0
    for warning in found["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(
        f"{printable(target)}: {found['bytes after']} bytes, before {found['bytes before']}; "
        f"{found['quantized']} nodes in 8 bits; {found['calibrated']} samples calibrated it, "
        f"{found['compared']} compared"
    )
    header = ["output", "largest value", "largest difference", "mean difference", "cosine"]
    rows = [[name, *(f"{value:.4g}" for value in row.values())] for name, row in found["outputs"].items()]
    print_table(rows, header)
    return 0


def quantize(source: Path, data: str | Path, target: Path) -> dict[str, Any]:
    """Write a model with 8-bit weights and activations, of static scales, by ONNX Runtime's quantizer.

    What follows the last convolution or product stays in float: one scale for boxes and scores together would make all
    scores 0.

    Args:
        source: The model, opset 13 or later; an older one is converted.
        data: A folder of .npy or .npz files.
        target: The file to write.

    Returns:
        What `hami quantize --json` prints.

    Raises:
        hami.ConfigError: A package is missing, the model or a sample cannot be read, a sample is not what the model
            takes, or nothing can be quantized.
    """
    try:
        import onnx
        from onnxruntime import quantization
    except ImportError as error:
        raise hami.ConfigError(
            f'hami quantize needs the package onnx: pip install "hami-onnx[quantize]" ({error})'
        ) from None
    if source.resolve() == target.resolve():
        raise hami.ConfigError(f"--output is the model itself, {printable(target)}; give another file")
    try:
        model = onnx.load(source)
    except Exception as error:  # of protobuf and of files
        raise hami.ConfigError(f"{printable(source)} cannot be read as an ONNX model: {error}") from error
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    if opset < _MIN_OPSET:
        model = _converted(model, opset)
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{i}"
    kept = nodes_after_the_last_product(model.graph)
    chosen = [node.name for node in model.graph.node if node.op_type in _COSTLY and node.name not in kept]
    if not chosen:
        raise hami.ConfigError(f"{printable(source)} has no convolution or product ({', '.join(sorted(_COSTLY))})")
    samples = _samples(Path(data), _inputs(model))
    held = samples[::_HELD_OUT] if len(samples) >= _HELD_OUT else samples
    calibration = [sample for i, sample in enumerate(samples) if len(samples) < _HELD_OUT or i % _HELD_OUT]
    logging.getLogger().addFilter(_no_advice)
    try:
        quantization.quantize_static(
            model,
            target,
            _reader(calibration, quantization.CalibrationDataReader),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            nodes_to_exclude=sorted(kept),
        )
    except Exception as error:
        raise hami.ConfigError(f"ONNX Runtime cannot quantize {printable(source)}: {error}") from error
    finally:
        logging.getLogger().removeFilter(_no_advice)
    try:
        rows, other = _differences(source, target, held)
    except Exception as error:
        raise hami.ConfigError(f"{printable(target)} is written, and cannot be compared: {error}") from error
    warnings = [
        f'output "{name}" is not compared: it is not numbers, or its shape depends on values and differs'
        for name in sorted(other)
    ]
    if any(node.op_type == _DYNAMIC for node in model.graph.node):
        warnings.append(
            f"the model has {_DYNAMIC}, whose scale is that of the whole batch: a row depends on the others, so "
            "requests are not joined"
        )
    return {
        "output": str(target),
        "bytes before": _size(source),
        "bytes after": _size(target),
        "quantized": len(chosen),
        "calibrated": len(calibration),
        "compared": len(held),
        "outputs": rows,
        "warnings": warnings,
    }


def nodes_after_the_last_product(graph: Any) -> set[str]:
    """Return the names of the nodes from which no path leads to a convolution or product, without those themselves."""
    needed: set[str] = set()  # values that a convolution or product needs
    kept: set[str] = set()
    for node in reversed(graph.node):
        if node.op_type in _COSTLY or needed.intersection(node.output):
            needed.update(node.input)
        else:
            kept.add(node.name)
    return kept


def _no_advice(record: logging.LogRecord) -> bool:
    return "Please consider" not in record.getMessage()


def _inputs(model: Any) -> list[Any]:
    constants = {each.name for each in model.graph.initializer}
    return [port for port in model.graph.input if port.name not in constants]


def _converted(model: Any, opset: int) -> Any:
    """Return the model in the least opset that can be quantized.

    The converter of onnx changes what two operators compute: Upsample and Resize of opset 10 or older, whose pixels
    begin at the corner, and Hardmax, which looked at all axes from `axis` on.
    """
    from onnx import version_converter

    if any(node.op_type == "Hardmax" and not _is_of_last_axis(node) for node in model.graph.node):
        raise hami.ConfigError(f"the model has Hardmax of opset {opset}, which means another operator from opset 13 on")
    try:
        converted = version_converter.convert_version(model, _MIN_OPSET)
    except Exception as error:
        raise hami.ConfigError(
            f"the model has opset {opset}, scales for each channel need {_MIN_OPSET}, and it cannot be converted: "
            f"{error}"
        ) from error
    if opset <= _LAST_OF_CORNERS:
        for node in converted.graph.node:
            if node.op_type == "Resize":
                _begin_at_the_corner(node, converted.graph)
    return converted


def _is_of_last_axis(node: Any) -> bool:
    return any(attribute.name == "axis" and attribute.i == -1 for attribute in node.attribute)


def _begin_at_the_corner(node: Any, graph: Any) -> None:
    """Let a Resize compute what one of opset 10 did: nearest pixels were the upper ones when it shrank."""
    from onnx import helper, numpy_helper

    scales = next((numpy_helper.to_array(each) for each in graph.initializer if each.name == node.input[2]), None)
    shrinks = scales is not None and bool((scales < 1).any())
    wanted = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil" if shrinks else "floor"}
    others = [attribute for attribute in node.attribute if attribute.name not in wanted]
    del node.attribute[:]
    node.attribute.extend([*others, *(helper.make_attribute(name, value) for name, value in wanted.items())])


def _size(path: Path) -> int:
    """Return the bytes of a model with its weights beside it."""
    from hami_onnx.session import find_files

    return sum(Path(stamp.path).stat().st_size for stamp in find_files(str(path.absolute()), {}, "hami quantize")[1])


def _samples(folder: Path, ports: Sequence[Any]) -> list[Sample]:
    files = sorted(file for file in folder.glob("*.np[yz]")) if folder.is_dir() else []
    if not files:
        raise hami.ConfigError(
            f"{printable(folder)} is not a folder with .npy or .npz files; hami run SOURCE INPUT… --output DIR writes "
            "them"
        )
    return [_sample(file, ports) for file in files]


def _sample(file: Path, ports: Sequence[Any]) -> Sample:
    names = [port.name for port in ports]
    try:
        with open(file, "rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            sample = {names[0]: loaded} if isinstance(loaded, np.ndarray) and names else dict(loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise hami.ConfigError(f"{printable(file)} cannot be read: {error}") from error
    if set(sample) != set(names):
        raise hami.ConfigError(
            f"{printable(file)} has {', '.join(sorted(sample))}, and the model takes {', '.join(names)}; "
            "a file of several inputs is .npz with their names"
        )
    for port in ports:
        _check(file, port, sample[port.name])
    return sample


def _check(file: Path, port: Any, array: NDArray[Any]) -> None:
    """Raise ConfigError if an array is not what the model takes, before the hours of a calibration."""
    from onnx import helper

    tensor = port.type.tensor_type
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    sizes = [each.dim_value if each.HasField("dim_value") else None for each in tensor.shape.dim]
    fits = not tensor.HasField("shape") or (
        len(sizes) == array.ndim and all(size in (None, own) for size, own in zip(sizes, array.shape, strict=True))
    )
    if array.dtype != dtype or not fits:
        wanted = ", ".join("?" if size is None else str(size) for size in sizes)
        raise hami.ConfigError(
            f"{printable(file)} has {array.dtype} {list(array.shape)} for {port.name}, and the model takes "
            f"{dtype} [{wanted}]"
        )


def _reader(samples: Sequence[Sample], base: type[Any]) -> Any:
    """Return what the quantizer reads samples from."""

    class Reader(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[Sample] = iter(samples)

        def get_next(self) -> Sample | None:
            return next(self._left, None)

        def rewind(self) -> None:
            self._left = iter(samples)

    return Reader()


def _differences(
    source: Path, target: Path, samples: Sequence[Sample]
) -> tuple[dict[str, Mapping[str, float]], set[str]]:
    """Return a row for each output of numbers, and the names of the outputs that cannot be compared."""
    import onnxruntime

    from hami_onnx.session import inference_session

    before, after = (
        inference_session(str(file), onnxruntime.SessionOptions(), ["CPUExecutionProvider"])
        for file in (source, target)
    )
    sums: dict[str, list[NDArray[np.float64]]] = {port.name: [] for port in before.get_outputs()}
    other: set[str] = set()
    for sample in samples:
        results: list[Any] = [session.run(None, sample) for session in (before, after)]
        for name, *pair in zip(sums, *results, strict=True):
            are_numbers = all(isinstance(each, np.ndarray) and each.dtype.kind in "fiub" for each in pair)
            if are_numbers and pair[0].shape == pair[1].shape:  # which may be the number of boxes
                sums[name].append(_sums(*(each.astype(np.float64).ravel() for each in pair)))
            else:
                other.add(name)
    return {name: _row(np.array(rows)) for name, rows in sums.items() if name not in other}, other


def _sums(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    difference = np.abs(one - other)
    largest = (np.abs(one).max(initial=0), difference.max(initial=0))
    return np.array([*largest, difference.sum(), one.size, one @ other, one @ one, other @ other])


def _row(rows: NDArray[np.float64]) -> Mapping[str, float]:
    total, largest = rows.sum(0), rows.max(0)
    lengths = float(np.sqrt(total[5] * total[6]))
    return {
        "largest value": float(largest[0]),
        "largest difference": float(largest[1]),
        "mean difference": float(total[2] / max(1, total[3])),
        "cosine": float(total[4]) / lengths if lengths else 1.0,
    }
