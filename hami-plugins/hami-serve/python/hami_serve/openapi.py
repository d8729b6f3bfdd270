"""The OpenAPI document of the protocol over HTTP: KServe v2, and the extensions of Triton that this server has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from hami_serve.datatypes import DATATYPES, MAX_RANK
from hami_serve.http_plain import PATHS, plain_path
from hami_serve.http_tensors import HEADER_LENGTH
from hami_serve.inference import MAX_TENSORS
from hami_serve.model import Model
from hami_serve.openapi_models import plain_operation, unique

Json = dict[str, Any]

ERRORS = {
    "400": "The request does not follow the protocol, or does not fit the model.",
    "403": "This server does not let clients load and unload models.",
    "404": "There is no such model or version.",
    "406": "The client accepts no form that the answer can have.",
    "408": "The rest of the body did not come in time.",
    "413": "The request is larger than this server accepts.",
    "415": "The body has a content coding or a content type that this server does not know.",
    "429": "The queue of the model is full.",
    "501": "The request came in a transfer coding that this server does not know.",
    "503": "The model or the server is not ready.",
    "504": "The timeout of the request has passed.",
}
BODY = ("400", "408", "413", "415", "501", "503")  # errors of every request with a body
VERSIONED = {"": ("name",), "/versions/{version}": ("name", "version")}


def document(models: Iterable[Model] = (), taken: frozenset[str] = frozenset()) -> Json:
    """Return the document as an object for JSON.

    Args:
        models: Those of the server, each of which has a path with its own inputs and outputs.
        taken: The paths of plugins.
    """
    paths = _of_server()
    errors = _errors(("404", *BODY, "406", "429", "504"))
    for model in unique(models):
        name = model.handle.component
        operation = plain_operation(f"Run {name}", model.inputs, model.outputs, errors)
        paths[plain_path(name, taken)] = {"post": operation}
    for path, names in ((PATHS[1], ("name",)), (PATHS[2], ("name", "version"))):
        operation = plain_operation("Run a request of plain JSON, a form or a picture", (), (), errors)
        operation["parameters"] = _in_path(names)
        paths[path] = {"post": operation}
    for place, parameters in VERSIONED.items():
        paths |= _of_model(f"/v2/models/{{name}}{place}", parameters)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Open Inference Protocol",
            "description": "The Open Inference Protocol (KServe v2) over HTTP, with extensions of Triton.",
            "version": version("hami-serve"),
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "responses": {status: {"description": text, **_json("Error")} for status, text in ERRORS.items()},
        },
    }


def _of_server() -> Json:
    options, filters = {"requestBody": _json("LoadOptions")}, {"requestBody": _json("IndexOptions")}
    control = ("404", "403", *BODY)
    model = "/v2/repository/models/{name}"
    return {
        "/v2": {"get": _operation("Name, version and extensions of the server", "ServerMetadata")},
        "/v2/health/live": {"get": _operation("Whether the server runs", "Live")},
        "/v2/health/ready": {"get": _readiness("Whether the server takes requests", "Ready")},
        "/v2/models/stats": {"get": _operation("Statistics of all models", "Statistics", ("503",))},
        "/v2/repository/index": {"post": _operation("All models and their states", "Index", BODY) | filters},
        f"{model}/load": {"post": _operation("Load a model", "Empty", control, ("name",)) | options},
        f"{model}/unload": {"post": _operation("Unload a model", "Empty", control, ("name",)) | options},
        **_of_shared_memory("/v2/systemsharedmemory"),
    }


def _of_model(path: str, parameters: tuple[str, ...]) -> Json:
    looked_up, run = ("404", "503"), ("404", *BODY, "429", "504")
    tensors = {"application/json": _schema("InferenceRequest"), "application/octet-stream": {}, "text/plain": {}}
    values = {"requestBody": _json("GenerateRequest") | {"required": True}}
    infer = _operation("Run a request", "InferenceResponse", run, parameters)
    infer["requestBody"] = {"required": True, "content": tensors}
    infer["parameters"] += [_parameter(HEADER_LENGTH, "header", required=False, schema={"type": "string"})]
    infer["responses"]["200"]["content"]["application/octet-stream"] = {}
    streamed = _operation("Run a request, and send its answer in parts", None, run, parameters)
    streamed["responses"]["200"]["content"] = {"text/event-stream": {}}
    generate = _operation("Run a request of plain JSON", "GenerateResponse", run, parameters)
    return {
        path: {"get": _operation("Inputs and outputs of a model", "ModelMetadata", looked_up, parameters)},
        f"{path}/ready": {"get": _readiness("Whether a model takes requests", "ModelReady", parameters)},
        f"{path}/config": {"get": _operation("Configuration of a model", "ModelConfig", looked_up, parameters)},
        f"{path}/stats": {"get": _operation("Statistics of a model", "Statistics", looked_up, parameters)},
        f"{path}/infer": {"post": infer},
        f"{path}/generate": {"post": generate | values},
        f"{path}/generate_stream": {"post": streamed | values},
    }


def _of_shared_memory(path: str) -> Json:
    one = f"{path}/region/{{name}}"
    place = {"requestBody": _json("SharedMemory") | {"required": True}}
    options = {"requestBody": _json("Empty")}
    return {
        f"{path}/status": {"get": _operation("All regions of shared memory", "SharedMemories", ("400",))},
        f"{one}/status": {"get": _operation("A region of shared memory", "SharedMemories", ("400", "404"), ("name",))},
        f"{one}/register": {"post": _operation("Use a region of shared memory", "Empty", BODY, ("name",)) | place},
        f"{path}/unregister": {"post": _operation("Forget all regions", "Empty", BODY) | options},
        f"{one}/unregister": {"post": _operation("Forget a region", "Empty", BODY, ("name",)) | options},
    }


def _operation(
    summary: str, answer: str | None, errors: tuple[str, ...] = (), parameters: tuple[str, ...] = ()
) -> Json:
    responses: Json = {"200": {"description": "The answer.", **(_json(answer) if answer else {})}}
    return {"summary": summary, "parameters": _in_path(parameters), "responses": responses | _errors(errors)}


def _errors(statuses: tuple[str, ...]) -> Json:
    return {status: {"$ref": f"#/components/responses/{status}"} for status in statuses}


def _in_path(parameters: tuple[str, ...]) -> list[Json]:
    return [_parameter(name, "path", schema={"type": "string", "minLength": 1}) for name in parameters]


def _readiness(summary: str, answer: str, parameters: tuple[str, ...] = ()) -> Json:
    """Return an operation whose status says whether something is ready, or which model does not exist."""
    made = _operation(summary, answer, ("404",) if parameters else (), parameters)
    made["responses"]["503"] = {"description": "It is not ready.", **_json(answer)}
    return made


def _parameter(name: str, place: str, *, required: bool = True, schema: Json) -> Json:
    return {"name": name, "in": place, "required": required, "schema": schema}


def _json(schema: str) -> Json:
    return {"content": {"application/json": _schema(schema)}}


def _schema(name: str) -> Json:
    return {"schema": _ref(name)}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Mapping[str, Json], optional: Mapping[str, Json] | None = None) -> Json:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _list(items: Json, **limits: int) -> Json:
    return {"type": "array", "items": items, **limits}


TEXT: Json = {"type": "string"}
SIZE: Json = {"type": "integer", "minimum": 0}
FLAG: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
NAME: Json = {"type": "string", "minLength": 1}
DATATYPE: Json = {"enum": list(DATATYPES)}
SHAPE = _list(COUNT, maxItems=MAX_RANK)
PARAMETERS: Json = {"type": "object"}
DECLARED = _object({"name": NAME, "datatype": DATATYPE, "shape": _list({"type": "integer", "minimum": -1})})
CONFIGURED = _object({"name": NAME, "data_type": TEXT, "dims": _list({"type": "integer", "minimum": -1})})
TIMES = _object({"count": COUNT, "ns": COUNT})
STEPS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
PLAIN: Json = {"type": ["string", "number", "boolean"]}

SCHEMAS: Json = {
    "Error": _object({"error": TEXT}),
    "Empty": {"type": "object"},
    "IndexOptions": _object({}, {"ready": FLAG}),
    "LoadOptions": _object({}, {"parameters": PARAMETERS}),
    "SharedMemory": _object({"key": TEXT, "byte_size": SIZE}, {"offset": SIZE}),
    "SharedMemories": _list(_object({"name": TEXT, "key": TEXT, "offset": SIZE, "byte_size": SIZE})),
    "Live": _object({"live": FLAG}),
    "Ready": _object({"ready": FLAG}, {"loading": _list(TEXT)}),
    "ServerMetadata": _object({"name": TEXT, "version": TEXT, "extensions": _list(TEXT)}),
    "ModelReady": _object({"name": NAME, "ready": FLAG}, {"error": TEXT}),
    "ModelMetadata": _object(
        {
            "name": NAME,
            "versions": _list(NAME),
            "platform": TEXT,
            "inputs": _list(_ref("TensorMetadata")),
            "outputs": _list(_ref("TensorMetadata")),
        }
    ),
    "TensorMetadata": DECLARED,
    "ModelConfig": _object(
        {
            "name": NAME,
            "platform": TEXT,
            "max_batch_size": COUNT,
            "input": _list(CONFIGURED),
            "output": _list(CONFIGURED),
        }
    ),
    "Statistics": _object({"model_stats": _list(_ref("ModelStatistics"))}),
    "ModelStatistics": _object(
        {
            "name": NAME,
            "version": NAME,
            "last_inference": COUNT,
            "inference_count": COUNT,
            "execution_count": COUNT,
            "inference_stats": _object(dict.fromkeys(STEPS, TIMES)),
            "batch_stats": _list({"type": "object"}),
        }
    ),
    "Index": _list(
        _object(
            {
                "name": NAME,
                "version": NAME,
                "state": {"enum": ["LOADING", "READY", "UNLOADING", "UNAVAILABLE"]},
                "reason": TEXT,
            }
        )
    ),
    "InferenceRequest": _object(
        {"inputs": _list(_ref("RequestInput"), minItems=1, maxItems=MAX_TENSORS)},
        {
            "id": TEXT,
            "parameters": PARAMETERS,
            "outputs": _list(_object({"name": NAME}, {"parameters": PARAMETERS}), maxItems=MAX_TENSORS),
        },
    ),
    "RequestInput": _object(
        {"name": NAME, "datatype": DATATYPE, "shape": SHAPE},
        {"data": {"type": "array"}, "parameters": PARAMETERS},
    ),
    "InferenceResponse": _object(
        {"model_name": NAME, "outputs": _list(_ref("ResponseOutput"))},
        {"model_version": NAME, "id": TEXT, "parameters": PARAMETERS},
    ),
    "ResponseOutput": _object(
        {"name": NAME, "datatype": DATATYPE, "shape": SHAPE},
        {"data": {"type": "array"}, "parameters": PARAMETERS},
    ),
    "GenerateRequest": {
        **_object({}, {"id": TEXT, "parameters": PARAMETERS}),
        "minProperties": 1,
        "additionalProperties": {"anyOf": [PLAIN, _list(PLAIN)]},
    },
    "GenerateResponse": _object({"model_name": NAME, "model_version": NAME}, {"id": TEXT}),
}
