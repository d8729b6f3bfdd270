"""The routes of hami-serve: the shapes of OpenAI and of text-embeddings-inference, and equal vectors at every door."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hami
import numpy as np
import pytest
from small_models import MODULES, SIZE, ids_of, vectors_of

hami_serve = pytest.importorskip("hami_serve", reason="needs hami-serve, for which it has routes")

MEAN = {"pooling_mode_mean_tokens": True}
Post = Callable[[str, Any], tuple[int, Any]]


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def poster(source: Any, read: Callable[[bytes], Any] = json.loads) -> Post:
    application = hami_serve.app(source)

    async def run(path: str, body: bytes, method: str = "POST") -> tuple[int, Any]:
        sent: list[Any] = []
        received = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if received:
                return received.pop()
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        path, _, query = path.partition("?")
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
        scope["query_string"] = query.encode()
        headers = [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())]
        await application({**scope, "headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)
        return sent[0]["status"], read(b"".join(part.get("body", b"") for part in sent[1:]))

    def post(path: str, body: Any) -> tuple[int, Any]:
        return loop.run_until_complete(run(path, body if isinstance(body, bytes) else json.dumps(body).encode()))

    loop = asyncio.new_event_loop()
    post.get = lambda path: loop.run_until_complete(run(path, b"", "GET"))
    post.close = lambda: (loop.run_until_complete(asyncio.to_thread(application.state.serving.stop)), loop.close())
    return post


@pytest.fixture(scope="module")
def post(write_in: Any) -> Iterator[Post]:
    embedding = str(write_in(modules=MODULES, pooling=MEAN, config_sentence_transformers={"prompts": {"query": "a "}}))
    ranking = str(write_in({"output": "logits", "classes": 1, "types": True}))
    classes = str(write_in({"output": "logits", "classes": 3}))
    strict = (
        f"S[Tokenize(model='{embedding}',truncate=false),OnnxTensor(model='{embedding}'),Pool(model='{embedding}')]"
    )
    started = poster(
        {
            "embed": {"extends": "embed", "global": {"model": embedding}},
            "rerank": {"extends": "rerank", "global": {"model": ranking}},
            "strict": strict,
            "tokens": f"Tokenize(model='{embedding}')",
            "classify": {"extends": "classify-text", "global": {"model": classes}},
            "broken": "TestBrokenText",
            "refusing": f"S[Tokenize(model='{embedding}'),TestRefusal]",
            "keys": f"S[Tokenize(model='{embedding}'),TestKeys]",
            "declared": {
                "source": f"S[Tokenize(model='{embedding}'),TestKeys]",
                "outputs": [{"name": "result", "datatype": "FP32", "shape": [1]}],
            },
        }
    )
    yield started
    started.close()


@hami.register
class TestBrokenText(hami.Backend):
    def forward(self, batch: list[Any]) -> None:
        raise ZeroDivisionError("in the model")


@hami.register
class TestRefusal(hami.Backend):
    error = hami.RequestError("this text is refused")  # of all its requests

    def forward(self, batch: list[Any]) -> None:
        raise self.error


@hami.register
class TestKeys(hami.Backend):
    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = np.float32([item.get("number", 0)])


@hami.register
class TestParts(hami.Backend):
    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            for part in "abc":
                item.emit(part)
            item["result"] = item["parameters"]["end"]


TEXTS = ["the cat sat", "dog", "", "a very long text the cat sat on"]
VECTORS = np.stack([unit(vectors_of(text).mean(0)) for text in TEXTS])


def test_embeddings_in_the_shape_of_openai(post):
    status, answer = post("/v1/embeddings", {"model": "embed", "input": TEXTS})
    assert status == 200
    assert {key: answer[key] for key in ("object", "model", "usage")} == {
        "object": "list",
        "model": "embed",
        "usage": dict.fromkeys(("prompt_tokens", "total_tokens"), sum(len(ids_of(text)) for text in TEXTS)),
    }
    assert [(each["object"], each["index"]) for each in answer["data"]] == [("embedding", i) for i in range(4)]
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], VECTORS, rtol=1e-5)
    one = {"model": "embed", "input": TEXTS[0], "encoding_format": "base64", "dimensions": 2}
    status, answer = post("/v1/embeddings", one)
    assert status == 200
    found = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(found, unit(vectors_of(TEXTS[0]).mean(0)[:2]), rtol=1e-5)


def test_every_door_has_the_same_vectors(post):
    _, openai = post("/v1/embeddings", {"model": "embed", "input": TEXTS})
    status, tei = post("/embed", {"inputs": TEXTS})
    assert status == 200
    assert tei == [each["embedding"] for each in openai["data"]]
    for text, vector in zip(TEXTS, tei, strict=True):
        tensor = {"name": "data", "datatype": "BYTES", "shape": [1], "data": [text]}
        status, answer = post("/v2/models/embed/infer", {"inputs": [tensor]})
        (found,) = [each["data"] for each in answer["outputs"] if each["name"] == "result"]
        np.testing.assert_array_equal(np.float32(found), np.float32(vector))


def infer(post: Post, model: str, shape: list[int], texts: list[str], name: str = "data") -> tuple[int, Any]:
    tensor = {"name": name, "datatype": "BYTES", "shape": shape, "data": texts}
    status, answer = post(f"/v2/models/{model}/infer", {"inputs": [tensor]})
    return status, answer["outputs"] if status == 200 else answer["error"]


def test_a_tensor_of_texts_has_a_row_for_each(post):
    status, (output,) = infer(post, "embed", [4], TEXTS)
    assert (status, output["name"], output["datatype"], output["shape"]) == (200, "result", "FP32", [4, SIZE])
    np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), VECTORS, rtol=1e-5)
    assert infer(post, "embed", [1], TEXTS[:1])[1][0]["shape"] == [1, SIZE]
    status, (output,) = infer(post, "classify", [2], ["the cat", "dog"])
    assert (status, output["shape"]) == (200, [2, 1])
    assert [json.loads(each)[0].keys() for each in output["data"]] == [{"label", "score"}] * 2


def test_rows_with_results_of_different_shapes_are_an_error(post):
    status, outputs = infer(post, "tokens", [2], ["a cat", "the dog"])
    assert (status, [(each["name"], each["shape"]) for each in outputs]) == (
        200,
        [("input_ids", [2, 1, 4]), ("attention_mask", [2, 1, 4])],
    )
    status, error = infer(post, "tokens", [2], ["a", "the cat"])
    assert (status, "outputs of different shapes; send each row as a request" in error) == (500, True), error


def test_plain_json_has_a_vector_for_a_text_and_a_list_of_them_for_a_list(post):
    status, answer = post("/models/embed", {"data": TEXTS[0]})
    assert status == 200, answer
    np.testing.assert_allclose(answer["result"], VECTORS[0], rtol=1e-5)
    for texts in (TEXTS, TEXTS[:1]):
        for body in ({"data": texts}, texts):
            status, answer = post("/models/embed", body)
            assert status == 200, answer
            np.testing.assert_allclose(answer["result"], VECTORS[: len(texts)], rtol=1e-5)
    status, answer = post("/v2/models/embed/generate", {"data": TEXTS[:2]})
    np.testing.assert_allclose(answer["result"], VECTORS[:2].ravel(), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "texts", "message"),
    [
        ([0], [], 'input "data" must have from 1 to 2048 rows, got 0'),
        ([2049], ["a"] * 2049, 'input "data" must have from 1 to 2048 rows, got 2049'),
        ([2, 1], ["a", "b"], 'input "data" of model "embed" has the shape [-1], got [2, 1]'),
    ],
)
def test_a_tensor_of_another_shape_is_refused(post, shape, texts, message):
    status, error = infer(post, "embed", shape, texts)
    assert (status, message in error) == (400, True), error


def test_the_first_text_of_a_tensor_that_fails_is_named(post):
    text = 'Tokenize: the text has more than 12 tokens\nin backend Tokenize, node "default"'
    assert infer(post, "strict", [3], ["a", LONG, LONG]) == (400, f"{text}\nelement 1 of 3")
    assert infer(post, "strict", [1], [LONG]) == (400, text)
    status, error = infer(post, "embed", [1], ["a"], name="text")
    assert (status, 'needs the input "data"' in error) == (400, True), error


def test_the_row_that_fails_is_named_to_its_own_client_only(post):
    status, text = infer(post, "refusing", [1], ["a"])
    assert (status, text.partition("\n")[0]) == (400, "this text is refused")
    for count in (2, 3, 2):
        failed, error = infer(post, "refusing", [count], ["a"] * count)
        assert failed == 400
        assert error.count("element") == 1
        assert error.endswith(f"\nelement 0 of {count}")
    assert "element" not in infer(post, "refusing", [1], ["a"])[1]


def test_a_text_has_other_keys_beside_it(post):
    text = TEXTS[0]
    vector = vectors_of(f"a {text}").mean(0)
    for body, wanted in (
        ({"data": text, "prompt": "query"}, unit(vector)),
        ({"data": text, "prompt": "query", "normalize": False}, vector),
        ({"data": text, "prompt": "query", "dimensions": 2}, unit(vector[:2])),
        ({"data": [text] * 3, "prompt": "query", "dimensions": 2, "normalize": None}, [unit(vector[:2])] * 3),
    ):
        status, answer = post("/models/embed", body)
        assert status == 200, answer
        np.testing.assert_allclose(answer["result"], wanted, rtol=1e-5)
    status, answer = post("/models/embed", {"data": text, "req_id": 1})
    assert (status, 'has no input "req_id"' in answer["error"]) == (400, True), answer


def test_a_tensor_of_one_element_is_a_key_of_all_texts(post):
    texts = TEXTS[:2]
    tensors = [
        {"name": "prompt", "datatype": "BYTES", "shape": [1], "data": ["query"]},
        {"name": "data", "datatype": "BYTES", "shape": [2], "data": texts},
        {"name": "dimensions", "datatype": "INT32", "shape": [1], "data": [2]},
    ]
    status, answer = post("/v2/models/embed/infer", {"inputs": tensors})
    assert status == 200, answer
    (output,) = answer["outputs"]
    assert output["shape"] == [2, 2]
    wanted = [unit(vectors_of(f"a {text}").mean(0)[:2]) for text in texts]
    np.testing.assert_allclose(np.reshape(output["data"], [2, 2]), wanted, rtol=1e-5)


def test_a_request_of_a_sequence_has_one_text(post):
    sequence = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}
    for texts, wanted in ((["a"], 200), (["a", "b", "c"], 400)):
        tensor = {"name": "data", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
        found = [
            post("/v2/models/keys/infer", {"inputs": [tensor], "parameters": sequence}),
            post("/models/keys?sequence_id=7", {"data": texts}),
        ]
        assert [status for status, _ in found] == [wanted] * 2, found
    message = 'a request of a sequence takes one row of the input "data", got 3'
    assert [answer["error"] for _, answer in found] == [message] * 2


def test_declared_outputs_have_no_axis_of_rows(post):
    status, (output,) = infer(post, "declared", [1], ["a"])
    assert (status, output["shape"]) == (200, [1])


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("end", [None, "end"])
def test_a_pipeline_that_begins_with_a_text_answers_in_parts(write, end, decoupled):
    source = {"backend": f"S[Tokenize(model='{write(config={})}'),TestParts]"}
    started = poster({"parts": {"source": source, "decoupled": decoupled}}, bytes.decode)
    status, events = started("/v2/models/parts/generate_stream", {"data": "a cat", "parameters": {"end": end}})
    started.close()
    assert status == 200
    found = [json.loads(each.removeprefix("data: ")) for each in events.strip().split("\n\n")]
    assert [each["result"] for each in found] == ["a", "b", "c", *([end] if end else [])]


def test_the_times_of_texts_that_run_at_the_same_time_are_those_of_the_slowest(post, caplog):
    caplog.set_level("INFO", "hami.serve.access")
    infer(post, "embed", [64], ["the cat"] * 64)
    (fields,) = (record.fields for record in caplog.records if record.name == "hami.serve.access")
    assert fields["total_ms"] >= fields["queue_ms"] + fields["compute_ms"] > 0


def test_every_door_has_the_same_order(post):
    query, texts = "the cat", ["dog", "the cat sat", ""]
    tensors = [
        {"name": name, "datatype": "BYTES", "shape": [len(given)], "data": given}
        for name, given in (("query", [query]), ("texts", texts))
    ]
    status, answer = post("/v2/models/rerank/infer", {"inputs": tensors})
    assert status == 200, answer
    assert json.loads(answer["outputs"][0]["data"][0]) == post("/rerank", {"query": query, "texts": texts})[1]
    tensors[0] |= {"shape": [2], "data": ["a", "b"]}
    status, answer = post("/v2/models/rerank/infer", {"inputs": tensors})
    assert (status, '"query" must be a text, got ndarray' in answer["error"]) == (400, True), answer


def test_reranking_declares_its_inputs(post):
    status, metadata = post.get("/v2/models/rerank")
    assert status == 200, metadata
    assert metadata["inputs"] == [
        {"name": "query", "datatype": "BYTES", "shape": [1]},
        {"name": "texts", "datatype": "BYTES", "shape": [-1]},
    ]
    assert metadata["outputs"] == [{"name": "result", "datatype": "BYTES", "shape": [1]}]
    plain = {"query": "the cat", "texts": ["dog", "the cat sat", ""]}
    expected = post("/rerank", {**plain, "raw_scores": True})[1]
    tensors = [
        {"name": "query", "datatype": "BYTES", "shape": [1], "data": [plain["query"]]},
        {"name": "texts", "datatype": "BYTES", "shape": [3], "data": plain["texts"]},
    ]
    raw = {"name": "raw_scores", "datatype": "BOOL", "shape": [1], "data": [True]}  # a key of the request
    status, answer = post("/v2/models/rerank/infer", {"inputs": [*tensors, raw]})
    assert (status, json.loads(answer["outputs"][0]["data"][0])) == (200, expected)
    status, answer = post("/models/rerank", {**plain, "raw_scores": True})
    assert (status, answer["result"]) == (200, expected)
    status, answer = post("/v2/models/rerank/infer", {"inputs": tensors[:1]})
    assert (status, 'needs the input "texts"' in answer["error"]) == (400, True), answer


def test_the_options_of_embed(post):
    mean = vectors_of("the cat").mean(0)
    for options, wanted in (
        ({}, unit(mean)),
        ({"normalize": False}, mean),
        ({"dimensions": 3}, unit(mean[:3])),
        ({"prompt_name": "query"}, unit(vectors_of("a the cat").mean(0))),
        ({"truncate": False, "truncation_direction": "right"}, unit(mean)),
    ):
        status, answer = post("/embed", {"inputs": "the cat", **options})
        assert status == 200
        np.testing.assert_allclose(answer, [wanted], rtol=1e-5)


def test_the_order_of_texts(post):
    texts = ["the dog", "cat", ""]
    status, raw = post("/rerank", {"query": "the cat", "texts": texts, "raw_scores": True, "return_text": True})
    assert status == 200
    assert [each["text"] for each in raw] == [texts[each["index"]] for each in raw]
    logits = [each["score"] for each in raw]
    assert logits == sorted(logits, reverse=True)
    status, scored = post("/rerank", {"query": "the cat", "texts": texts})
    assert [each["index"] for each in scored] == [each["index"] for each in raw]
    np.testing.assert_allclose([each["score"] for each in scored], 1 / (1 + np.exp(-np.array(logits))), rtol=1e-5)


LONG = "cat " * 20


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("openai", {"input": [1, 2]}, 400, "check_embedding_ctx_length=False"),
        ("openai", {"input": [[1, 2], [3]]}, 400, "check_embedding_ctx_length=False"),
        ("openai", {"input": ["a", [1, 2]]}, 400, "input[1] must be a text, got a value of the type list"),
        ("openai", {"input": []}, 400, "`input` must have from 1 to 2048 texts, got 0"),
        ("openai", {"input": ["a"] * 2049}, 400, "got 2049"),
        ("openai", {}, 400, "`input` must be a text or a list of texts, got nothing"),
        ("openai", {"input": ["a", None]}, 400, "input[1] must be a text, got nothing"),
        (
            "openai",
            {"input": ["a", "b"], "dimensions": 0},
            400,
            'input[0]: PoolTensor: "dimensions" must be from 1 to 4',
        ),
        ("openai", {"input": "a", "dimensions": SIZE + 1}, 400, '"dimensions" must be from 1 to 4, got 5'),
        ("openai", {"input": "a", "encoding_format": "hex"}, 400, "`encoding_format` must be float or base64"),
        ("openai", {"input": "a", "model": "gpt"}, 404, "this server has no model gpt; it has"),
        ("openai", {"input": "a", "model": 5}, 400, "model must be a string"),
        ("openai", {"input": "a", "model": "broken"}, 500, "in the model"),
        ("openai", {"input": "a", "temperature": 1}, 400, "unknown key `temperature`"),
        (
            "openai",
            b'{"model": "embed", "input": ["a", "b\\ud800"]}',
            400,
            "input[1]: Tokenize: data has the surrogate U+d800",
        ),
        ("openai", b"{", 400, "the request is not valid JSON"),
        ("/embed", {"inputs": []}, 422, "`inputs` must have from 1 to"),
        ("/embed", {"inputs": [[1, 2]]}, 422, "`inputs` has token ids"),
        ("/embed", {"inputs": ["a", LONG], "truncate": False}, 422, "inputs[1]: Tokenize: the text has more than 12"),
        ("/embed", {"inputs": "a", "prompt_name": "other"}, 422, "the model has no prompt 'other'"),
        ("/embed", {"inputs": "a", "prompt_name": ["a"]}, 422, "the name of a prompt must be a str"),
        ("/embed", {"inputs": "a", "normalize": "yes"}, 422, "`normalize` must be true or false, got 'yes'"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, 422, "texts are cut at their end"),
        ("/rerank", {"query": "a", "texts": []}, 422, "`texts` must have from 1 to"),
        ("/rerank", {"texts": ["a"]}, 422, "`query` must be a text, got nothing"),
        ("/rerank", {"query": "a", "texts": [4, 5]}, 422, "`texts` has token ids"),
        ("/rerank", {"query": "a", "texts": ["b", 5]}, 422, "texts[1] must be a text, got a value of the type int"),
        ("/rerank", {"query": "a", "texts": ["b", {}]}, 422, "texts[1] must be a text"),
        (
            "/rerank",
            {"query": "a", "texts": ["b", LONG], "truncate": False},
            422,
            "texts[1]: Tokenize: the two texts have more than 12 tokens",
        ),
        ("/rerank", {"query": "a", "texts": ["b", "\ud800"]}, 422, "texts[1]: Tokenize: the second text has the surr"),
        ("/rerank", {"query": "\ud800", "texts": ["b", "c"]}, 422, "Tokenize: the first text has the surrogate"),
    ],
)
def test_errors_have_the_shape_of_their_protocol(post, path, body, status, message):
    if path == "openai":
        path = "/v1/embeddings"
        body = {"model": "embed", **body} if isinstance(body, dict) else body
    found, answer = post(path, body)
    if path == "/v1/embeddings":
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        text = answer["error"]["message"]
        assert answer["error"]["type"] == ("server_error" if status == 500 else "invalid_request_error")
    else:
        assert set(answer) == {"error", "error_type"}
        assert answer["error_type"] == "Validation"
        text = answer["error"]
    assert (found, message in text) == (status, True), text


def test_a_server_without_the_pipeline_says_which_models_it_has():
    started = poster({"one": "Identity", "two": "Identity"})
    status, answer = started("/embed", {"inputs": "a"})
    assert status == 422
    assert answer["error"] == '/embed uses the model "embed", which this server does not have; it has one, two'
    started.close()


def test_the_file_of_the_readme(write, tmp_path):
    readme = Path(__file__).resolve().parent.parent / "README.md"
    (text,) = re.findall(r"^```toml\n(extends.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE)
    file = tmp_path / "embed.toml"
    model = str(write(modules=MODULES, pooling=MEAN))
    file.write_text(text.replace("all-MiniLM-L6-v2", str(Path(model).parent)))
    started = poster(file)
    status, answer = started("/v1/embeddings", {"input": TEXTS})
    started.close()
    assert status == 200
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], VECTORS, rtol=1e-5)
