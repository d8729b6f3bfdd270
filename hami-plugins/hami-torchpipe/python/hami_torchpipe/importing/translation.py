"""Rewrites one node of torchpipe: its expression, and the keys of its backends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hami
from hami.packages import first_party

from hami_torchpipe import replacements
from hami_torchpipe.importing.expressions import Call, argument, parse

Keys = dict[str, Any]

_SEQUENCES = ("S", "Sequential", "SequentialV0", "S_v0")
# Containers of torchpipe that HAMi does not need: only what is in their brackets stays.
_TRANSPARENT = {
    "FakeInstance": "an engine has one profile for all batch sizes from min to max",
    "FakeInstances": "an engine has one profile for all batch sizes from min to max",
    "Range": "the batches of a node follow the range of its backend",
    "Max": "the batches of a node follow the range of its backend",
    "Parallel": "instance_num is the number of copies that run at the same time",
    "ThreadCacher": "a plugin of TensorRT cannot read the request",
    "PluginCacher": "a plugin of TensorRT cannot read the request",
}
_GPU_ONLY = ("SyncTensor", "Torch", "GpuTensor", "CpuTensor", "StreamGuard", "PySyncTensor", "TensorSync")
_REMOVED = ("NCHWTensor",)  # tensors are N x C x H x W
_RENAMED = {
    "Torch": "SyncTensor",
    "ResizePadMat": "TopLeftResizeMat",
    "ResizeCenterPadMat": "LetterBoxMat",
    "Mat2CpuTensor": "Mat2Tensor",
    "PPLCropTensor": "CropTensor",
    "PPLResizeTensor": "ResizeTensor",
    "ResizeTensorV1": "ResizeTensor",
    "PPLResizeCenterPadTensor": "LetterBoxTensor",
    "PPLWarpAffineTensor": "WarpAffineTensor",
}
# What replaces a backend of the GPU, if the file is imported for the CPU.
_ON_CPU = {
    "DecodeTensor": "DecodeMat",
    "ResizeTensor": "ResizeMat",
    "CvtColorTensor": "CvtColorMat",
    "CropTensor": "CropMat",
    "LetterBoxTensor": "LetterBoxMat",
    "ResizePadTensor": "TopLeftResizeMat",
    "PPLResizePadTensor": "TopLeftResizeMat",
}
_IMAGES = frozenset(_ON_CPU.values())
_SIZED = ("TopLeftResizeMat", "LetterBoxMat", "LetterBoxTensor")
_POST_PROCESSORS = {
    "SoftmaxArgMax": "SoftmaxArgMaxTensor",
    "SoftmaxCpu": "SoftmaxTensor",
    "softmaxcpu": "SoftmaxTensor",
    "cpu": "CpuTensor",
    "CpuTensor": "CpuTensor",
}
_KEY_SCOPE = re.compile(r"(\w+)::(\w+)")
_OWN_SCOPES = ("model", "precision", "Interpreter", "PipelineV3", "PhysicalView", "Logger")
_SHAPE = re.compile(r"\d+(?:x\d+)+")
_RENAME = re.compile(r"write (\w+)(\((?:name|key|message)\))?(\[[A-Z, ;]*\])?")
_CONDITIONS = {"or": "or", "else": "or", "swap": "", "": ""}
_ENDS = ("break", "serialskip", "serial_skip", "subgraphskip", "subgraph_skip")


@dataclass
class Node:
    """A node that is rewritten, with what its keys fall back to."""

    name: str
    keys: Keys
    globals: Keys
    cpu: bool
    has_boxes: bool = False  # the file has boxes under the key `_box`
    notes: list[str] = field(default_factory=list)

    def value(self, key: str) -> Any:
        return self.keys.get(key, self.globals.get(key))

    def note(self, text: str) -> None:
        note = f"{self.name}: {text}" if self.name else text
        if note not in self.notes:
            self.notes.append(note)


def translate(node: Node) -> Keys:
    """Return the keys of a node for HAMi, and add to its notes what is not mapped."""
    expression = _Expression(node)
    backend = expression.text(parse(node.keys["backend"]))
    keys = translated_keys(node, expression.names)
    return {"backend": backend, **{key: value for key, value in keys.items() if key != "backend"}}


def translated_keys(node: Node, names: set[str]) -> Keys:
    """Return the keys of a node, or of all nodes, for HAMi; `names` are the backends of the node."""
    keys: Keys = {}
    for key, value in node.keys.items():
        if key == "backend" or key.endswith("::backend"):
            continue
        if node.cpu and key in replacements.GPU_KEYS:
            continue
        if rule := _KEY_RULES.get(key):
            keys |= rule(node, key, value, names)
        elif (scope := _KEY_SCOPE.fullmatch(key)) and scope[1] not in _OWN_SCOPES:
            keys[f"{_RENAMED.get(scope[1], scope[1])}.{scope[2]}"] = value
        elif key in replacements.KEYS:
            node.note(f"`{key} = {json.dumps(value, ensure_ascii=False)}`: {replacements.KEYS[key]}")
        else:
            keys[key] = value
    return keys


class _Expression:
    """Rewrites the expression of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._jumps = str(node.value("jump") or "").replace(".", "-").strip("|").split("|")
        self.names: set[str] = set()

    def text(self, call: Call) -> str:
        """Return the whole expression of the node."""
        items = self._sequence(self._after_engine([call]))
        self.names |= {each for item in items for each in _names_in(item)}
        return str(_joined(items))

    def _after_engine(self, items: list[Call]) -> list[Call]:
        keys = self._node.keys
        if self._node.cpu and (expression := keys.pop("post_processor", None)):
            items = [*items, parse(str(expression))]
        name = keys.pop("postprocessor", None) or keys.pop("batch_process", None)
        if not name:
            return items
        return [*items, Call(_POST_PROCESSORS.get(str(name), str(name)))]

    def _sequence(self, items: list[Call]) -> list[Call]:
        """Rewrite the items of a Sequential, or a single one."""
        written: list[Call] = []
        for index, item in enumerate(items):
            condition = item.condition.strip()
            if condition.lower() in _ENDS:
                break
            if condition.lower() == "skip":
                continue
            if condition.lower() == "error":
                written.append(Call("Raise", arguments=["'the filter of this backend is Error'"]))
                break
            if condition in ("result2other", "result2key_1"):
                written.append(Call("CopyKey", arguments=["data", condition.removeprefix("result2")]))
                condition = ""
            rewritten = self._rewritten(item)
            if condition.lower() in ("run", "continue"):
                if index:
                    self._note(
                        f"({condition}) before {item.name}: a plain item has the result of the one before as data"
                    )
                condition = ""
            if condition in _CONDITIONS:
                kept = _CONDITIONS[condition]
                if kept and rewritten:
                    one = _joined(rewritten)
                    one.condition = kept
                    rewritten = [one]
            elif rewritten:
                self._note(
                    f"({condition}) before {item.name} is a filter of your own: register a backend {condition} that "
                    "sets `result` to True where the item runs"
                )
                rewritten = [Call("Filter", phases=[[Call(condition), _joined(rewritten)]])]
            written += rewritten
        return self._with_tensor(written) if self._node.cpu else written

    def _with_tensor(self, items: list[Call]) -> list[Call]:
        """Put Mat2Tensor behind the last step on images, where steps on tensors were before."""
        at = [index for index, item in enumerate(items) if item.name in _IMAGES]
        if not at or not any(items[index].took_tensors for index in at):
            return items
        self._node.keys.pop("data_format", None)  # of the tensors before
        kept = [item for item in items[: at[-1] + 1] if item.name != "Mat2Tensor"]
        rest = [item for item in items[at[-1] + 1 :] if item.name != "Mat2Tensor"]
        return [*kept, Call("Mat2Tensor"), *rest]

    def _rewritten(self, call: Call) -> list[Call]:
        """Return the calls that replace one; none if it is not needed."""
        node = self._node
        if not call.phases and (inside := node.value(f"{call.name}::backend")):
            call = Call(call.name, call.condition, call.arguments, [[parse(str(inside))]])
        if call.name in _SEQUENCES:
            return self._sequence(call.items())
        if call.name in _TRANSPARENT:
            self._note(f"{call.name}: {_TRANSPARENT[call.name]}")
            return self._sequence(call.items())
        if call.name in _REMOVED:
            return []
        if node.cpu and call.name in _GPU_ONLY:
            return self._sequence(call.items())
        if call.name == "TensorrtTensor" and node.cpu:
            return self._engine_on_cpu(call)
        if rule := _CALL_RULES.get(call.name):
            return rule(self, call)
        return [self._plain(call)]

    def _plain(self, call: Call) -> Call:
        """Return a call under its name here, with its brackets rewritten."""
        name = _RENAMED.get(call.name, call.name)
        rename = _RENAME.fullmatch(replacements.BACKENDS.get(name, ""))
        if rename and bool(rename[3]) <= bool(call.phases):
            name = rename[1]
        took_tensors = self._node.cpu and name in _ON_CPU
        if took_tensors:
            name = _ON_CPU[name]
        text = replacements.BACKENDS.get(name, "")
        if text:
            self._note(f"{call.name}: {text}")
        if not text and not _is_known(name):
            self._note(f"{name} is a backend of your own: register a class of that name")
        arguments = [_argument(each) for each in call.arguments]
        phases = [[_joined(self._sequence([item])) for item in phase] for phase in call.phases]
        return Call(name, arguments=arguments, phases=phases, took_tensors=took_tensors)

    def _engine_on_cpu(self, call: Call) -> list[Call]:
        model = str(self._node.value("model") or "")
        if model and not model.endswith(".onnx"):
            self._note(
                f'model = "{model}": an engine of TensorRT needs a GPU; write the ONNX file that it was built from'
            )
        engine = [Call("OnnxTensor", arguments=[_argument(each) for each in call.arguments])]
        if self._node.value("mean") or self._node.value("std"):
            engine.insert(0, Call("NormalizeTensor"))
        return engine

    def _note(self, text: str) -> None:
        self._node.note(text)

    # ---- backends that become something else

    def add(self, call: Call) -> list[Call]:
        pairs = [str(item).partition(":") for item in call.items()] or [each.partition(":") for each in call.arguments]
        if any(not colon for _, colon, _ in pairs):
            return [self._plain(call)]
        return [Call("Add", arguments=[f"{key.strip()}={argument(value.strip())}" for key, _, value in pairs])]

    def remove(self, call: Call) -> list[Call]:
        return [Call("Remove", arguments=[*call.arguments, *(item.name for item in call.items())])]

    def copy(self, call: Call) -> list[Call]:
        pairs = [str(item).partition(":") for item in call.items()]
        copies = [Call("CopyKey", arguments=[key, to]) for key, _, to in pairs]
        return copies + (
            [Call("Remove", arguments=[key for key, _, _ in pairs])] if call.name in ("Move", "mv") else []
        )

    def key_to_key(self, call: Call) -> list[Call]:
        del call
        node = self._node
        return [Call("CopyKey", arguments=[str(node.value("key_a")), str(node.value("key_b"))])]

    def jump(self, call: Call) -> list[Call]:
        target = call.items()[0].name.replace(".", "-") if call.phases else self._jumps.pop(0) if self._jumps else ""
        if not target:
            raise hami.ConfigError(f'the node "{self._node.name}" has {call.name} without the key `jump`, a node')
        return [Call("Jump", arguments=[f"jump={target}"])]

    def map_reduce(self, call: Call) -> list[Call]:
        node = self._node
        texts = {
            "jump": self._jumps[0],
            "split": node.value("split") or "data",
            "merge": node.value("merge") or "result",
        }
        if not texts["jump"]:
            raise hami.ConfigError(f'the node "{node.name}" has {call.name} without the key `jump`, a node')
        merge = ",".join(each.strip() for each in str(texts["merge"]).split(","))
        arguments = [f"jump={texts['jump']}", f"split={argument(str(texts['split']))}", f"merge={argument(merge)}"]
        return [Call("MapReduce", arguments=arguments)]

    def to_tensor(self, call: Call) -> list[Call]:
        plain = self._plain(Call("Mat2Tensor", arguments=call.arguments))
        on_cpu = self._node.cpu or str(self._node.value("device")) == "cpu" or call.name == "Mat2CpuTensor"
        return [plain] if on_cpu else [plain, Call("GpuTensor")]

    def crop(self, call: Call) -> list[Call]:
        plain = self._plain(call)
        return [Call("CopyKey", arguments=["_box", "box"]), plain] if self._node.has_boxes else [plain]

    def top_class(self, call: Call) -> list[Call]:
        del call
        top = Call("SoftmaxArgMaxTensor")
        return [top] if self._node.cpu else [Call("CpuTensor"), top]


_CALL_RULES: dict[str, Callable[[_Expression, Call], list[Call]]] = {
    **dict.fromkeys(("Add", "add", "ADD", "AddInt"), _Expression.add),
    **dict.fromkeys(("Remove", "Del", "del", "rm"), _Expression.remove),
    **dict.fromkeys(("Copy", "cp", "Move", "mv"), _Expression.copy),
    "KeyA2KeyB": _Expression.key_to_key,
    **dict.fromkeys(("Jump", "JumpV0", "PipelineReviser"), _Expression.jump),
    "MapReduce": _Expression.map_reduce,
    **dict.fromkeys(("Mat2Tensor", "Mat2GpuTensor", "Mat2CpuTensor"), _Expression.to_tensor),
    **dict.fromkeys(("CropMat", "CropTensor", "PPLCropTensor"), _Expression.crop),
    "SoftmaxArgMaxTensor": _Expression.top_class,
}


def _argument(text: str) -> str:
    """Return an argument; torchpipe 0.2 also writes `key:value`."""
    key, colon, value = text.partition(":")
    return f"{key}={argument(value)}" if colon and "=" not in text and key.isidentifier() else text


def _joined(items: list[Call]) -> Call:
    return items[0] if len(items) == 1 else Call("S", phases=[items]) if items else Call("Identity")


def _names_in(call: Call) -> set[str]:
    return {call.name}.union(*(_names_in(item) for item in call.items()))


def _is_known(name: str) -> bool:
    return "." in name or ":=" in name or name in first_party().owners("backends") or name in hami.backends()


# ---- keys


def _rows(node: Node, key: str, value: Any, names: set[str]) -> Keys:
    """`max` and `min`: numbers of rows; torchpipe also takes shapes, and one for each instance."""
    text = str(value).replace(" ", "")
    shapes = re.split(r"[;&]", text)
    if not all(re.fullmatch(r"\d+(?:[x,]\d+)*", shape) for shape in shapes):
        node.note(f'`{key} = "{value}"`: write a number of rows, or for the engine "Onnx2Tensorrt.{key}" with a shape')
        return {}
    rows = [int(re.split("[x,]", shape)[0]) for shape in shapes]
    if len(shapes) > 1 and key == "max":
        node.note(f'`{key} = "{value}"`: an engine has one profile, from the smallest min to the largest max')
    most = max(rows) if key == "max" else min(rows)
    keys: Keys = {} if key == "min" and most == 1 else {key: most}
    extreme = shapes[rows.index(most)]
    if _SHAPE.fullmatch(extreme) and names & {"TensorrtTensor", "Onnx2Tensorrt"}:
        keys[f"Onnx2Tensorrt.{key}"] = extreme
    return keys


def _size(node: Node, key: str, value: Any, names: set[str]) -> Keys:
    new = {"max_w": "width", "max_h": "height", "pad_value": "pad"}[key]
    return {new if names & set(_SIZED) else key: value}


def _drop(node: Node, key: str, value: Any, names: set[str]) -> Keys:
    """A key that the rewritten expression has instead."""
    return {} if names & {"MapReduce", "Jump", "CopyKey"} else {key: value}


def _device(node: Node, key: str, value: Any, names: set[str]) -> Keys:
    return {"device": f"cuda:{value}"}


def _workspace(node: Node, key: str, value: Any, names: set[str]) -> Keys:
    return {"workspace": f"{value}MiB"}


def _queue(node: Node, key: str, value: Any, names: set[str]) -> Keys:
    return {"max_queue_size": value}


def _none(node: Node, key: str, value: Any, names: set[str]) -> Keys:
    return {}


_KEY_RULES: dict[str, Callable[[Node, str, Any, set[str]], Keys]] = {
    **dict.fromkeys(("max", "min"), _rows),
    **dict.fromkeys(("max_w", "max_h", "pad_value"), _size),
    **dict.fromkeys(("jump", "split", "merge", "key_a", "key_b"), _drop),
    "device_id": _device,
    "max_workspace_size": _workspace,
    "queue_max": _queue,
    "node_name": _none,
    "range": _none,
    "fake_instance_num": _none,
    "device": _none,
}
