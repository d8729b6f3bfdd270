"""What the protocol says about the server and its models: metadata, configuration, statistics, index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from hami_serve.errors import load_failed
from hami_serve.model import Model, State, TensorSpec
from hami_serve.rounder import AllRounder
from hami_serve.routing import natural

NAME = "hami-serve"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "model_repository(unload_dependents)")
EXTENSIONS_HTTP = (*EXTENSIONS, "generate", "parameters", "schedule_policy", "sequence", "statistics")
PLATFORM = "hami"
STATES = {
    State.LOADING: "LOADING",
    State.READY: "READY",
    State.DRAINING: "UNLOADING",
    State.UNLOADED: "UNAVAILABLE",
    State.FAILED: "UNAVAILABLE",
}


def server_metadata(*, shared_memory: bool) -> dict[str, Any]:
    extensions = [*EXTENSIONS_HTTP, *(["system_shared_memory"] if shared_memory else [])]
    return {"name": NAME, "version": version("hami-serve"), "extensions": extensions}


def model_metadata(rounder: AllRounder, model: Model) -> dict[str, Any]:
    name = model.handle.component
    return {
        "name": name,
        "versions": sorted(rounder.registry.versions(name), key=natural),
        "platform": PLATFORM,
        "inputs": [_tensor(spec) for spec in model.inputs],
        "outputs": [_tensor(spec) for spec in model.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype or "BYTES", "shape": list(spec.shape)}


def model_config(model: Model) -> dict[str, Any]:
    """Return the part of Triton's model configuration that clients read."""

    def tensor(spec: TensorSpec) -> dict[str, Any]:
        name = {"BYTES": "STRING"}.get(spec.datatype, spec.datatype or "STRING")
        return {"name": spec.name, "data_type": f"TYPE_{name}", "dims": list(spec.shape)}

    return {
        "name": model.handle.component,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": 0,
        "input": [tensor(spec) for spec in model.inputs],
        "output": [tensor(spec) for spec in model.outputs],
        "model_transaction_policy": {"decoupled": model.version.decoupled},
    }


def index(rounder: AllRounder, *, only_ready: bool = False) -> list[dict[str, str]]:
    found = []
    for model in rounder.registry.models():
        state = STATES[model.state]
        if only_ready and state != "READY":
            continue
        reason = load_failed(model.reason) if model.reason else "unloaded" if model.state is State.UNLOADED else ""
        found.append(
            {"name": model.handle.component, "version": model.handle.version, "state": state, "reason": reason}
        )
    return found


def statistics(model: Model) -> dict[str, Any]:
    """Return the statistics of a model, in the form of Triton's statistics extension.

    Clients such as perf_analyzer expect the same count for every step of the computation. The time is that of batches.
    """
    nodes = model.pipe.stats().values() if model.pipe is not None else ()
    batches = sum(node.model_calls for node in nodes)
    compute_ns = int(sum(node.compute_ms for node in nodes) * 1e6)
    succeeded = model.calls - model.failures
    nothing = {"count": 0, "ns": 0}
    without_time = {"count": succeeded, "ns": 0}
    queue_ns = max(0, model.success_ns + model.failure_ns - compute_ns)
    return {
        "name": model.handle.component,
        "version": model.handle.version,
        "last_inference": int(model.last_call * 1000),
        "inference_count": succeeded + model.more_rows,
        "execution_count": batches,
        "inference_stats": {
            "success": {"count": succeeded, "ns": model.success_ns},
            "fail": {"count": model.failures, "ns": model.failure_ns},
            "queue": {"count": model.calls, "ns": queue_ns},
            "compute_input": without_time,
            "compute_infer": {"count": succeeded, "ns": compute_ns},
            "compute_output": without_time,
            "cache_hit": nothing,
            "cache_miss": nothing,
        },
        "batch_stats": [],
    }


def summed_statistics(of_workers: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the statistics of a server from those of its workers: the sums for each version of a model."""
    by_version: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for models in of_workers:
        for each in models:
            by_version.setdefault((each["name"], each["version"]), []).append(each)
    return [
        {**_sum(found), "last_inference": max(each["last_inference"] for each in found)}
        for found in by_version.values()
    ]


def _sum(values: Sequence[Any]) -> Any:
    """Add numbers; dicts are added key by key, and what is not a number is equal in all."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _sum([value[key] for value in values]) for key in first}
    return sum(values) if isinstance(first, int) else first
