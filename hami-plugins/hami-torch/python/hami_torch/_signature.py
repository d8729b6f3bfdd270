"""exported_signature: the inputs and outputs that a file of torch.export.save declares, read without torch."""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any

_MODEL = "/models/model.json"
_MAX_BYTES = 64 << 20  # of the description of a graph; a larger one takes seconds to read
_DTYPES = {  # numbers of torch.export's schema
    **{1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64"},
    **{12: "bool", 13: "bfloat16", 28: "uint16"},
}


def exported_signature(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return `inputs` and `outputs` of a .pt2 file: lists of dicts with `name`, `dtype` and `shape`.

    A length of -1 is any. The only output is called "result", the outputs in a dict have its keys, and other outputs
    have no names, so that the list is empty. The result is None if the file is another one, or if an input is not a
    tensor.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(_MODEL)]
            if len(entries) != 1 or entries[0].file_size > _MAX_BYTES:
                return None
            module = json.loads(archive.read(entries[0]))["graph_module"]
        tensors = module["graph"]["tensor_values"]
        names = [each["user_input"]["arg"] for each in module["signature"]["input_specs"] if "user_input" in each]
        inputs = [_tensor(each["as_tensor"]["name"], tensors) for each in names]
        ports = [each["user_output"]["arg"] for each in module["signature"]["output_specs"] if "user_output" in each]
        keys = _output_keys(module, len(ports))
        outputs = [_tensor(port["as_tensor"]["name"], tensors, key) for key, port in zip(keys, ports, strict=False)]
    except (OSError, ValueError, KeyError, TypeError, IndexError, zipfile.BadZipFile):
        return None
    return {"inputs": inputs, "outputs": outputs} if inputs else None


def _tensor(name: str, tensors: dict[str, Any], key: str = "") -> dict[str, Any]:
    declared = tensors[name]
    shape = [size.get("as_int", -1) for size in declared["sizes"]]
    return {"name": key or name, "dtype": _DTYPES[declared["dtype"]], "shape": shape}


def _output_keys(module: dict[str, Any], count: int) -> list[str]:
    """Return the names of the outputs; none: they have no names."""
    (tree,) = (each["signature"]["out_spec"] for each in module["module_call_graph"] if each["fqn"] == "")
    spec = json.loads(tree)[1]
    if spec["type"] == "builtins.dict":
        keys = json.loads(spec["context"])
        return keys if len(keys) == count and all(isinstance(key, str) for key in keys) else []
    return ["result"] if spec["type"] is None and count == 1 else []
