"""TopLabels: names the best classes of a text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami
import numpy as np
from hami_tensor.labels import read_labels

from hami_text.model_folder import ModelFolder
from hami_text.outputs import activated, logits_of


class TopLabels(hami.Backend):
    """Name the best classes of a text.

    data: the result of a classifier, one array [1, classes] or a dict with `logits`
    result: list of {"label", "score"}, best first; score from 0 to 1
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    model: Annotated[hami.types.FilePath, "a file of the model; its folder has config.json with the labels"]
    k: Annotated[int, "how many labels; 0: all"] = 0
    labels: Annotated[
        hami.types.FilePath | None, "a file with one label in each line, instead of those of config.json"
    ] = None
    activation: Annotated[
        Literal["softmax", "sigmoid", "none"] | None,
        "what makes scores of the numbers; default: sigmoid where config.json says several labels, else softmax",
    ] = None

    def init(self, options: Any) -> None:
        folder = ModelFolder.of(self.model)
        self._labels = read_labels(self.labels, "TopLabels") if self.labels is not None else folder.labels()
        several = folder.config.get("problem_type") == "multi_label_classification"
        self._activation = self.activation or ("sigmoid" if several else "softmax")

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                item["result"] = self._best(logits_of(item.get("data", None), "TopLabels"))
            except hami.Error as error:
                item.fail(error)

    def _best(self, logits: Any) -> list[dict[str, Any]]:
        if self._labels and len(self._labels) != len(logits):
            raise hami.ConfigError(
                f"TopLabels: there are {len(self._labels)} labels, and the model returns {len(logits)} scores"
            )
        scores = activated(logits, self._activation)
        order = np.argsort(-logits, kind="stable")[: self.k or None]
        return [
            {"label": self._labels[i] if self._labels else str(i), "score": float(scores[i])} for i in order.tolist()
        ]
