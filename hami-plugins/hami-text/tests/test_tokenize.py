"""Tokenize: texts become the inputs of a model."""

from __future__ import annotations

import json
import os
import threading
import tracemalloc
from typing import Any, ClassVar

import hami
import numpy as np
import pytest
from small_models import VECTORS, ids_of, module
from tokenizers import Tokenizer


def tokens(result: Any) -> dict[str, list[list[int]]]:
    return {name: np.asarray(array).tolist() for name, array in result.items()}


def run(model: Any, data: Any, options: str = "", **keys: Any) -> Any:
    with hami.pipe(f"Tokenize(model='{model}'{options})") as pipe:
        return pipe({"data": data, **keys})


def test_a_text_becomes_the_inputs_of_a_model(write):
    item = run(write(), "The cat sat on the unknown mat")
    assert tokens(item["result"]) == {
        "input_ids": [ids_of("the cat sat on the unknown mat")],
        "attention_mask": [[1] * 9],
    }
    assert (item["tokens"], item["truncated"]) == (9, False)


def test_bytes_are_utf_8(write):
    assert tokens(run(write(), b"the cat")["result"])["input_ids"] == [ids_of("the cat")]


def test_a_text_that_the_tokenizer_cannot_read_fails_alone(write):
    model = write()
    file = model.parent / "tokenizer.json"
    described = json.loads(file.read_text("utf-8"))
    described["model"]["unk_token"] = "[NONE]"  # then a word that is not in the vocabulary is an error of the library
    file.write_text(json.dumps(described), "utf-8")
    requests = [{"data": text} for text in ("the cat", "an unknown word", "a dog")]
    with (
        hami.pipe({"backend": f"Tokenize(model='{model}')", "max": 4}) as pipe,
        pytest.raises(hami.BatchError) as failed,
    ):
        pipe(requests)
    ((place, error),) = failed.value.errors
    assert (place, type(error)) == (1, hami.RequestError)
    assert "the tokenizer cannot read the text: WordLevel error: Missing [UNK] token" in str(error)
    for place, text in ((0, "the cat"), (2, "a dog")):
        assert tokens(requests[place]["result"])["input_ids"] == [ids_of(text)]


def test_an_empty_text_has_its_special_tokens(write):
    assert tokens(run(write(), "")["result"])["input_ids"] == [[2, 3]]


def test_a_pair_has_two_types_where_the_model_takes_types(write):
    model = write({"types": True})
    with hami.pipe(f"S[Tokenize(model='{model}',pair=true),OnnxTensor(model='{model}')]") as pipe:
        item = pipe({"data": ["the cat", "a dog"]})
    expected = tokens(run(model, ["the cat", "a dog"], ",pair=true")["result"])
    assert expected["input_ids"] == [[2, 4, 5, 3, 11, 9, 3]]

    types = np.array([0, 0, 0, 0, 1, 1, 1], np.float32)[:, None]
    np.testing.assert_allclose(hami.to_numpy(item["result"])[0], VECTORS[expected["input_ids"][0]] + types, rtol=1e-6)


@pytest.mark.parametrize("options", ["", ",pair=true"])
def test_tokens_of_an_earlier_node_become_the_same_inputs(write, options):
    model = write({"types": True})
    engine = f"OnnxTensor(model='{model}')"
    data = ["the cat", "a dog"] if options else "the cat sat"
    nodes = {
        "tokens": {"backend": f"Tokenize(model='{model}',inputs=false{options})", "next": "run"},
        "run": {"backend": f"S[TextInputs,{engine}]", "max": 8},
    }
    with hami.pipe(nodes) as apart, hami.pipe(f"S[Tokenize(model='{model}'{options}),{engine}]") as together:
        item, expected = apart({"data": data}), together({"data": data})
        cost = apart.stats()["run"].policy.batch_cost
    np.testing.assert_array_equal(hami.to_numpy(item["result"]), hami.to_numpy(expected["result"]))
    assert item["tokens"] == expected["tokens"] == cost


def test_text_inputs_takes_tokens_only():
    with hami.pipe("TextInputs") as pipe, pytest.raises(hami.DataTypeError) as error:
        pipe({"data": "the cat"})
    assert "TextInputs takes the result of Tokenize(inputs=false), got str" in str(error.value)


def test_longer_texts_are_cut_at_the_limit_of_the_model(write):
    item = run(write(), "the cat " * 50)
    assert tokens(item["result"])["input_ids"] == [[2, *[4, 5] * 5, 3]]
    assert (item["tokens"], item["truncated"]) == (12, True)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"sentence_bert_config": {"max_seq_length": 8}, "tokenizer_config": {"model_max_length": 6}}, 8),
        ({"tokenizer_config": {"model_max_length": 6}}, 6),
        ({"tokenizer_config": {"model_max_length": 1e30}}, 12),
        ({"sentence_bert_config": {"max_seq_length": None}}, 12),
        ({"config": {"model_type": "roberta", "max_position_embeddings": 12, "pad_token_id": 1}}, 10),
    ],
)
def test_where_the_limit_is_found(write, files, limit):
    assert run(write(**files), "cat " * 50)["tokens"] == limit


def test_a_text_that_is_not_cut_can_be_refused(write):
    with pytest.raises(hami.RequestError, match="the text has more than 12 tokens"):
        run(write(), "cat " * 50, ",truncate=false")


def test_blanks_before_the_cut_lose_no_token(write):
    assert run(write(), " " * 100_000 + "the cat")["tokens"] == 4


def test_a_long_text_takes_little_memory(write):
    model, text = write(), "cat " * 2_500_000
    with hami.pipe(f"Tokenize(model='{model}')") as pipe:
        pipe({"data": "cat"})
        tracemalloc.start()
        assert pipe({"data": text})["tokens"] == 12
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        tracemalloc.stop()


def test_typed_special_tokens(write):
    model = write()
    assert tokens(run(model, "cat [SEP] dog")["result"])["input_ids"] == [[2, 5, 3, 9, 3]]
    assert tokens(run(model, "cat [SEP] dog", ",special_tokens=false")["result"])["input_ids"] == [[2, 5, 1, 9, 3]]


PROMPTS = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": None}


def test_prompts(write):
    model = write(config_sentence_transformers=PROMPTS)
    assert tokens(run(model, "cat")["result"])["input_ids"] == [[2, 5, 3]]
    item = run(model, "cat", prompt="query")
    assert tokens(item["result"])["input_ids"] == [[2, 10, 5, 3]]
    assert item["prompt_tokens"] == 2
    with pytest.raises(hami.ConfigError, match=r"default_prompt_name must be a text, got list"):
        hami.pipe({"backend": "Tokenize", "model": write(config_sentence_transformers={"default_prompt_name": []})})
    model = write(config_sentence_transformers={**PROMPTS, "default_prompt_name": "query"})
    assert tokens(run(model, "cat")["result"])["input_ids"] == [[2, 10, 5, 3]]
    with pytest.raises(hami.RequestError, match=r"no prompt 'title'; it has \['document', 'query'\]"):
        run(model, "cat", prompt="title")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "data must be a text, got int"),
        (b"\xff", "data must be text in UTF-8, got bytes"),
        ("a\udcffb", "data has the surrogate U+dcff at position 1, which is not text"),
        (["a", "b"], "data must be a text, got a list of length 2"),
    ],
)
def test_data_that_is_not_a_text_fails_alone(write, data, message):
    with hami.pipe({"backend": f"Tokenize(model='{write()}')", "max": 8, "batching": "greedy"}) as pipe:
        pending = [pipe.submit({"data": each}) for each in ("cat", data, "dog")]
        assert [each.exception(30) is None for each in pending] == [True, False, True]
        assert message in str(pending[1].exception(30))
        assert pipe.stats()["default"].retried == 0


def test_one_failing_text_of_a_thousand_is_named_and_the_others_are_answered(write):
    with hami.pipe({"backend": f"Tokenize(model='{write()}')", "max": 64}) as pipe:
        requests = [{"data": "cat" if i != 617 else "\ud800"} for i in range(1000)]
        with pytest.raises(hami.BatchError, match="1 request failed at index 617: DataTypeError: Tokenize: data has"):
            pipe(requests)
    assert [i for i, request in enumerate(requests) if request.get("tokens") != 3] == [617]


@pytest.mark.parametrize("data", ["a text", ["one"], ["one", "two", "three"], ["one", 2]])
def test_a_pair_of_another_form(write, data):
    with pytest.raises(hami.DataTypeError, match=r"two texts|must be a text"):
        run(write(), data, ",pair=true")


def test_folders_that_do_not_fit(write):
    with pytest.raises(hami.ConfigError, match="max_tokens must be above the 2 special tokens, got 2"):
        run(write(), "", ",max_tokens=2")
    with pytest.raises(hami.ConfigError, match="the model takes at most 12 tokens, got max_tokens = 13"):
        run(write(), "", ",max_tokens=13")
    with pytest.raises(hami.ConfigError, match="has the token 14, and the model takes tokens below 10"):
        run(write(config={"vocab_size": 10}), "")
    model = write()
    (model.parent / "tokenizer.json").write_text("{}")
    with pytest.raises(hami.ConfigError, match=r"tokenizer.json is not a tokenizer"):
        run(model, "")
    (model.parent / "tokenizer.json").unlink()
    with pytest.raises(hami.ConfigError, match=r"tokenizer.json does not exist; a text model needs its tokenizer.json"):
        run(model, "")
    model = write()
    (model.parent / "config.json").write_text("[" * 100_000)
    with pytest.raises(hami.ConfigError, match=r"config.json cannot be read"):
        run(model, "")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"do_lower_case": False},
            "do_lower_case is false in tokenizer_config.json, and tokenizer.json removes capitals",
        ),
        ({"cls_token": "<s>"}, "cls_token is '<s>' in tokenizer_config.json, and tokenizer.json does not have it"),
        ({"pad_token": {"content": "<pad>"}}, "pad_token is '<pad>' in tokenizer_config.json"),
        ({"do_lower_case": True, "cls_token": "[CLS]", "mask_token": None, "add_bos_token": True}, ""),
    ],
)
def test_a_contradiction_of_the_two_files_of_a_tokenizer_is_named(write, caplog, files, message):
    assert tokens(run(write(tokenizer_config=files), "CAT")["result"])["input_ids"] == [ids_of("cat")]
    assert message in caplog.text
    assert caplog.text.count("; tokenizer.json decides") == bool(message)


@pytest.mark.parametrize("backend", ["Tokenize(model='{}')", "S[Tokenize(model='{}', inputs=false), TextInputs]"])
def test_a_number_that_the_type_of_an_input_does_not_hold_fails_its_text_alone(write, backend):
    @hami.register("TestBytes")
    class Bytes(hami.Backend):
        max = 8

        def init(self, options: Any) -> None:
            options["engine_inputs"] = [{"name": name, "dtype": "int8"} for name in ("input_ids", "position_ids")]

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = item["data"]["position_ids"]

    model = write(config={})
    with hami.pipe({"backend": f"S[{backend.format(model)}, TestBytes]", "max": 8, "batching": "greedy"}) as pipe:
        pending = [pipe.submit({"data": text}) for text in ("cat " * 126, "cat " * 127, "cat")]
        assert [each.exception(30) is None for each in pending] == [True, False, True]
        message = "position_ids has the number 128, and the model takes int8, up to 127"
        with pytest.raises(hami.RequestError, match=message):
            pending[1].result(30)
        assert hami.to_numpy(pending[0].result(30)["result"]).tolist() == [list(range(128))]
        assert pipe.stats()["default"].retried == 0


def test_an_input_that_is_not_known(write):
    model = write({"extra": ["pixel_values"]})
    with pytest.raises(hami.ConfigError, match="the model has the input 'pixel_values'; known are input_ids"):
        hami.pipe(f"S[Tokenize(model='{model}'),OnnxTensor(model='{model}')]")


def test_two_callers_at_once(write):
    failures: list[BaseException] = []
    texts = ["the cat", "the dog sat", "a very long text"]
    with hami.pipe({"backend": f"Tokenize(model='{write()}')", "max": 8, "instance_num": 2}) as pipe:

        def call(seed: int) -> None:
            for i in range(100):
                text = texts[(seed + i) % 3]
                try:
                    assert tokens(pipe({"data": text})["result"])["input_ids"] == [ids_of(text)]
                except BaseException as error:
                    failures.append(error)

        threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not failures


def test_instances_share_a_tokenizer_until_the_last_one_is_closed(write, monkeypatch):
    monkeypatch.setattr("hami_text.tokenize.Tokenizer", OnlyBatches)
    monkeypatch.setattr(OnlyBatches, "opened", [])
    model = write()
    source = f"Tokenize(model='{model}')"
    with hami.pipe({"backend": source, "instance_num": 3}) as one, hami.pipe(source):
        with hami.pipe(f"Tokenize(model='{model}', max_tokens=3)") as other:
            assert other({"data": "the cat sat"})["tokens"] == 3
        assert one({"data": "the cat sat"})["tokens"] == 5
        assert len(OnlyBatches.opened) == 2
        os.utime(model.parent / "tokenizer.json", ns=(1, 1))  # another file
        with hami.pipe(source):
            assert len(OnlyBatches.opened) == 3
    with hami.pipe(source):
        assert len(OnlyBatches.opened) == 4


def test_another_tokenizer_of_an_equal_name_and_time_is_another_one(write):
    model = write()
    file = model.parent / "tokenizer.json"
    source = f"Tokenize(model='{model}')"
    content, time = json.loads(file.read_text("utf-8")), file.stat().st_mtime_ns
    vocabulary = content["model"]["vocab"]
    cat, sat = vocabulary["cat"], vocabulary["sat"]
    with hami.pipe(source) as one:
        assert cat in one({"data": "cat"})["result"]["input_ids"]
        vocabulary |= {"cat": sat, "sat": cat}
        other = file.with_name("other.json")
        other.write_text(json.dumps(content), "utf-8")
        os.utime(other, ns=(time, time))
        other.replace(file)  # as another version of a model is linked in its place
        with hami.pipe(source) as two:
            assert sat in two({"data": "cat"})["result"]["input_ids"]


def test_modules_of_a_folder_are_unused_here(write):
    assert run(write(modules=[module("Unheard")]), "cat")["tokens"] == 3


class OnlyBatches:
    """A tokenizer without the calls for one text, which hold the GIL while they run."""

    opened: ClassVar[list[Any]] = []

    def __init__(self, made: Any) -> None:
        self.__dict__["made"] = made

    @classmethod
    def from_file(cls, path: str) -> OnlyBatches:
        cls.opened.append(path)
        return cls(Tokenizer.from_file(path))

    def __getattr__(self, name: str) -> Any:
        if name in ("encode", "decode"):
            raise AssertionError(f"{name} holds the GIL")
        return getattr(self.made, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.made, name, value)


@pytest.mark.parametrize("options", ["", ",stride=2", ",pair=true", ",special_tokens=false"])
def test_one_text_is_tokenized_by_the_calls_that_release_the_gil(write, monkeypatch, options):
    monkeypatch.setattr("hami_text.tokenize.Tokenizer", OnlyBatches)
    monkeypatch.setattr(OnlyBatches, "opened", [])
    model = write(config_sentence_transformers=PROMPTS)
    data, keys = ("cat dog " * 20, {"prompt": "query"}) if "pair" not in options else (["cat", "dog"], {})
    assert run(model, data, options, **keys)["tokens"] > 4
    with hami.pipe(f"Detokenize(model='{model}')") as pipe:
        assert pipe({"data": [5, 9]})["result"] == "cat dog"
    assert len(OnlyBatches.opened) == 2
