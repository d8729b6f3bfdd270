"""read_ir: the inputs and outputs that an OpenVINO IR declares in its .xml file, without OpenVINO."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from xml.etree import ElementTree

import hami

_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "boolean": "bool"} | {
    f"{short}{bits}": f"{kind}{bits}" for short, kind in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)
}


class IrPort(NamedTuple):
    """An input or output: its names, numpy's name of its dtype or OpenVINO's, and its sizes, -1 for any."""

    names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        sizes = ", ".join("?" if size < 0 else str(size) for size in self.shape)
        return f"{' or '.join(self.names) or '(no name)'}  {self.dtype} [{sizes}]"


class Ir(NamedTuple):
    """What the file says."""

    version: str
    inputs: list[IrPort]
    outputs: list[IrPort]


def read_ir(path: str | os.PathLike[str]) -> Ir:
    """Read the .xml file of an IR.

    Raises:
        hami.ConfigError: the file cannot be read, or is not an IR.
    """
    names: dict[tuple[str, str], tuple[str, ...]] = {}  # of outputs of layers, by the number of the layer and the port
    inputs: list[IrPort] = []
    results: dict[str, IrPort] = {}
    try:
        depth = 0  # layers of a loop contain layers and edges, which are not those of the model
        for event, element in ElementTree.iterparse(path, ("start", "end")):
            if element.tag == "layer":
                depth += 1 if event == "start" else -1
            if event == "start" or depth > 0:
                continue
            if element.tag == "layer":
                number, kind = element.get("id", ""), element.get("type")
                for port in element.findall("output/port"):
                    names[number, port.get("id", "")] = _names(port.get("names"))
                    if kind == "Parameter":
                        inputs.append(_port(port, _names(port.get("names"))))
                if kind == "Result" and (port := element.find("input/port")) is not None:
                    results[number] = _port(port, _names(element.get("output_names")))
                element.clear()
            elif element.tag == "edge" and (found := results.get(element.get("to-layer", ""))) and not found.names:
                source = names.get((element.get("from-layer", ""), element.get("from-port", "")), ())
                results[element.get("to-layer", "")] = found._replace(names=source)
            elif element.tag == "net":
                return Ir(element.get("version", "?"), inputs, list(results.values()))
    except (ElementTree.ParseError, ValueError) as error:
        raise hami.ConfigError(f'OpenvinoTensor: "{path}" is damaged or is not an OpenVINO IR: {error}') from None
    except OSError as error:
        raise hami.ConfigError(f'OpenvinoTensor: "{path}" cannot be read: {error.strerror}') from error
    raise hami.ConfigError(f'OpenvinoTensor: "{path}" is not an OpenVINO IR: it has no element "net"')


def ir_signature(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the inputs and outputs as lists of dicts with `name`, `dtype` and `shape`.

    None: the file is not an IR, or one of them has several names, none, that of another, or a type that NumPy lacks.
    """
    try:
        ir = read_ir(path)
    except hami.ConfigError:
        return None
    ports = (*ir.inputs, *ir.outputs)
    names = [port.names[0] for port in ports if len(port.names) == 1]
    if len(set(names)) != len(ports) or any(port.dtype not in _DTYPES.values() for port in ports):
        return None
    inputs, outputs = (
        [{"name": port.names[0], "dtype": port.dtype, "shape": list(port.shape)} for port in each]
        for each in (ir.inputs, ir.outputs)
    )
    return {"inputs": inputs, "outputs": outputs}


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(sorted(name for name in (text or "").split(",") if name))


def _port(port: ElementTree.Element, names: tuple[str, ...]) -> IrPort:
    precision = port.get("precision", "?").lower()
    return IrPort(names, _DTYPES.get(precision, precision), tuple(int(size.text or "") for size in port.findall("dim")))
