"""ModelFolder: what a folder in the layout of the model hubs says about a text model."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import hami

NO_LIMIT = 10**9  # tokenizer_config.json writes 1e30 for it
PADDED_POSITIONS = ("roberta", "xlm-roberta", "camembert")  # their positions begin after that of the padding token
BOOLEAN_MODES = {  # in the order in which several are joined
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLINGS = (*BOOLEAN_MODES.values(),)
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "none",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Softmax": "softmax",
}


@dataclass(frozen=True)
class Pooling:
    """How the vectors of the tokens become one: the modes, whose vectors are joined, and what takes part."""

    modes: tuple[str, ...]
    include_prompt: bool = True


@dataclass(frozen=True)
class ModelFolder:
    """A folder with tokenizer.json, config.json and the files of sentence-transformers 2 to 6 or of optimum.

    Every property raises hami.ConfigError for a file that cannot be read or has another form.
    """

    path: Path

    @classmethod
    def of(cls, model: os.PathLike[str]) -> ModelFolder:
        """Return the folder of a model file; a folder called onnx belongs to the one above."""
        folder = Path(os.path.abspath(model)).parent
        return cls(folder.parent if folder.name == "onnx" and not (folder / "config.json").exists() else folder)

    @staticmethod
    def in_layout_of_hubs(folder: str) -> str | None:
        """Return the path of the ONNX file of a folder; None if it has no tokenizer.json, as other models.

        Raises:
            hami.ConfigError: The folder has no ONNX file, or several and none is called model.onnx.
        """
        if not os.path.isfile(os.path.join(folder, "tokenizer.json")):
            return None
        places = [Path(folder), Path(folder, "onnx")]
        if default := next((place / "model.onnx" for place in places if (place / "model.onnx").is_file()), None):
            return str(default)
        found = sorted(str(file.relative_to(folder)) for place in places for file in place.glob("*.onnx"))
        if len(found) == 1:
            return os.path.join(folder, found[0])
        if found:
            raise hami.ConfigError(
                f'the folder "{folder}" has no model.onnx, but {", ".join(found[:8])}; name one: '
                f'model = "{os.path.join(folder, found[0])}"'
            )
        raise hami.ConfigError(
            f'the folder "{folder}" has no ONNX file; expected model.onnx or onnx/model.onnx: download the folder '
            f"onnx of the model, or export it with optimum-cli export onnx --model {folder} {folder}"
        )

    def read(self, name: str) -> Any:
        """Return the content of a JSON file; None if the folder does not have it."""
        file = self.path / name
        try:
            return json.loads(file.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise hami.ConfigError(f"{file} cannot be read: {error}") from error

    def object(self, name: str) -> dict[str, Any]:
        found = self.read(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise hami.ConfigError(f"{self.path / name} must contain an object, got {type(found).__name__}")
        return found

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.object("config.json")

    @cached_property
    def sentence_config(self) -> dict[str, Any]:
        return self.object("config_sentence_transformers.json")

    @cached_property
    def modules(self) -> list[dict[str, Any]]:
        found = self.read("modules.json")
        if found is None:
            return []
        if not (isinstance(found, list) and all(isinstance(each, dict) for each in found)):
            raise hami.ConfigError(f"{self.path / 'modules.json'} must contain a list of objects")
        return found

    @property
    def tokenizer(self) -> Path:
        return self.path / "tokenizer.json"

    def max_tokens(self) -> int | None:
        """Return how many tokens the model takes, with special tokens; None if no file says it."""
        given = self.object("sentence_bert_config.json").get("max_seq_length")
        if given is None:
            given = self.object("tokenizer_config.json").get("model_max_length")
        positions = self._positions()
        limits = [int(number) for number in (given, positions) if _is_number(number) and 0 < number < NO_LIMIT]
        return min(limits, default=None)

    def _positions(self) -> Any:
        positions = self.config.get("max_position_embeddings")
        if _is_number(positions) and self.config.get("model_type") in PADDED_POSITIONS:
            padding = self.config.get("pad_token_id")
            return positions - ((padding if _is_number(padding) else 1) + 1)
        return positions

    @property
    def _pooling_file(self) -> str:
        folder = next((str(each.get("path", "")) for each in self.modules if _ends(each, "Pooling")), "1_Pooling")
        return f"{folder}/config.json"

    @cached_property
    def _pooling_config(self) -> dict[str, Any]:
        return self.object(self._pooling_file)

    def pooling(self) -> Pooling | None:
        """Return the pooling of the folder; None if no file names one."""
        given = self._pooling_config
        if not given:
            return None
        mode = given.get("pooling_mode")
        named = [mode] if isinstance(mode, str) else mode if isinstance(mode, list) else None
        modes = tuple(named or [text for key, text in BOOLEAN_MODES.items() if given.get(key)] or ["mean"])
        if unknown := [each for each in modes if each not in POOLINGS]:
            raise hami.ConfigError(
                f"{self.path / self._pooling_file}: unknown pooling {unknown[0]!r}; known are {', '.join(POOLINGS)}"
            )
        return Pooling(modes, bool(given.get("include_prompt", True)))

    def embedding_size(self, pooling: str | None = None) -> int | None:
        """Return the length of an embedding; None if no file says it. `pooling`: instead of that of the folder."""
        own = self.pooling() if pooling is None else None
        modes = pooling.split("+") if pooling is not None else own.modes if own is not None else ()
        given = self._pooling_config
        of_token = given.get("embedding_dimension", given.get("word_embedding_dimension"))
        if of_token is None:
            of_token = self.config.get("hidden_size")
        return int(of_token) * len(modes) or None if _is_number(of_token) else None

    def normalizes(self) -> bool:
        """Return whether vectors are divided by their length."""
        return any(_ends(each, "Normalize") for each in self.modules)

    def check_modules(self, known: tuple[str, ...]) -> None:
        """Raise hami.ConfigError for a module that this package would leave out."""
        for each in self.modules:
            if not any(_ends(each, name) for name in known):
                raise hami.ConfigError(
                    f"{self.path / 'modules.json'} has the module {each.get('type')}, which hami-text does not "
                    f"compute; known are {', '.join(known)}"
                )

    def prompt(self, name: Any) -> str:
        """Return the text that goes before each text: the prompt of a name, or the default one.

        Raises:
            hami.RequestError: The folder has no prompt of this name.
            hami.ConfigError: The name of its default prompt is not a text.
        """
        found = self.sentence_config.get("prompts")
        prompts = found if isinstance(found, dict) else {}
        if name is None:
            default = self.sentence_config.get("default_prompt_name")
            if not isinstance(default, (str, type(None))):
                file = self.path / "config_sentence_transformers.json"
                raise hami.ConfigError(f"{file}: default_prompt_name must be a text, got {type(default).__name__}")
            return str(prompts.get(default, "")) if default is not None else ""
        if not isinstance(name, str):
            raise hami.RequestError(f"the name of a prompt must be a str, got {type(name).__name__}")
        names = (name, *DOCUMENT_PROMPTS) if name == "document" else (name,)
        for each in names:
            if each in prompts:
                return str(prompts[each])
        if name in ("query", "document"):  # every model takes both
            return ""
        raise hami.RequestError(f"the model has no prompt {name!r}; it has {sorted(prompts) or 'none'}")

    def labels(self) -> list[str]:
        """Return the names of the classes; empty if config.json has none."""
        found = self.config.get("id2label")
        if not isinstance(found, dict):
            return []
        try:
            numbers = sorted((int(key), str(text)) for key, text in found.items())
        except ValueError as error:
            file = self.path / "config.json"
            raise hami.ConfigError(f"{file}: id2label must have numbers as keys: {error}") from None
        return [text for _, text in numbers]

    def activation(self) -> str | None:
        """Return what a cross-encoder applies to its scores, a value of ACTIVATIONS; None if no file says it."""
        own = self.config.get("sentence_transformers")
        own = own if isinstance(own, dict) else {}
        candidates = [
            self.sentence_config.get("activation_fn") if self.modules else None,
            own.get("activation_fn"),
            self.config.get("sbert_ce_default_activation_function"),
        ]
        given = next((each for each in candidates if each is not None), None)
        if given is None:
            return None
        if not isinstance(given, str) or given not in ACTIVATIONS:
            raise hami.ConfigError(f"{self.path}: unknown activation {given!r}; known are {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[given]


def _ends(module: dict[str, Any], name: str) -> bool:
    return str(module.get("type", "")).rpartition(".")[2] == name


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
