"""The pipelines: embeddings, classes of texts, and the order of texts for a query."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import hami
import hami.config
import numpy as np
import pytest
from small_models import MODULES, SIZE, VECTORS, ids_of, module, vectors_of

MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
TEXTS = ["the cat sat", "dog", "a very long text the cat sat on", "", "the mat", "dog"]


def packaged(name: str, model: Any) -> hami.Pipe:
    return hami.pipe({"extends": name, "global": {"model": str(model)}})


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def embed(model: Any, texts: list[str] = TEXTS, keys: dict[str, Any] | None = None) -> list[Any]:
    with packaged("embed", model) as pipe:
        return [np.asarray(each["result"]) for each in pipe([{"data": text, **(keys or {})} for text in texts])]


@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx"])
def test_embeddings_of_a_folder(write, file):
    model = write(file=file, modules=MODULES, pooling=MEAN)
    for text, vector in zip(TEXTS, embed(model), strict=True):
        assert (vector.dtype, vector.shape) == (np.float32, (SIZE,))
        np.testing.assert_allclose(vector, unit(vectors_of(text).mean(0)), rtol=1e-5)


@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx"])
def test_a_folder_is_a_model(write, file):
    model = write(file=file, modules=MODULES, pooling=MEAN)
    folder = model.parent.parent if file.startswith("onnx") else model.parent
    config, problems = hami.config.read_source("embed", [f"model={folder}"])
    assert (config.globals["model"], problems) == (str(model), [])
    others = [model.with_name(name) for name in ("model_O1.onnx", "model_O2.onnx")]
    for other in others:
        other.write_bytes(b"")
    config, problems = hami.config.read_source("embed", [f"model={folder}"])
    if model.name == "model.onnx":
        assert config.globals["model"] == str(model)
    else:
        assert "has no model.onnx, but onnx/model_O1.onnx, onnx/model_O2.onnx, onnx/model_q" in str(problems[0])


def test_a_folder_without_an_onnx_file_says_where_it_is_expected(write):
    model = write()
    model.unlink()
    with pytest.raises(hami.ConfigError, match=r"has no ONNX file; expected model.onnx or onnx/model.onnx") as raised:
        packaged("embed", model.parent)
    assert "is a folder" not in str(raised.value)
    is_folder = r'parameter "model" of Tokenize: file ".*" is a folder, name a file in it'
    with pytest.raises(hami.ConfigError, match=is_folder):  # parameters in brackets name files
        hami.pipe(f"Tokenize(model='{model.parent}')")
    (model.parent / "tokenizer.json").unlink()
    with pytest.raises(hami.ConfigError, match=is_folder):
        packaged("embed", model.parent)


POOLED = {
    "cls": lambda vectors: vectors[0],
    "max": lambda vectors: vectors.max(0),
    "mean": lambda vectors: vectors.mean(0),
    "lasttoken": lambda vectors: vectors[-1],
    "mean_sqrt_len_tokens": lambda vectors: vectors.sum(0) / len(vectors) ** 0.5,
    "weightedmean": lambda vectors: np.average(vectors, 0, np.arange(1, len(vectors) + 1)),
}


@pytest.mark.parametrize("mode", POOLED)
def test_each_pooling_in_both_spellings(write, mode):
    boolean = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "weightedmean": "weightedmean_tokens"}
    old = {f"pooling_mode_{boolean.get(mode, mode)}": True}
    for given in (old, {"pooling_mode": mode, **MEAN}, {"pooling_mode": [mode]}):
        model = write(modules=MODULES[:2], pooling=given)
        for text, vector in zip(TEXTS, embed(model), strict=True):
            np.testing.assert_allclose(vector, POOLED[mode](vectors_of(text)), rtol=1e-5, atol=1e-6)


def test_several_poolings_are_joined_in_their_order(write):
    model = write(pooling={"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True})
    (vector,) = embed(model, ["the cat"])
    vectors = vectors_of("the cat")
    np.testing.assert_allclose(vector, np.concatenate([vectors[0], vectors.mean(0)]), rtol=1e-5)


def test_an_output_that_is_pooled_is_taken_as_it_is(write):
    model = write({"output": "sentence_embedding"})
    (vector,) = embed(model, ["the cat"])
    np.testing.assert_allclose(vector, vectors_of("the cat").sum(0), rtol=1e-5)


def test_tokens_of_the_prompt_may_be_left_out(write):
    prompts = {"prompts": {"query": "query: "}}
    model = write(pooling={**MEAN, "include_prompt": False}, config_sentence_transformers=prompts)
    (vector,) = embed(model, ["the cat"], {"prompt": "query"})
    np.testing.assert_allclose(vector, VECTORS[ids_of("query: the cat")][2:].mean(0), rtol=1e-5)


def test_dimensions(write):
    model = write(modules=MODULES, pooling=MEAN)
    (vector,) = embed(model, ["the cat"], {"dimensions": 2})
    np.testing.assert_allclose(vector, unit(vectors_of("the cat").mean(0)[:2]), rtol=1e-5)
    for wrong in (0, SIZE + 1, -1, True, "2"):
        with pytest.raises(hami.BatchError, match=f'"dimensions" must be from 1 to {SIZE}'):
            embed(model, ["the cat"], {"dimensions": wrong})


def test_a_folder_without_a_pooling_is_an_error_that_names_the_key(write):
    with pytest.raises(hami.BatchError, match=r"has no 1_Pooling/config.json.*pooling = cls or max or mean"):
        embed(write(), ["cat"])
    with pytest.raises(hami.ConfigError, match=r"the module sentence_transformers.models.Dense"):
        embed(write(modules=[*MODULES, module("Dense")], pooling=MEAN), ["cat"])
    with pytest.raises(hami.ConfigError, match="unknown pooling 'median'"):
        embed(write(pooling={"pooling_mode": "median"}), ["cat"])


def test_a_configured_pooling_replaces_an_unknown_one_of_the_folder_also_in_metadata(write):
    model = write(pooling={"pooling_mode": "median", "word_embedding_dimension": SIZE})
    with hami.pipe(f"Pool(model='{model}',pooling=mean)") as pipe:
        (output,) = hami.config.signature(pipe.describe())["outputs"]
    assert output == {"name": "result", "dtype": "float32", "shape": [SIZE]}


@pytest.mark.parametrize("side", ["right", "left"])
def test_texts_of_unequal_length_share_runs(write, side):
    """With their padding at the right, also if tokenizer_config.json says otherwise: positions are absolute."""
    model = write({"positions": True}, modules=MODULES, pooling=MEAN, tokenizer_config={"padding_side": side})
    source = f"S[Tokenize(model='{model}'), Pad(run_cost=1000)[OnnxTensor(model='{model}')], Pool(model='{model}')]"
    texts = [" ".join(["cat"] * (i % 9)) for i in range(64)]
    with hami.pipe({"backend": source, "max": 64}) as pipe:
        for _ in range(8):  # the first ones are compared with texts that run alone
            found = pipe([{"data": text} for text in texts])
        counters = pipe.stats()["default"].counters
    for text, item in zip(texts, found, strict=True):
        places = np.arange(len(ids_of(text)), dtype=np.float32)[:, None]
        np.testing.assert_allclose(item["result"], unit((vectors_of(text) + places).mean(0)), rtol=1e-5)
    assert counters["padding"] > 0
    assert "padding_differences" not in counters


@pytest.mark.parametrize("batched", ["", ",batched=true"])
def test_a_dynamically_quantized_model_is_never_padded(write, batched):
    """Not even where the user has asked for joined requests: then the comparison with texts alone shows it."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    model = write({"layer": True}, modules=MODULES, pooling=MEAN)
    quantization.quantize_dynamic(model, model, weight_type=quantization.QuantType.QInt8)
    engine = f"OnnxTensor(model='{model}'{batched})"
    nodes = f"S[Tokenize(model='{model}'), Pad(run_cost=1000)[{engine}], Pool(model='{model}')]"
    texts = ["the", "cat mat", "dog very long", "text text on sat", "a a a query: query:"]
    with hami.pipe({"backend": nodes, "max": 64}) as pipe:
        alone = [pipe({"data": text})["result"] for text in texts]
        for _ in range(6):
            for vector, item in zip(alone, pipe([{"data": text} for text in texts]), strict=True):
                np.testing.assert_array_equal(item["result"], vector)
        counters = pipe.stats()["default"].counters
    assert "padding" not in counters
    assert counters.get("padding_differences") == (1 if batched else None)


LABELS = {"id2label": {"0": "animal", "1": "thing", "2": "other"}}


def classify(write: Any, text: str, options: str = "", **config: Any) -> Any:
    model = write({"output": "logits", "classes": 3}, config={**LABELS, **config})
    source = f"S[Tokenize(model='{model}'),Pad[OnnxTensor(model='{model}')],TopLabels(model='{model}'{options})]"
    with hami.pipe(source) as pipe:
        return pipe({"data": text})["result"]


def softmax(numbers: Any) -> Any:
    powers = np.exp(numbers - numbers.max())
    return powers / powers.sum()


def test_the_classes_of_a_text(write):
    logits = vectors_of("the cat").sum(0)[:3]
    found = classify(write, "the cat")
    assert [each["label"] for each in found] == [list(LABELS["id2label"].values())[i] for i in np.argsort(-logits)]
    np.testing.assert_allclose([each["score"] for each in found], np.sort(softmax(logits))[::-1], rtol=1e-5)
    assert classify(write, "the cat", ",k=1") == found[:1]
    several = classify(write, "the cat", problem_type="multi_label_classification")
    np.testing.assert_allclose([each["score"] for each in several], np.sort(1 / (1 + np.exp(-logits)))[::-1], rtol=1e-5)


def test_labels_of_a_file(write, tmp_path):
    names = tmp_path / "labels.txt"
    names.write_text("x\ny\nz\n")
    assert {each["label"] for each in classify(write, "cat", f",labels='{names}'")} == {"x", "y", "z"}
    names.write_text("x\ny\n")
    with pytest.raises(hami.ConfigError, match="there are 2 labels, and the model returns 3 scores"):
        classify(write, "cat", f",labels='{names}'")


def test_the_order_of_texts_for_a_query(write):
    model = write({"output": "logits", "classes": 1, "types": True})
    texts = ["the dog", "cat", "", "cat"]
    with packaged("rerank", model) as pipe:
        found = pipe({"data": {"query": "the cat", "texts": texts}})["result"]
    pairs = [(*ids_of("the cat"), *ids_of(text)[1:]) for text in texts]
    types = [len(ids_of(text)) - 1 for text in texts]
    logits = np.array([VECTORS[list(pair), 0].sum() + extra for pair, extra in zip(pairs, types, strict=True)])
    order = sorted(range(4), key=lambda i: (-round(float(logits[i]), 4), i))
    assert [each["index"] for each in found] == order
    np.testing.assert_allclose([each["score"] for each in found], 1 / (1 + np.exp(-logits[order])), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("embed", {"output": "sentence_embedding"}),
        ("classify-text", {"output": "logits", "classes": 2}),
        ("rerank", {"output": "logits", "classes": 1}),
        ("entities", {"output": "logits"}),
    ],
)
def test_each_packaged_pipeline_divides_its_texts_by_their_number_of_tokens(write, name, model):
    labels = {str(i): f"B-{i}" for i in range(model.get("classes", SIZE))}
    file = write(model, config={"id2label": labels, "max_position_embeddings": 80})
    texts = ["cat", " ".join(["the cat"] * 30)] * 3
    data = [{"query": "cat", "texts": texts}] if name == "rerank" else texts
    with packaged(name, file) as pipe:
        pipe([{"data": each} for each in data])
        (stats,) = [node for node in pipe.stats().values() if node.policy.batch_cost is not None]
    assert (stats.batch_items, stats.policy.padding) == (6, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a text", "PairTexts takes"),
        ({"query": "a"}, "got a dict with the keys"),
        ({"query": "a", "texts": "b"}, '"texts" must be a list, got str'),
        ({"query": "a", "texts": ["b", 5]}, "texts[1] must be a text, got int"),
        ({"query": None, "texts": []}, '"query" must be a text, got NoneType'),
    ],
)
def test_a_query_of_another_form(write, data, message):
    with packaged("rerank", write({"output": "logits", "classes": 1})) as pipe:
        with pytest.raises(hami.DataTypeError) as raised:
            pipe({"data": data})
        assert message in str(raised.value)
        assert pipe({"data": {"query": "a", "texts": []}})["result"] == []


def test_the_activation_of_a_folder(write):
    scores = []
    for files in (
        {},
        {"config": {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}},
        {"config": {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}},
    ):
        with packaged("rerank", write({"output": "logits", "classes": 1}, **files)) as pipe:
            scores.append(pipe({"data": {"query": "cat", "texts": ["dog"]}})["result"][0]["score"])
    assert scores[1] == scores[2]
    assert scores[0] == pytest.approx(1 / (1 + np.exp(-scores[1])), rel=1e-4)


def test_the_command(write):
    model = write(modules=MODULES, pooling=MEAN)
    setting = f"model={model.parent}"
    command = [sys.executable, "-m", "hami", "run", "embed", "--set", setting, "--text", "the cat", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "result" in json.loads(done.stdout.splitlines()[0])


@pytest.mark.parametrize(
    "kind",
    [
        "sentence_transformers.base.modules.normalize.Normalize",
        "sentence_transformers.sentence_transformer.modules.normalize.Normalize",
    ],
)
def test_modules_by_the_names_of_later_releases(write, kind):
    modules = [*MODULES[:2], {**MODULES[2], "type": kind}]
    (vector,) = embed(write(modules=modules, pooling=MEAN), ["the cat"])
    np.testing.assert_allclose(vector, unit(vectors_of("the cat").mean(0)), rtol=1e-5)


def test_a_document_has_the_first_of_its_prompts(write):
    prompts = {"prompts": {"corpus": "long ", "passage": "very "}}
    model = write(modules=MODULES, pooling=MEAN, config_sentence_transformers=prompts)
    (vector,) = embed(model, ["cat"], {"prompt": "document"})
    np.testing.assert_allclose(vector, unit(vectors_of("very cat").mean(0)), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "model", "data", "found"),
    [
        ("classify-text", {"output": "logits", "classes": 2}, "", 2),
        ("entities", {"output": "logits"}, "", 0),
        ("rerank", {"output": "logits", "classes": 1}, {"query": "", "texts": ["", "cat"]}, 2),
    ],
)
def test_an_empty_text_is_answered(write, name, model, data, found):
    labels = {str(i): f"B-{i}" for i in range(model.get("classes", SIZE))}
    with packaged(name, write(model, config={"id2label": labels, "max_position_embeddings": 80})) as pipe:
        assert len(pipe({"data": data})["result"]) == found


def test_a_text_without_a_token_fails_alone(write):
    """A tokenizer without special tokens, as of many decoders, makes no token of an empty text."""
    model = write(modules=MODULES, pooling=MEAN)
    file = model.parent / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "post_processor": None}))
    with packaged("embed", model) as pipe:
        pending = [pipe.submit({"data": text}) for text in ("cat", "", "dog")]
        with pytest.raises(hami.RequestError, match="PoolTensor: the text has no tokens to pool"):
            pending[1].result(30)
        for one, text in ((pending[0], "cat"), (pending[2], "dog")):
            np.testing.assert_allclose(one.result(30)["result"], unit(vectors_of(text)[1]), rtol=1e-5)


def test_a_text_of_special_tokens_alone_has_a_vector(write):
    (vector,) = embed(write(modules=MODULES, pooling=MEAN), ["[CLS] [SEP]"])
    np.testing.assert_allclose(vector, unit(VECTORS[[2, 2, 3, 3]].mean(0)), rtol=1e-5)


def test_one_text_that_fails_among_a_thousand_is_named_and_the_others_are_answered(write):
    requests: list[dict[str, Any]] = [{"data": "cat"} for _ in range(1000)]
    requests[700]["data"] = 5
    with (
        packaged("embed", write({"output": "sentence_embedding"})) as pipe,
        pytest.raises(hami.BatchError, match="1 request failed at index 700: DataTypeError") as raised,
    ):
        pipe(requests)
    assert [index for index, _ in raised.value.errors] == [700]
    assert sum("result" in request for request in requests) == 999


def test_a_text_without_words_beside_longer_ones_has_its_own_maximum(write):
    """Attention that sees nothing but padding, and a maximum over padding, would be infinite or not numbers."""
    model = write({"layer": True}, modules=MODULES, pooling={"pooling_mode": "max"})
    source = f"S[Tokenize(model='{model}'), Pad(run_cost=1000)[OnnxTensor(model='{model}')], Pool(model='{model}')]"
    texts = ["", "the cat", "a very long text on the mat", ""]
    with hami.pipe({"backend": source, "max": 64}) as pipe:
        alone = [pipe({"data": text})["result"] for text in texts]
        for _ in range(6):  # the first ones are compared with texts that run alone
            for vector, item in zip(alone, pipe([{"data": text} for text in texts]), strict=True):
                assert np.isfinite(item["result"]).all()
                np.testing.assert_allclose(item["result"], vector, rtol=1e-5, atol=1e-6)
        counters = pipe.stats()["default"].counters
    assert counters["padding"] > 0
    assert "padding_differences" not in counters


@pytest.mark.parametrize("mode", POOLED)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_pooled_in_float32(write, mode, dtype):
    """The sum of 2048 numbers of about 100 is out of the range of float16, and bfloat16 has 8 bits of it."""
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    vectors = (100 + np.random.default_rng(0).standard_normal((1, 2048, SIZE))).astype(dtype)
    with hami.pipe(f"Pool(model='{write()}',pooling={mode},normalize=false)") as pipe:
        found = pipe({"data": vectors})["result"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, POOLED[mode](vectors[0].astype(np.float64)), rtol=1e-5)


def test_an_activation_beside_modules_wins(write):
    files = {
        "modules": MODULES[:1],
        "config_sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
        "config": {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}},
    }
    with packaged("rerank", write({"output": "logits", "classes": 1}, **files)) as pipe:
        (found,) = pipe({"data": {"query": "cat", "texts": ["dog"]}})["result"]
    ids = [*ids_of("cat"), *ids_of("dog")[1:]]
    assert found["score"] == pytest.approx(VECTORS[ids, 0].sum(), abs=1e-4)
