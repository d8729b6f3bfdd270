"""Detokenize: turns token ids into a text."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_text.model_folder import ModelFolder
from hami_text.outputs import array_of
from hami_text.tokenize import open_tokenizer


class Detokenize(hami.Backend):
    """Turn token ids into a text.

    data: integers [tokens] or [1, tokens], an array or a list
    result: the text, a str
    """

    max = 1024
    thread = "concurrent"

    model: Annotated[hami.types.FilePath, "a file of the model; its folder has tokenizer.json"]
    skip_special: Annotated[bool, 'leave special tokens such as "[SEP]" out'] = True

    def init(self, options: Any) -> None:
        self._tokenizer = open_tokenizer(ModelFolder.of(self.model), "Detokenize")
        self._known = frozenset(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def forward(self, batch: list[Any]) -> None:
        items, ids = [], []
        for item in batch:
            try:
                ids.append(self._read(item.get("data", None)))
                items.append(item)
            except hami.Error as error:
                item.fail(error)
        texts = self._tokenizer.decode_batch(ids, skip_special_tokens=self.skip_special)  # which releases the GIL
        for item, text in zip(items, texts, strict=True):
            item["result"] = text

    def _read(self, data: Any) -> list[int]:
        array = array_of(data, "Detokenize takes token ids")
        if array.ndim == 2 and array.shape[0] == 1:
            array = array[0]
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise hami.DataTypeError(f"Detokenize takes integers [tokens], got {array.dtype} {list(array.shape)}")
        ids = [int(each) for each in array]
        unknown = next((each for each in ids if each not in self._known), None)
        if unknown is not None:
            raise hami.RequestError(
                f"Detokenize: the tokenizer has no token {unknown}; the ids belong to another model"
            )
        return ids
