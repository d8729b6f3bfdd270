"""Configurations before a pipe is built: for commands that check, describe or change them.

>>> import hami.config
>>> config, problems = hami.config.read_source("S[Identity,Identity]", ["max=8"])
>>> problems, hami.config.describe(config)["nodes"]["default"]["batching"]["max"]
([], 8)
"""

from __future__ import annotations

from hami._cli.source import check_all, read_source
from hami._config.files import parse_toml
from hami._config.model_files import model_file, model_keys
from hami._config.pipelines import is_pipeline
from hami._config.problems import show
from hami._config.reader import LoadedConfig
from hami._config.signatures import data_type, signature
from hami._core import describe, explain

__all__ = [
    "LoadedConfig",
    "check_all",
    "data_type",
    "describe",
    "explain",
    "is_pipeline",
    "model_file",
    "model_keys",
    "parse_toml",
    "read_source",
    "show",
    "signature",
]
