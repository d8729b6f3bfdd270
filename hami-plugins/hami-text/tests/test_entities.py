"""Windows of Tokenize, and NameEntities: spans of whole words of texts of any length."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np
import pytest
from small_models import VECTORS, WORDS
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

LABELS = ["O", "B-PER", "I-PER", "LOC"]
CONFIG = {"vocab_size": len(WORDS), "max_position_embeddings": 12, "id2label": dict(enumerate(LABELS))}


def label_of(word: str) -> str:
    return LABELS[int(VECTORS[WORDS.index(word)].argmax())]


BY_LABEL = {label: [word for word in WORDS[4:] if label_of(word) == label] for label in LABELS}


@pytest.fixture
def model(write) -> Any:
    return write({"output": "logits"}, config=CONFIG)


def expected(text: str) -> list[tuple[str, int, int]]:
    spans: list[list[Any]] = []
    position, before = 0, "O"
    for word in text.split():
        start = text.index(word, position)
        position = start + len(word)
        label = label_of(word)
        kind = label.rpartition("-")[2]
        if label != "O":
            if label == "B-PER" or kind != before:
                spans.append([kind, start, position])
            spans[-1][2] = position
        before = kind
    return [tuple(span) for span in spans]


@pytest.mark.parametrize("count", [0, 5, 10, 11, 40])
def test_no_entity_is_lost_behind_the_limit(model, count):
    random = np.random.default_rng(count)
    text = "  ".join(random.choice(WORDS[4:], count))
    backend = f"S[Tokenize(model='{model}',stride=3),FanOut[OnnxTensor(model='{model}')],NameEntities(model='{model}')]"
    with hami.pipe(backend) as pipe:
        item = pipe({"data": text})
    assert [(each["label"], each["start"], each["end"]) for each in item["result"]] == expected(text)
    assert all(each["text"] == text[each["start"] : each["end"]] for each in item["result"])
    assert all(0 < each["score"] <= 1 for each in item["result"])
    assert [len(words) for words in item["words"]][:-1] == [12] * (len(item["words"]) - 1)
    assert item["truncated"] is False


def test_the_packaged_pipeline_has_windows_of_the_model(write):
    model = write({"output": "logits"}, config={**CONFIG, "max_position_embeddings": 80})
    text = " ".join(WORDS[4:] * 20)
    with hami.pipe({"extends": "entities", "global": {"model": str(model)}}) as pipe:
        found = pipe([{"data": text}, {"data": ""}])
    assert [(each["label"], each["start"], each["end"]) for each in found[0]["result"]] == expected(text)
    assert found[1]["result"] == []


def test_the_first_token_of_a_word_decides_for_the_whole_word(write):
    """Also if a window begins inside the word: the window that has its first token decides."""
    model = write({"output": "logits"}, config=CONFIG)
    first, second = "cat", next(word for word in WORDS[4:] if label_of(word) not in ("O", label_of("cat")))
    pieces = {**{word: i for i, word in enumerate(WORDS)}, f"##{second}": len(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokenizer.save(str(model.parent / "tokenizer.json"))
    (model.parent / "config.json").unlink()
    text = f"{first}{second} {first}"
    with hami.pipe(f"Tokenize(model='{model}',max_tokens=2,stride=1)") as pipe:
        item = pipe({"data": text})
    assert [words.tolist() for words in item["words"]] == [[0, 0], [0, 1]]
    assert item["offsets"][0].tolist() == [[0, len(first)], [len(first), len(first + second)]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("stride=10", "stride must be from 0 to 9, below max_tokens = 12 less 2 special tokens, got 10"),
        ("stride=-1", "stride must be from 0 to 9"),
        ("stride=1,pair=true", "stride has no meaning with pair"),
        ("pair=true,max_tokens=4", "max_tokens must be at least 5 for two texts and 3 special tokens, got 4"),
    ],
)
def test_a_stride_or_a_pair_without_room(model, options, message):
    with pytest.raises(hami.ConfigError, match=message):
        hami.pipe(f"Tokenize(model='{model}',{options})")


def test_a_stride_without_a_limit(write):
    with pytest.raises(hami.ConfigError, match="stride needs max_tokens"):
        hami.pipe(f"Tokenize(model='{write(config={})}',stride=2)")


def test_results_that_do_not_fit(model, write):
    for data, message in (([np.zeros((1, 2, 4))], "takes the results of all windows"), (None, "takes the results")):
        with hami.pipe(f"NameEntities(model='{model}')") as pipe, pytest.raises(hami.DataTypeError, match=message):
            pipe({"data": data})
    few = write({"output": "logits"}, config={**CONFIG, "id2label": {"0": "O"}})
    source = f"S[Tokenize(model='{few}',stride=3),FanOut[OnnxTensor(model='{few}')],NameEntities(model='{few}')]"
    with hami.pipe(source) as pipe, pytest.raises(hami.ConfigError, match="the 1 labels of config"):
        pipe({"data": "cat"})
    with pytest.raises(hami.ConfigError, match="has no id2label"):
        hami.pipe(f"NameEntities(model='{write()}')")
