"""Tokenize and TextInputs: turn texts into the inputs of a text model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from threading import Lock
from typing import Annotated, Any
from weakref import WeakValueDictionary

import hami
import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from hami_text.model_folder import ModelFolder

MAX_CHARACTERS_PER_TOKEN = 250  # a text is cut there before it is tokenized, unless its tokens are longer
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")

Text = str | tuple[str, str]
_MISSING = object()


class EngineInputs:
    """The inputs of the engine of an instance, made from tokens."""

    def __init__(self, owner: str, options: Any) -> None:
        announced = options.get("engine_inputs") or []
        dtypes = {entry["name"]: entry["dtype"] for entry in announced}
        if unknown := [name for name in dtypes if name not in INPUTS]:
            raise hami.ConfigError(f"{owner}: the model has the input {unknown[0]!r}; known are {', '.join(INPUTS)}")
        self._owner = owner
        given = dtypes or dict.fromkeys(("input_ids", "attention_mask"), "int64")
        self._dtypes = {name: np.dtype(dtype) for name, dtype in given.items()}

    def arrays(self, encoding: Encoding) -> dict[str, Any]:
        arrays = {}
        for name, dtype in self._dtypes.items():
            numbers: Sequence[int]
            if name == "input_ids":
                numbers = encoding.ids
            elif name == "attention_mask":
                numbers = encoding.attention_mask
            elif name == "token_type_ids":
                numbers = encoding.type_ids
            else:
                numbers = range(len(encoding))
            arrays[name] = self._array(name, np.array(numbers, np.int64), dtype)[None]
        return arrays

    def _array(self, name: str, numbers: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
        if dtype.kind in "iu" and dtype.itemsize < 8 and numbers.max(initial=0) > np.iinfo(dtype).max:
            raise hami.RequestError(
                f"{self._owner}: {name} has the number {numbers.max()}, and the model takes {dtype}, up to "
                f"{np.iinfo(dtype).max}"
            )
        return numbers.astype(dtype, copy=False)


class TextInputs(hami.Backend):
    """Turn the tokens of `Tokenize(inputs=false)` in an earlier node into the inputs of the engine of this instance.

    data: the tokens of a text
    result: dict of integer arrays [1, tokens]: input_ids, attention_mask, and what else the engine takes
    """

    max = 1024
    thread = "concurrent"

    def init(self, options: Any) -> None:
        self._inputs = EngineInputs("TextInputs", options)

    def request_cost(self, item: Any) -> int:
        """Return the number of tokens, so that texts of similar length share runs of the model."""
        return max(1, len(_tokens(item)))

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                item["result"] = self._inputs.arrays(_tokens(item))
            except hami.Error as error:
                item.fail(error)


@dataclass(frozen=True)
class SharedTokenizer:
    """A tokenizer with its limit, which nothing changes any more."""

    tokenizer: Tokenizer
    max_characters: int  # of a text, before it is tokenized


_opened: WeakValueDictionary[tuple[Any, ...], SharedTokenizer] = WeakValueDictionary()
_opening = Lock()


def _reset_after_fork() -> None:
    """Forget the parent's tokenizers and the lock: threads that do not exist in the child may hold their locks."""
    global _opened, _opening
    _opened, _opening = WeakValueDictionary(), Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


class Tokenize(hami.Backend):
    """Turn a text into the inputs of a text model.

    data: a text (str, or bytes in UTF-8); with `pair`, a list of two texts
    result: dict of integer arrays [1, tokens]: input_ids, attention_mask, and what else the engine takes
    tokens: key that is set, the number of tokens with special tokens, after the cut
    truncated: key that is set, whether the text was cut
    offsets, words, text: keys that are set with `stride`; of each window, where each token is in the text, an array
        [tokens, 2] of characters, and the number of its word, [tokens], -1 for special tokens; and the text
    truncate: key of the request, instead of the parameter
    prompt: key of the request, the name of a prompt of the model, such as "query"; by default its default prompt

    tokenizer.json alone decides how texts become tokens; its truncation and its padding are switched off.
    """

    max = 1024
    thread = "concurrent"

    model: Annotated[hami.types.FilePath, "a file of the model; its folder has tokenizer.json"]
    max_tokens: Annotated[int | None, "longest result, with special tokens; default: what the model takes"] = None
    truncate: Annotated[bool, "cut longer texts; false: refuse them"] = True
    pair: Annotated[bool, "each request has two texts"] = False
    stride: Annotated[
        int | None, "read a longer text in windows that share so many tokens: result is a list; default: cut it"
    ] = None
    inputs: Annotated[bool, "false: result is the tokens, for TextInputs in a later node"] = True
    special_tokens: Annotated[bool, 'read texts such as "[SEP]" as the special tokens that they name'] = True

    def init(self, options: Any) -> None:
        self._folder = ModelFolder.of(self.model)
        self._default_prompt = self._folder.prompt(None)
        self._prompt_lengths: dict[str, int] = {}  # of the prompts of the folder, in tokens
        self._inputs = EngineInputs("Tokenize", options)
        takes = self._folder.max_tokens()
        self._limit = takes if self.max_tokens is None else self.max_tokens
        self._shared = self._shared_tokenizer(takes)
        self._tokenizer = self._shared.tokenizer

    def _shared_tokenizer(self, takes: int | None) -> SharedTokenizer:
        """Return the tokenizer of other instances that read the same file in the same way, or open it."""
        file = self._folder.tokenizer
        state = file.stat() if file.is_file() else None  # another file of this name may have an equal time
        content = state and (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        key = (file, content, self._limit, takes, self.pair, self.stride, self.special_tokens)
        with _opening:
            shared = _opened.get(key)
            if shared is None:
                shared = _opened[key] = self._open(takes)
        return shared

    def _open(self, takes: int | None) -> SharedTokenizer:
        tokenizer = open_tokenizer(self._folder, "Tokenize")
        for each in _contradictions(self._folder, tokenizer):
            self.log.warning("%s; tokenizer.json decides", each)
        tokenizer.encode_special_tokens = not self.special_tokens
        self._check_limit(takes, tokenizer.num_special_tokens_to_add(self.pair))
        if self._limit is None:
            return SharedTokenizer(tokenizer, 0)
        tokenizer.enable_truncation(self._limit, stride=self.stride or 0)
        longest = max(map(len, tokenizer.get_vocab()), default=1)
        return SharedTokenizer(tokenizer, self._limit * max(MAX_CHARACTERS_PER_TOKEN, longest))

    def _check_limit(self, takes: int | None, special: int) -> None:
        limit = self._limit
        if limit is not None and limit <= special:
            raise hami.ConfigError(f"Tokenize: max_tokens must be above the {special} special tokens, got {limit}")
        if self.pair and limit is not None and limit < special + 2:
            raise hami.ConfigError(
                f"Tokenize: max_tokens must be at least {special + 2} for two texts and {special} special tokens, "
                f"got {limit}"
            )
        self._check_stride(limit, special)
        if takes is not None and limit is not None and limit > takes:
            raise hami.ConfigError(f"Tokenize: the model takes at most {takes} tokens, got max_tokens = {limit}")

    def _check_stride(self, limit: int | None, special: int) -> None:
        if self.stride is None:
            return
        if self.pair:
            raise hami.ConfigError("Tokenize: stride has no meaning with pair = true; remove one of them")
        if limit is None:
            raise hami.ConfigError("Tokenize: stride needs max_tokens, because no file of the model says it")
        if not 0 <= self.stride < limit - special:  # the library would panic
            raise hami.ConfigError(
                f"Tokenize: stride must be from 0 to {limit - special - 1}, below max_tokens = {limit} less {special} "
                f"special tokens, got {self.stride}"
            )

    def forward(self, batch: list[Any]) -> None:
        items, texts = [], []
        for item in batch:
            try:
                name = item.get("prompt", None)
                prompt = self._default_prompt if name is None else self._folder.prompt(name)
                texts.append(self._read(item, prompt))
                items.append((item, prompt))
            except hami.Error as error:
                item.fail(error)
        for (item, prompt), encoding in zip(items, self._encoded(texts), strict=True):
            try:
                if isinstance(encoding, hami.Error):
                    item.fail(encoding)
                elif self.stride is None:
                    self._set_tokens(item, encoding, prompt)
                else:
                    self._set_windows(item, [encoding, *encoding.overflowing], len(prompt))
            except hami.Error as error:
                item.fail(error)

    def _set_tokens(self, item: Any, encoding: Encoding, prompt: str) -> None:
        truncated = bool(encoding.overflowing)
        if truncated and not item.get("truncate", self.truncate):
            given = "the two texts have" if self.pair else "the text has"
            raise hami.RequestError(f"Tokenize: {given} more than {self._limit} tokens")
        item["result"] = self._inputs.arrays(encoding) if self.inputs else encoding
        item["tokens"] = len(encoding)
        item["truncated"] = truncated
        if prompt:
            item["prompt_tokens"] = self._prompt_tokens(prompt)

    def _set_windows(self, item: Any, windows: list[Encoding], prompt: int) -> None:
        """Set the keys of a text that is read in windows. `prompt`: its characters, before the text."""
        numbers = _numbers_of_words(windows, prompt)
        offsets = [np.array(window.offsets, np.int64).reshape(-1, 2) - prompt for window in windows]
        item["words"] = [np.array([numbers.get(place, -1) for place in window.offsets], np.int64) for window in windows]
        item["offsets"] = [np.maximum(places, 0) for places in offsets]
        item["text"] = _text(item["data"], "data")
        item["result"] = [self._inputs.arrays(window) if self.inputs else window for window in windows]
        item["tokens"] = sum(map(len, windows))
        item["truncated"] = False

    def _read(self, item: Any, prompt: str) -> Text:
        data = item.get("data", _MISSING)
        if data is _MISSING:
            raise hami.RequestError("Tokenize: the request has no `data`; it takes a text")
        if not self.pair:
            text = _text(data, "data")
            return prompt + text if prompt else text
        if not isinstance(data, (list, tuple)) or len(data) != 2:
            raise hami.DataTypeError(f"Tokenize(pair=true) takes a list of two texts, got {_describe(data)}")
        return _text(data[0], "the first text"), _text(data[1], "the second text")

    def _encoded(self, texts: list[Text]) -> Sequence[Encoding | hami.Error]:
        """Tokenize texts, and say of those that cannot be why."""
        try:
            return self._encode(texts)
        except MemoryError:
            raise
        except Exception as error:  # the class that the library raises, for example if no token stands for a word
            if len(texts) == 1:
                return [hami.RequestError(f"Tokenize: the tokenizer cannot read the text: {error}")]
        return [self._encoded([text])[0] for text in texts]

    def _encode(self, texts: list[Text]) -> list[Encoding]:
        """Tokenize texts. Only the calls for batches release the GIL."""
        if not texts:
            return []
        if self.stride is not None:
            return self._tokenizer.encode_batch(texts)  # with offsets
        if self._limit is None:
            return self._tokenizer.encode_batch_fast(texts)
        most = self._shared.max_characters
        longer = {i: text for i, text in enumerate(texts) if _length(text) > most}
        found = self._tokenizer.encode_batch_fast([*map(_cut, texts, repeat(most))] if longer else texts)
        for i, text in longer.items():
            characters = most
            while not found[i].overflowing and _length(text) > characters:  # long runs of blanks, for example
                characters *= 4
                (found[i],) = self._tokenizer.encode_batch_fast([_cut(text, characters)])
        return found

    def _prompt_tokens(self, prompt: str) -> int:
        """Return how many tokens at the start of a text belong to its prompt."""
        if prompt not in self._prompt_lengths:
            (encoding,) = self._tokenizer.encode_batch_fast([prompt])
            special = encoding.special_tokens_mask
            self._prompt_lengths[prompt] = len(encoding) - (1 if special and special[-1] else 0)
        return self._prompt_lengths[prompt]


def open_tokenizer(folder: ModelFolder, backend: str) -> Tokenizer:
    """Return the tokenizer of a model, which neither truncates nor pads.

    Raises:
        hami.ConfigError: The folder has none, or that of another model.
    """
    file = folder.tokenizer
    if not file.is_file():
        raise hami.ConfigError(f"{backend}: {file} does not exist; a text model needs its tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises no narrower type
        raise hami.ConfigError(f"{backend}: {file} is not a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    rows = folder.config.get("vocab_size")
    greatest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if isinstance(rows, int) and greatest >= rows:
        raise hami.ConfigError(
            f"{backend}: {file} has the token {greatest}, and the model takes tokens below {rows} (vocab_size of "
            "config.json); the tokenizer belongs to another model"
        )
    return tokenizer


def _contradictions(folder: ModelFolder, tokenizer: Tokenizer) -> Iterator[str]:
    """Name what tokenizer_config.json says otherwise than tokenizer.json."""
    given = folder.object("tokenizer_config.json")
    lower, normalizer = given.get("do_lower_case"), tokenizer.normalizer
    if isinstance(lower, bool) and lower != (normalizer is not None and "a" in normalizer.normalize_str("A")):
        says, does = ("true", "keeps") if lower else ("false", "removes")
        yield f"{folder.path}: do_lower_case is {says} in tokenizer_config.json, and tokenizer.json {does} capitals"
    for key, token in given.items():
        text = token.get("content") if isinstance(token, dict) else token
        if key.endswith("_token") and isinstance(text, str) and tokenizer.token_to_id(text) is None:
            yield f"{folder.path}: {key} is {text!r} in tokenizer_config.json, and tokenizer.json does not have it"


def _numbers_of_words(windows: Sequence[Encoding], prompt: int) -> dict[tuple[int, int], int]:
    """Return the number of the word of each place. A word ends at a gap, and where the tokenizer says so."""
    places = {
        (*place, word)
        for window in windows
        for place, word in zip(window.offsets, window.word_ids, strict=True)
        if word is not None and prompt <= place[0] < place[1]
    }
    numbers: dict[tuple[int, int], int] = {}
    number, last, before = -1, -1, None
    for start, end, word in sorted(places):
        if start > last or word != before:
            number += 1
        numbers[start, end] = number
        last, before = max(last, end), word
    return numbers


def _tokens(item: Any) -> Encoding:
    tokens = item.get("data", None)
    if not isinstance(tokens, Encoding):
        raise hami.DataTypeError(f"TextInputs takes the result of Tokenize(inputs=false), got {_describe(tokens)}")
    return tokens


def _text(data: Any, name: str) -> str:
    if isinstance(data, str):
        try:
            if not data.isascii():  # which is known without a look at the text
                data.encode()
        except UnicodeEncodeError as error:
            character = f"{ord(data[error.start]):x} at position {error.start}"
            raise hami.DataTypeError(f"Tokenize: {name} has the surrogate U+{character}, which is not text") from None
        return data
    if isinstance(data, (bytes, bytearray)):
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise hami.DataTypeError(f"Tokenize: {name} must be text in UTF-8, got bytes: {error}") from None
    raise hami.DataTypeError(f"Tokenize: {name} must be a text, got {_describe(data)}")


def _describe(data: Any) -> str:
    if isinstance(data, (list, tuple)):
        return f"a list of length {len(data)}"
    return type(data).__name__


def _length(text: Text) -> int:
    return len(text) if isinstance(text, str) else max(map(len, text))


def _cut(text: Text, characters: int) -> Text:
    if isinstance(text, str):
        return text[:characters]
    return text[0][:characters], text[1][:characters]
