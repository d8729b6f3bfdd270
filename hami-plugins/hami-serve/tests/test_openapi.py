"""The OpenAPI document: it has every path of the server, and the answers of the server are as it says."""

from __future__ import annotations

import pytest

from hami_serve.http_app import app
from hami_serve.openapi import ERRORS, document
from hami_serve.routes import plugin_routes
from hami_serve.web_page import MODELS, PAGES

OTHERS = {
    "/metrics",
    "/openapi.json",
    "/{name}",
    MODELS,
    *PAGES,
}  # they are not part of the protocol, or named by each model
TENSOR = {"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}
BODIES = {
    "infer": {"inputs": [TENSOR], "id": "a"},
    "generate": {"x": 1},
    "index": {},
}


def test_the_document_has_the_paths_and_methods_of_the_server():
    described = {(path, method.upper()) for path, item in document()["paths"].items() for method in item}
    routes = {(route.path, method) for route in app({}).routes for method in route.methods - {"HEAD"}}
    of_plugins = {each.path for each in plugin_routes()}
    assert described == {(path, method) for path, method in routes if path not in OTHERS | of_plugins}


def test_every_error_of_the_document_has_a_description_and_the_form_of_the_protocol():
    responses = document()["components"]["responses"]
    assert responses.keys() == ERRORS.keys()
    assert {str(each["content"]) for each in responses.values()} == {
        "{'application/json': {'schema': {'$ref': '#/components/schemas/Error'}}}"
    }


def test_answers_are_as_the_document_says(server):
    jsonschema = pytest.importorskip("jsonschema")
    status, given = server.get("/openapi.json")
    assert (status, given) == (200, document(server.serving.rounder.registry.models()))
    assert document()["paths"].keys() < given["paths"].keys()
    checked = 0
    for path, item in document()["paths"].items():
        if path.endswith(("load", "unload", "generate_stream")):
            continue  # they are forbidden, or an event stream
        if "/region/" in path:
            continue  # a region is a file of this machine: those tests are test_shared_memory.py
        real = path.replace("{name}", "any").replace("{version}", "1")
        body = BODIES.get(path.rpartition("/")[2], {})
        status, answer = server.get(real) if "get" in item else server.post(real, body)
        assert status == 200, (path, answer)
        (operation,) = item.values()
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator({**schema, "components": given["components"]}).validate(answer)
        checked += 1
    assert checked == 21


def test_each_model_has_a_path_with_the_schemas_of_its_tensors(server):
    jsonschema = pytest.importorskip("jsonschema")
    given = server.get("/openapi.json")[1]
    of_models = {path: item["post"] for path, item in given["paths"].items() if path not in document()["paths"]}
    assert {"/any", "/simple", "/words"} <= of_models.keys()
    for operation in of_models.values():
        contents = [operation["requestBody"]["content"], operation["responses"]["200"]["content"]]
        for each in (media for content in contents for media in content.values()):
            jsonschema.Draft202012Validator.check_schema(each.get("schema", {}))
    simple = of_models["/simple"]
    request = {"INPUT0": [[*range(16)]], "INPUT1": [[1] * 16]}
    _check(simple["requestBody"], request)
    with pytest.raises(jsonschema.ValidationError, match="'INPUT1' is a required property"):
        _check(simple["requestBody"], {"INPUT0": [[*range(16)]]})
    with pytest.raises(jsonschema.ValidationError, match="is too short"):
        _check(simple["requestBody"], {**request, "INPUT0": [[1]]})
    status, answer = server.post("/simple", request)
    assert status == 200
    _check(simple["responses"]["200"], answer)
    assert "image/*" not in simple["requestBody"]["content"]
    assert {"image/*", "text/plain", "multipart/form-data"} <= of_models["/words"]["requestBody"]["content"].keys()


def _check(media: dict, value: object) -> None:
    import jsonschema

    jsonschema.Draft202012Validator(media["content"]["application/json"]["schema"]).validate(value)


def test_a_body_that_is_one_input_does_not_fit_a_model_with_two(server):
    status, _, answer = server.call("POST", "/v2/models/simple/infer", b"1", {"Content-Type": "text/plain"})
    text = 'a body of the type text/plain is one input; model "simple" has INPUT0, INPUT1'
    assert (status, answer) == (400, {"error": text})


def test_a_wrong_option_of_the_index_is_named(server):
    assert server.post("/v2/repository/index", {"ready": "yes"}) == (400, {"error": "ready is true or false, got yes"})


def test_a_wrong_method_is_answered_with_those_that_exist(server):
    status, headers, answer = server.call("GET", "/v2/models/any/infer")
    assert (status, headers["Allow"], answer) == (405, "POST", {"error": "/v2/models/any/infer does not take GET"})
