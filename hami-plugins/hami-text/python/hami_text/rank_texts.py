"""PairTexts and RankTexts: before and after a model that scores pairs of texts, a cross-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import hami
import numpy as np

from hami_text.model_folder import ModelFolder
from hami_text.outputs import Numbers, activated, logits_of


class PairTexts(hami.Backend):
    """Make a pair of the query and each text.

    data: {"query": text, "texts": list of texts}; also arrays, as hami-serve makes them of tensors
    result: list of [query, text]
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            data = item.get("data", None)
            if not isinstance(data, Mapping) or not {"query", "texts"} <= set(data):
                item.fail(hami.DataTypeError(f'PairTexts takes {{"query": text, "texts": list}}, got {_keys(data)}'))
                continue
            query, texts = data["query"], data["texts"]
            if isinstance(query, np.ndarray) and query.size == 1:
                query = query.item()
            if isinstance(texts, np.ndarray):
                texts = texts.reshape(-1).tolist()
            if not isinstance(texts, (list, tuple)):
                item.fail(hami.DataTypeError(f'PairTexts: "texts" must be a list, got {type(texts).__name__}'))
            elif wrong := _wrong(query, texts):
                item.fail(hami.DataTypeError(f"PairTexts: {wrong}"))
            else:
                item["result"] = [[query, text] for text in texts]


class RankTexts(hami.Backend):
    """Order texts by the scores of a cross-encoder.

    data: list of results of the model, each one array [1, 1] or a dict with `logits`
    result: list of {"index", "score"}, best first; equal scores in the order of the texts
    raw_scores: key of the request; true: no activation, false: sigmoid; default: as the parameter says
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    model: Annotated[hami.types.FilePath, "a file of the model; its folder says how"]
    activation: Annotated[
        Literal["sigmoid", "none"] | None, "applied to the scores; default: as the folder says, else sigmoid"
    ] = None

    def init(self, options: Any) -> None:
        found = self.activation or ModelFolder.of(self.model).activation() or "sigmoid"
        if found == "softmax":
            raise hami.ConfigError("RankTexts: the model applies softmax, which has no meaning for one score")
        self._activation = found

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                raw = item.get("raw_scores", None)
                activation = self._activation if raw is None else "none" if raw else "sigmoid"
                item["result"] = self._ranked(item.get("data", None), activation)
            except hami.Error as error:
                item.fail(error)

    def _ranked(self, data: Any, activation: str) -> list[dict[str, Any]]:
        if not isinstance(data, (list, tuple)):
            raise hami.DataTypeError(f"RankTexts takes a list of results of a model, got {type(data).__name__}")
        found = [logits_of(each, "RankTexts") for each in data]
        if others := [len(each) for each in found if len(each) != 1]:
            raise hami.ConfigError(f"RankTexts takes a model with one score for each pair, got {others[0]}")
        # Scores of equal texts differ in their last bits, and the sigmoid of all above 17 is 1.
        logits: Numbers = np.array([each[0] for each in found], np.float32).round(5)
        scores = activated(logits, activation)
        order = np.argsort(-logits, kind="stable")
        return [{"index": int(i), "score": float(scores[i])} for i in order]


def _wrong(query: Any, texts: Sequence[Any]) -> str:
    """Return what is not a text, or an empty string."""
    if not isinstance(query, (str, bytes)):
        return f'"query" must be a text, got {type(query).__name__}'
    wrong = next((i for i, text in enumerate(texts) if not isinstance(text, (str, bytes))), None)
    return "" if wrong is None else f"texts[{wrong}] must be a text, got {type(texts[wrong]).__name__}"


def _keys(data: Any) -> str:
    return f"a dict with the keys {list(data)}" if isinstance(data, Mapping) else type(data).__name__
