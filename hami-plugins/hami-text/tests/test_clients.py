"""A server in a process of its own, and the clients of Triton: one request with many texts, at each door."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pytest
from small_models import MODULES, SIZE, vectors_of

pytest.importorskip("hami_serve", reason="needs hami-serve, for which it has routes")

TEXTS = ["the cat sat", "dog", "", "a very long text the cat sat on", "the mat é"]
METADATA = {
    "inputs": [{"name": "data", "datatype": "BYTES", "shape": [-1]}],
    "outputs": [{"name": "result", "datatype": "FP32", "shape": [-1, SIZE]}],
}


class Addresses(NamedTuple):
    http: str
    grpc: str


@pytest.fixture(scope="module", params=["native", "python"])
def served(request: Any, write_in: Any) -> Iterator[Addresses]:
    pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    pooling = {"pooling_mode_mean_tokens": True, "word_embedding_dimension": SIZE}
    model = write_in(modules=MODULES, pooling=pooling)
    command = [sys.executable, "-m", "hami", "serve", "embed", "--set", f"model={model}", "--http", "0", "--grpc", "0"]
    with subprocess.Popen([*command, "--door", request.param, "--json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = json.loads(process.stdout.readline())
            yield Addresses(found["http"].removeprefix("http://"), found["grpc"].removeprefix("grpc://"))
        finally:
            process.kill()


def ask(address: str, path: str, body: Any = None) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def test_a_list_of_texts_has_equal_vectors_over_http_and_grpc_and_as_embeddings(served: Addresses) -> None:
    over_http = pytest.importorskip("tritonclient.http", reason="is the client")
    over_grpc = pytest.importorskip("tritonclient.grpc", reason="is the client")
    status, answer = ask(served.http, "/v1/embeddings", {"model": "embed", "input": TEXTS})
    assert status == 200
    wanted = np.float32([each["embedding"] for each in answer["data"]])
    np.testing.assert_allclose(wanted, [unit(vectors_of(text).mean(0)) for text in TEXTS], rtol=1e-5)
    for module, address in ((over_http, served.http), (over_grpc, served.grpc)):
        texts = np.array([text.encode() for text in TEXTS], object)
        given = module.InferInput("data", texts.shape, "BYTES")
        given.set_data_from_numpy(texts)
        with closing(module.InferenceServerClient(address)) as client:
            found = client.infer("embed", [given]).as_numpy("result")
            (alone,) = [client.infer("embed", [first_of(module, texts)]).as_numpy("result")]
            metadata = client.get_model_metadata("embed", **({"as_json": True} if module is over_grpc else {}))
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(alone, wanted[:1])
        shapes = {
            key: [{**each, "shape": [int(size) for size in each["shape"]]} for each in metadata[key]]
            for key in METADATA
        }
        assert shapes == METADATA


def first_of(module: Any, texts: Any) -> Any:
    given = module.InferInput("data", [1], "BYTES")
    given.set_data_from_numpy(texts[:1])
    return given


def test_statistics_count_each_text_of_a_list(served: Addresses) -> None:
    def count() -> int:
        return int(ask(served.http, "/v2/models/embed/stats")[1]["model_stats"][0]["inference_count"])

    before = count()
    ask(served.http, "/v1/embeddings", {"model": "embed", "input": TEXTS})
    tensor = {"name": "data", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
    ask(served.http, "/v2/models/embed/infer", {"inputs": [tensor]})
    assert count() - before == 2 * len(TEXTS)
