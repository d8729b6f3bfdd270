"""NameEntities: turns the scores of the tokens of a text into named spans of whole words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import hami
import numpy as np

from hami_text.model_folder import ModelFolder
from hami_text.outputs import Numbers, activated, scores_of


@dataclass(frozen=True)
class Word:
    """A word of a text, and the probabilities of the labels of its first token."""

    start: int
    end: int
    scores: Numbers


class NameEntities(hami.Backend):
    """Name spans of a text by the labels of its tokens.

    data: list of the results of a token classifier, one array [1, tokens, labels] or a dict with `logits` for each
        window of the text
    offsets, words: keys of the request that Tokenize has set with `stride`
    text: key of the request that Tokenize has set, the text
    result: list of {"label", "score", "start", "end", "text"} in their order; positions are characters of the text

    A span has whole words. The first token of a word decides on its label, and the mean of the words is the score. With
    labels such as B-PER and I-PER, a B and an I after another kind begin a span; "O" means none. Of a word in several
    windows, the window with the most context decides.
    """

    max = 1024
    thread = "concurrent"

    model: Annotated[hami.types.FilePath, "a file of the model; its folder has config.json with the labels"]

    def init(self, options: Any) -> None:
        folder = ModelFolder.of(self.model)
        self._labels = folder.labels()
        if not self._labels:
            raise hami.ConfigError(f"NameEntities: {folder.path / 'config.json'} has no id2label")

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                item["result"] = self._spans(self._words(item), item["text"])
            except hami.Error as error:
                item.fail(error)

    def _words(self, item: Any) -> list[Word]:
        data, offsets, words = (item.get(key, None) for key in ("data", "offsets", "words"))
        if not isinstance(data, (list, tuple)) or offsets is None or len(offsets) != len(data):
            raise hami.DataTypeError(
                "NameEntities takes the results of all windows of a text, and the keys that Tokenize(stride=…) sets; "
                f"got {type(data).__name__}"
            )
        found: dict[int, list[tuple[int, Word]]] = {}  # by number, with the distance from the nearer end of the window
        for window, places, numbers in zip(data, offsets, words, strict=True):
            scores = self._scores(window, len(numbers))
            for index, end in _words_of(numbers):
                word = Word(int(places[index, 0]), int(places[end - 1, 1]), scores[index])
                found.setdefault(int(numbers[index]), []).append((min(index, len(numbers) - end), word))
        return [_best(found[number]) for number in sorted(found)]

    def _scores(self, data: Any, tokens: int) -> Numbers:
        array = scores_of(data, "NameEntities")
        wanted = (1, tokens, len(self._labels))
        if array.shape != wanted:
            raise hami.ConfigError(
                f"NameEntities: the model returns {list(array.shape)}; {tokens} tokens and the {len(self._labels)} "
                f"labels of config.json need {list(wanted)}"
            )
        return np.stack([activated(each, "softmax") for each in array[0].astype(np.float32)])

    def _spans(self, words: Iterable[Word], text: str) -> list[dict[str, Any]]:
        spans: list[tuple[str, list[Word]]] = []
        before = ""
        for word in words:
            label = self._labels[int(word.scores.argmax())]
            prefix, _, kind = label.partition("-") if label[:2] in ("B-", "I-") else ("I", "", label)
            if label == "O":
                before = ""
                continue
            if prefix == "B" or kind != before:
                spans.append((kind, []))
            spans[-1][1].append(word)
            before = kind
        return [
            {
                "label": kind,
                "score": float(np.mean([word.scores.max() for word in members])),
                "start": members[0].start,
                "end": members[-1].end,
                "text": text[members[0].start : members[-1].end],
            }
            for kind, members in spans
        ]


def _best(parts: Sequence[tuple[int, Word]]) -> Word:
    """Return a word as the window sees it that has its first token and the most context."""
    _, best = max(parts, key=lambda part: (-part[1].start, part[0]))
    return Word(best.start, max(word.end for _, word in parts), best.scores)


def _words_of(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return the first token of each word of a window, and the one after its last."""
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i < len(numbers) and numbers[i] == numbers[begin]:
            continue
        if numbers[begin] >= 0:
            yield begin, i
        begin = i
