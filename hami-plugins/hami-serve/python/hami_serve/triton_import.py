"""import_triton: describes a model repository of Triton as a file models.toml of this package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import hami
from hami.cli import printable, visible

from hami_serve.building import RESERVED
from hami_serve.source import NAME, TRITON_CONFIG, triton_configs
from hami_serve.triton_config import read_config

MAX_STEPS = 1000  # of an ensemble, also of those in it, which a small file can multiply


@dataclass(frozen=True)
class _Engine:
    """How a backend of Triton is called here."""

    backend: str
    file: str  # the default name of the model file
    names_inputs: bool  # whether several inputs can be read by name


_ENGINES = {
    "onnxruntime": _Engine("OnnxTensor", "model.onnx", True),
    "openvino": _Engine("OpenvinoTensor", "model.xml", True),
    "pytorch": _Engine("TorchModel", "model.pt", False),
    "tensorrt": _Engine("TensorrtTensor", "model.plan", True),
}
_PLATFORMS = {"onnxruntime_onnx": "onnxruntime", "pytorch_libtorch": "pytorch", "tensorrt_plan": "tensorrt"}
# Fields that are not mapped, and what comes nearest.
_UNMAPPED = {
    "sequence_batching": "a node that keeps state between requests is written by hand",
    "parameters": "set the keys of the engine in the node, such as `threads`",
    "optimization": "set the keys of the engine in the node, such as `provider`",
    "model_warmup": "the key `warmup` of the component has example requests",
    "model_operations": "set the keys of the engine in the node",
    "response_cache": "keep answers in front of the server",
    "model_transaction_policy": "`decoupled = true`, if the pipeline answers in parts",
    "batch_input": "a node before the model can make it",
    "batch_output": "a node after the model can split it",
    "model_repository_agents": "prepare the files before the server starts",
    "cc_model_filenames": "name the file of the GPU at hand in `model`",
}
_UNMAPPED_BATCHING = {
    "preferred_batch_size": "the batch size follows measured times, up to `max`",
    "preserve_ordering": "`instance_num = 1` runs batches one after the other",
    "priority_levels": "a request has a priority from 0 to 255 instead, 255 first: send 255 - N for level N",
    "default_priority_level": "a request without `priority` has 0, the last",
    "priority_queue_policy": "`max_queue_size` and `on_full` hold for all priorities",
}
_UNMAPPED_QUEUE = {
    "default_timeout_microseconds": "a request has its own `timeout`",
    "timeout_action": "a request whose timeout has passed is rejected",
}
_UNMAPPED_GROUP = {
    "gpus": "a node runs on one device",
    "profile": "the engine chooses the profile by the shapes",
    "secondary_devices": "a node runs on one device",
}


class _NotMapped(Exception):
    """A model that cannot be described; the text is the reason."""


@dataclass(frozen=True)
class _Step:
    """A step of an ensemble: a model, and for each of its inputs and outputs the tensor of the ensemble."""

    model: str
    version: int  # up to 0: the newest
    inputs: dict[str, str]
    outputs: dict[str, str]


@dataclass
class Imported:
    """What import_triton found.

    Attributes:
        components: the tables of models.toml by name.
        notes: one text for each field or model that is not mapped, with the nearest equivalent.
        errors: why a model has no component, by the name of the model.
    """

    components: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    errors: dict[str, hami.ConfigError] = field(default_factory=dict)

    def add(self, name: str, table: dict[str, Any]) -> None:
        """Add a component, if a server can have it."""
        if not NAME.fullmatch(name):
            self.leave_out(name, "a name has letters, digits, `_`, `.` and `-` only; rename it")
        elif printable(text := json.dumps(table, ensure_ascii=False)) != text:
            self.leave_out(name, "its names are not valid Unicode")
        else:
            self.components[name] = table

    def leave_out(self, name: str, reason: object) -> None:
        """Record why a model has no component."""
        self.errors[name] = hami.ConfigError(f'the model "{name}" cannot be imported: {reason}')
        self.notes.append(f"{name}: left out: {reason}")

    def toml(self) -> str:
        """Return the file, with the notes as comments at its top."""
        lines = [f"# {visible(' '.join(note.split()))}" for note in self.notes]
        for name, table in self.components.items():
            lines += ["", f"[{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
        return "\n".join(lines).lstrip("\n") + "\n"


def import_triton(folder: Path) -> Imported:
    """Describe the models of a repository. Model files stay where they are, and are named by absolute paths.

    Raises:
        ConfigError: The folder has no model with a config.pbtxt.
    """
    paths = {path.parent.name: path for path in triton_configs(folder)}
    if not paths:
        raise hami.ConfigError(f'"{folder}" is not a model repository of Triton: no folder in it has a {TRITON_CONFIG}')
    found = Imported()
    configs: dict[str, Any] = {}
    for name, path in paths.items():
        try:
            configs[name] = read_config(path)
        except hami.ConfigError as error:
            found.leave_out(name, error)
    for name, config in configs.items():
        try:
            table = (
                _ensemble(folder, name, configs, found) if _is_ensemble(config) else _model(folder, name, config, found)
            )
        except (_NotMapped, OSError) as reason:
            found.leave_out(name, reason)
        else:
            found.add(name, table)
    return found


def _is_ensemble(config: Any) -> bool:
    return bool(config.platform == "ensemble" or config.HasField("ensemble_scheduling"))


def _model(folder: Path, name: str, config: Any, found: Imported) -> dict[str, Any]:
    _engine_of(config)
    versions = _versions(folder / name, config)
    nodes = {str(version): _node(folder, name, config, version) for version in versions}
    found.notes += dict.fromkeys(f"{name}: {each}" for each in _unmapped(config))
    if len(nodes) == 1:
        ((version, node),) = nodes.items()
        table: dict[str, Any] = {"version": version, "source": node}
    else:
        table = {"versions": {version: {"source": node} for version, node in nodes.items()}}
    return {**table, **_ports(folder / name, config)}


def _unmapped(config: Any) -> Iterable[str]:
    dynamic = config.dynamic_batching
    yield from _present(config, _UNMAPPED)
    yield from _present(dynamic, _UNMAPPED_BATCHING, "dynamic_batching.")
    yield from _present(dynamic.default_queue_policy, _UNMAPPED_QUEUE, "dynamic_batching.default_queue_policy.")
    for group in config.instance_group:
        yield from _present(group, _UNMAPPED_GROUP, "instance_group.")
    for port in (*config.input, *config.output):
        if port.HasField("reshape"):
            yield f'"reshape" of {port.name} is not mapped'


def _present(message: Any, unmapped: Mapping[str, str], place: str = "") -> Iterable[str]:
    present = {each.name for each, _ in message.ListFields()}
    return (f'"{place}{key}" is not mapped; {nearest}' for key, nearest in unmapped.items() if key in present)


def _versions(folder: Path, config: Any) -> list[int]:
    present = sorted(int(each.name) for each in folder.iterdir() if each.is_dir() and each.name.isdecimal())
    policy = config.version_policy
    if policy.HasField("specific"):
        present = [version for version in policy.specific.versions if version in present]
    elif not policy.HasField("all"):
        present = present[-(policy.latest.num_versions or 1) :]
    if not present:
        raise _NotMapped(f'"{folder}" has no folder of a version that its version_policy serves, such as "1"')
    return present


def _engine_of(config: Any) -> _Engine:
    name = config.backend or _PLATFORMS.get(config.platform, config.platform)
    if name not in _ENGINES:
        known = ", ".join((*_PLATFORMS, "ensemble"))
        raise _NotMapped(
            f'the platform "{config.platform or config.backend}" is not one of {known}; write its pipeline yourself'
        )
    return _ENGINES[name]


def _node(folder: Path, name: str, config: Any, version: int) -> dict[str, Any]:
    engine = _engine_of(config)
    file = folder / name / str(version) / _inside(config.default_model_filename or engine.file)
    if engine.backend == "OpenvinoTensor" and not file.exists():
        file = file.with_suffix(".onnx")
    if not file.exists():
        raise _NotMapped(f'the model file "{file}" does not exist')
    node: dict[str, Any] = {"backend": engine.backend, "model": str(file.absolute())}
    groups = config.instance_group
    if count := sum(max(group.count, 1) for group in groups):
        node["instance_num"] = count
    kinds = {group.kind for group in groups}
    if kinds == {1} and engine.backend == "OnnxTensor":  # KIND_GPU
        node["provider"] = "cuda"
    if kinds == {2} and engine.backend == "TorchModel":  # KIND_CPU
        node["device"] = "cpu"
    if config.HasField("dynamic_batching"):
        if config.max_batch_size > 0:
            node["max"] = config.max_batch_size
        if delay := config.dynamic_batching.max_queue_delay_microseconds:
            node["batching_timeout"] = f"{delay / 1000:g}ms"
        if size := config.dynamic_batching.default_queue_policy.max_queue_size:
            node |= {"max_queue_size": size, "on_full": "reject"}
    return node


def _inside(name: str) -> str:
    """Return the name of a file in the folder of a model."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise _NotMapped(f'the file "{name}" is not in the folder of the model')
    return name


def _ports(folder: Path, config: Any) -> dict[str, Any]:
    batch = [-1] if config.max_batch_size > 0 else []
    ports: dict[str, Any] = {}
    for key, of in (("inputs", config.input), ("outputs", config.output)):
        entries = []
        for port in of:
            kind = type(config).DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_number[port.data_type].name
            datatype = kind.removeprefix("TYPE_").replace("STRING", "BYTES")
            entry = {"name": port.name, "datatype": datatype, "shape": [*batch, *port.dims]}
            if label := getattr(port, "label_filename", ""):
                entry["labels"] = str((folder / _inside(label)).absolute())
            entries.append(entry)
        if entries:
            ports[key] = entries
    return ports


def _ensemble(folder: Path, name: str, configs: Mapping[str, Any], found: Imported) -> dict[str, Any]:
    """Return an ensemble as a graph: `request` has its inputs, `stepN` runs a model, `answer` has its outputs."""
    config = configs[name]
    steps = {f"step{index}": step for index, step in enumerate(_steps([name], configs, iter(range(MAX_STEPS))), 1)}
    source = {
        port.name: f"request[{port.name}" for port in config.input
    }  # what `map` writes before a tensor's new name
    names = {key for step in steps.values() for key in (*step.inputs, *step.outputs)}
    if odd := sorted(
        name for name in {*names, *source, *(port.name for port in config.output)} if set(name) & set(":,")
    ):
        raise _NotMapped(f'the name "{odd[0]}" has a character that `map` does not allow, ":" or ","')
    if reserved := sorted(set(source) & RESERVED):
        raise _NotMapped(f"its input {reserved[0]} has the name of a reserved key of requests")
    for node, step in steps.items():
        outputs = [port.name for port in configs[step.model].output]
        if not outputs:
            raise _NotMapped(f'the {TRITON_CONFIG} of "{step.model}" does not list its outputs')
        for output, tensor in step.outputs.items():
            if output not in outputs:
                raise _NotMapped(f'"{step.model}" has the outputs {outputs}, and its step names "{output}"')
            source[tensor] = f"{node}[{'result' if len(outputs) == 1 else output}"
    wanted = [port.name for port in config.output]
    if not wanted:
        raise _NotMapped(f"its {TRITON_CONFIG} lists no outputs")
    takes = {node: step.inputs.values() for node, step in steps.items()}
    for tensor in (*(tensor for each in takes.values() for tensor in each), *wanted):
        if tensor not in source:
            raise _NotMapped(f'no step and no input sets the tensor "{tensor}"')
    before = {node: {_node_of(source[tensor]) for tensor in each} for node, each in takes.items()}
    before["answer"] = {_node_of(source[tensor]) for tensor in wanted}
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        models = [steps[node].model for node in reversed(error.args[1])]
        raise _NotMapped(f"its steps wait for each other: {' -> '.join(models)}") from None
    used = {"answer"}
    for node in reversed(order):
        used |= before.get(node, set()) if node in used else set()
    after = {node: [other for other in order if other in used and node in before.get(other, ())] for node in order}
    nodes: dict[str, Any] = {"request": {"backend": "Identity", "next": after.get("request", [])}}
    for node in (each for each in order if each in steps and each in used):
        nodes[node] = {**_step(folder, steps[node], configs, source), "next": after[node]}
    answer = [f"{source[wanted[0]]}:data]", *(f"{source[tensor]}:{tensor}]" for tensor in wanted)]
    nodes["answer"] = {"backend": "Identity", "map": ",".join(answer)}
    found.notes += dict.fromkeys(f"{name}: {each}" for each in _unmapped(config))
    return {"source": nodes, **_ports(folder / name, config)}


def _node_of(source: str) -> str:
    return source.partition("[")[0]


def _steps(trail: list[str], configs: Mapping[str, Any], left: Iterator[int], prefix: str = "") -> list[_Step]:
    """Return the steps of the last ensemble of `trail`; a step that is an ensemble is replaced by its own steps.

    `left` has an element for each step that may follow.
    """
    steps = []
    for index, step in enumerate(configs[trail[-1]].ensemble_scheduling.step, 1):
        name = step.model_name
        if next(left, None) is None:
            raise _NotMapped(f"it has more than {MAX_STEPS} steps")
        if name not in configs:
            raise _NotMapped(f'its step runs the model "{name}", which the repository does not have')
        inputs = {entry.key: prefix + entry.value for entry in step.input_map}
        outputs = {entry.key: prefix + entry.value for entry in step.output_map}
        if not _is_ensemble(configs[name]):
            steps.append(_Step(name, step.model_version, inputs, outputs))
            continue
        if name in trail:
            raise _NotMapped(f"an ensemble runs itself: {' -> '.join([*trail[trail.index(name) :], name])}")
        inside = f"{prefix}{name}.{index}/"
        outside = {f"{inside}{key}": tensor for key, tensor in {**outputs, **inputs}.items()}
        for each in _steps([*trail, name], configs, left, inside):
            own = [{key: outside.get(at, at) for key, at in ports.items()} for ports in (each.inputs, each.outputs)]
            steps.append(_Step(each.model, each.version, *own))
    return steps


def _step(folder: Path, step: _Step, configs: Mapping[str, Any], source: Mapping[str, str]) -> dict[str, Any]:
    config = configs[step.model]
    versions = _versions(folder / step.model, config)
    node = _node(folder, step.model, config, step.version if step.version > 0 else versions[-1])
    inputs = {key: source[tensor] for key, tensor in step.inputs.items()}
    if len(inputs) == 1:
        return {**node, "map": f"{next(iter(inputs.values()))}:data]"}
    if not _engine_of(config).names_inputs:
        raise _NotMapped(f'its step "{step.model}" has several inputs, which {node["backend"]} does not read by name')
    return {**node, "inputs": list(inputs), "map": ",".join(f"{each}:{key}]" for key, each in inputs.items())}


def _key(text: str) -> str:
    return text if text.replace("_", "").replace("-", "").isalnum() and text.isascii() else json.dumps(text)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
