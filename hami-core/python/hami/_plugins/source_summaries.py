"""Reads what backends do from the source of their plugins, without importing it."""

from __future__ import annotations

import ast
import importlib.util
import re
import warnings
from collections.abc import Container
from pathlib import Path

from hami._plugins.plugin import Plugin

_CLASS = re.compile(r"^class (\w+)", re.M)


def summaries(plugin: Plugin) -> dict[str, str]:
    """Return the first line of the docstring of each backend whose class is in the Python source of the plugin.

    Backends of native plugins, generated classes and sources that cannot be read are absent.
    """
    found: dict[str, str] = {}
    for file in _sources(plugin.module):
        try:
            text = file.read_text("utf-8")
            if not set(_CLASS.findall(text)).isdisjoint(plugin.names):
                found |= _class_summaries(text, plugin.names)
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
    return found


def _sources(module: str) -> list[Path]:
    """Return the Python files of the top-level package of a module."""
    try:
        spec = importlib.util.find_spec(module.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        return []
    folders = (spec.submodule_search_locations or []) if spec else []
    return sorted(file for folder in folders for file in Path(folder).rglob("*.py"))


def _class_summaries(text: str, names: Container[str]) -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a source may contain an invalid escape
        body = ast.parse(text).body
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name in names]
    return {node.name: doc.partition("\n")[0] for node in classes if (doc := ast.get_docstring(node))}
