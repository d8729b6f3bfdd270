"""The client of the KServe SDK calls our server, which is another process, over HTTP and gRPC.

The manifests for KServe and Kubernetes have the fields that the SDK and Kubernetes know.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_command import serving

kserve = pytest.importorskip("kserve", reason="needs kserve: ci/test serving", exc_type=ImportError)

DEPLOY = Path(__file__).parents[2] / "deploy"
BACKENDS = """
import hami


@hami.register
class AddSub(hami.Backend):
    max = 8

    def forward(self, batch):
        for item in batch:
            first, second = item["INPUT0"], item["INPUT1"]
            item["OUTPUT0"], item["OUTPUT1"] = first + second, first - second
            item["result"] = item["OUTPUT0"]
"""
MODELS = """
[simple]
source = "AddSub"
inputs = [
    {name = "INPUT0", datatype = "INT32", shape = [1, 16]},
    {name = "INPUT1", datatype = "INT32", shape = [1, 16]},
]
outputs = [
    {name = "OUTPUT0", datatype = "INT32", shape = [1, 16]},
    {name = "OUTPUT1", datatype = "INT32", shape = [1, 16]},
]

[echo]
source = "Identity"
"""
FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)


class Client:
    """Both clients of the SDK with the same methods."""

    def __init__(self, transport: str, port: int) -> None:
        self._url = {"http": f"http://127.0.0.1:{port}", "grpc": f"127.0.0.1:{port}"}[transport]
        self._rest = transport == "http"
        if self._rest:
            self._client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", retries=0))
        else:
            self._client = kserve.InferenceGRPCClient(self._url)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._client.close()

    async def infer(self, model: str, request):
        if self._rest:
            return await self._client.infer(self._url, request, model_name=model)
        return await self._client.infer(request)

    async def states(self, model: str) -> list[bool]:
        where = [self._url] if self._rest else []
        ready = self._client.is_model_ready(*where, model_name=model)
        return [await self._client.is_server_live(*where), await self._client.is_server_ready(*where), await ready]


@pytest.fixture(scope="module", params=["http", "grpc"])
def call(request, tmp_path_factory):
    """call(function) runs a coroutine function with a client."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "backends.py").write_text(BACKENDS)
    (folder / "models.toml").write_text(MODELS)
    also = ["--grpc", "0"] if request.param == "grpc" else []
    with serving(folder, "models.toml", "--import", "backends.py", *also) as (_, port):

        async def run(function):
            async with Client(request.param, port) as client:
                return await function(client)

        yield lambda function: asyncio.run(run(function))


def tensor(name: str, array: np.ndarray, datatype: str, *, binary: bool = True):
    made = kserve.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def request(model: str, *tensors, **options):
    return kserve.InferRequest(model_name=model, infer_inputs=list(tensors), **options)


def test_server_and_model_are_ready(call):
    assert call(lambda client: client.states("simple")) == [True] * 3


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_are_sent_and_received(call, binary):
    second = np.full((1, 16), -1, np.int32)
    tensors = [tensor("INPUT0", FIRST, "INT32", binary=binary), tensor("INPUT1", second, "INT32", binary=binary)]
    answer = call(lambda client: client.infer("simple", request("simple", *tensors, request_id="a1")))
    found = {output.name: output.as_numpy() for output in answer.outputs}
    np.testing.assert_array_equal(found["OUTPUT0"], FIRST - 1)
    np.testing.assert_array_equal(found["OUTPUT1"], FIRST + 1)
    assert (answer.id, answer.model_name) == ("a1", "simple")


def test_text_and_half_precision_keep_their_values(call):
    text, half = np.array([[b"to", b"be"]], object), np.array([0.5, -2], np.float16)

    async def both(client):
        tensors = [tensor("x", text, "BYTES"), tensor("x", half, "FP16")]
        requests = [request("echo", each, parameters={"binary_data_output": True}) for each in tensors]
        return [(await client.infer("echo", each)).outputs[0].as_numpy() for each in requests]

    found = call(both)
    words = found[0].reshape(-1)
    assert [each if isinstance(each, bytes) else each.encode() for each in words] == [b"to", b"be"]
    np.testing.assert_array_equal(found[1], half)


def test_64_requests_at_once_are_all_answered(call):
    async def many(client):
        requests = [request("echo", tensor("x", FIRST + number, "INT32")) for number in range(64)]
        return await asyncio.gather(*(client.infer("echo", each) for each in requests))

    answers = call(many)
    for number, answer in enumerate(answers):
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), FIRST + number)


def test_errors_have_the_text_of_the_server(call):
    small = [tensor(name, FIRST[:, :3], "INT32") for name in ("INPUT0", "INPUT1")]

    async def wrong(client):
        with pytest.raises(Exception, match="has the shape") as shape:
            await client.infer("simple", request("simple", *small))
        with pytest.raises(Exception, match='there is no model "absent"'):
            await client.infer("absent", request("absent", tensor("x", FIRST, "INT32")))
        return str(shape.value)

    assert any(word in call(wrong) for word in ("400", "INVALID_ARGUMENT"))


def manifests(name: str) -> list[dict]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def check_fields(value: object, kind: str, place: str) -> None:
    """Compare a part of a manifest with the type that the SDK or the client of Kubernetes has for it."""
    import kserve.models
    import kubernetes.client

    if found := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
        assert isinstance(value, list), place
        for index, each in enumerate(value):
            check_fields(each, found[1], f"{place}[{index}]")
    elif found := re.fullmatch(r"[Dd]ict[[(]str, (.+)[])]", kind):
        assert isinstance(value, dict), place
        for key, each in value.items():
            check_fields(each, found[1], f"{place}.{key}")
    elif model := getattr(kserve.models, kind, None) or getattr(kubernetes.client, kind, None):
        assert isinstance(value, dict), place
        fields = {known: model.openapi_types[name] for name, known in model.attribute_map.items()}
        assert value.keys() <= fields.keys(), place
        for key, each in value.items():
            check_fields(each, fields[key], f"{place}.{key}")
    else:
        types = {"str": str, "int": int, "bool": bool, "object": object, "ResourceQuantity": str}
        assert isinstance(value, types[kind]), f"{place} is {value!r}, expected {kind}"


def test_the_manifest_of_kserve_has_the_fields_of_the_sdk():
    runtime, service = manifests("kserve.yaml")
    assert (runtime["apiVersion"], service["apiVersion"]) == (
        kserve.constants.KSERVE_V1ALPHA1,
        kserve.constants.KSERVE_V1BETA1,
    )
    check_fields(runtime, "V1alpha1ServingRuntime", "ServingRuntime")
    check_fields(service, "V1beta1InferenceService", "InferenceService")
    assert service["spec"]["predictor"]["model"]["runtime"] == runtime["metadata"]["name"]
    assert service["spec"]["predictor"]["model"]["modelFormat"]["name"] in {
        known["name"] for known in runtime["spec"]["supportedModelFormats"]
    }


def test_a_wrong_field_of_a_manifest_is_found():
    runtime, _ = manifests("kserve.yaml")
    runtime["spec"]["containers"][0]["readinessProbe"]["httpGet"]["paths"] = "/"
    with pytest.raises(AssertionError, match=r"ServingRuntime.spec.containers\[0\].readinessProbe.httpGet"):
        check_fields(runtime, "V1alpha1ServingRuntime", "ServingRuntime")


def test_the_manifest_of_kubernetes_is_valid():
    for version in ("1.30", "1.37"):
        options = ["--strict", "--kubernetes-version", version]
        command = [sys.executable, "-m", "kubernetes_validate", *options, DEPLOY / "kubernetes.yaml"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count(" passed for resource ") == len(manifests("kubernetes.yaml"))


def containers() -> list[tuple[dict, dict]]:
    """Return the pods of the manifests, and the container of each."""
    (deployment,) = [each for each in manifests("kubernetes.yaml") if each["kind"] == "Deployment"]
    pods = [deployment["spec"]["template"]["spec"], manifests("kserve.yaml")[0]["spec"]]
    return [(pod, container) for pod in pods for container in pod["containers"]]


def test_manifests_start_the_server_with_options_that_it_has():
    from hami_serve.commands import add_serve

    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    for pod, container in containers():
        options = parser.parse_args(["serve", *container["args"]])
        ports = {port["containerPort"] for port in container["ports"]}
        assert ports == {port for port in (options.http, options.grpc) if port is not None}
        if (grace := pod.get("terminationGracePeriodSeconds")) is not None:
            assert grace > options.drain + container["lifecycle"]["preStop"]["sleep"]["seconds"]


def test_probes_ask_for_paths_of_the_server():
    from hami_serve.openapi import document

    names = ("startupProbe", "readinessProbe", "livenessProbe")
    probes = [container[name]["httpGet"] for _, container in containers() for name in names if name in container]
    assert len(probes) == 5
    assert {probe["path"] for probe in probes} <= document()["paths"].keys()
