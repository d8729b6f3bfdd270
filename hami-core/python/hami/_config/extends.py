"""Lays a configuration over those that it extends: files beside it, or pipelines that plugins package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hami._config.document import Document, Entry, document_of
from hami._config.files import File, Location, content_of, on_disk, packaged, parse
from hami._config.pipelines import pipeline_of
from hami._config.problems import Problems, got, show
from hami._config.values import Values
from hami._errors import ConfigError, Error

MAX_CHAIN = 50  # files that extend one another


def document_with_bases(data: Mapping[Any, Any], file: File | None, problems: Problems) -> Document:
    """Return what a file (or a dict: None) and all that it extends say together.

    Raises with all that is wrong if one of them cannot be read: what the rest means would be a guess.
    """
    extending = _Extending(problems)
    document = extending.document(data, file, [file.location] if file else [])
    if extending.failed:
        raise ConfigError.of(problems)
    return document


class _Extending:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.failed = False
        self.read: dict[str, Document] = {}  # by identity; two files may extend the same one

    def document(self, data: Mapping[Any, Any], file: File | None, chain: list[Location]) -> Document:
        own = document_of(data, self.problems, file.location.label if file else "", file.lines if file else None)
        entry = own.top.pop("extends", None)
        if entry is None:
            return own
        together = Document()
        for name in self.names(entry):
            base = self.base(name, entry, file.location if file else on_disk(""), chain)
            together = base.over(together) if base else together
        return own.over(together)

    def names(self, entry: Entry) -> list[Any]:
        """Return what `extends` lists, variables of the environment put in."""
        values = Values({"": {"extends": entry}}, self.problems)
        value = values.value("", "extends")
        if values.unknown:
            self.failed = True
            return []
        names = value if isinstance(value, list) else [value]
        good = [name for name in names if isinstance(name, str) and name]
        for name in names:
            if name not in good:
                self.problem(f'extends takes a file, as "base.toml", or a list of files, got {got(name)}', entry, name)
        return good

    def base(self, name: str, entry: Entry, beside: Location, chain: list[Location]) -> Document | None:
        try:
            if name.endswith(".toml"):
                location = beside.beside(name)
                pipeline = None
            else:
                pipeline = pipeline_of(name)
                location = packaged(pipeline)
            if location.identity in self.read:
                return self.read[location.identity]
            if self.is_circle(location, entry, name, chain):
                return None
            content = content_of(location, pipeline)
        except Error as error:
            self.problem(getattr(error, "headline", str(error)), entry, name, getattr(error, "hint", ""))
            return None
        try:
            file = parse(content, location)
        except ConfigError as error:  # it has a place of its own
            self.problems.append(error)
            self.failed = True
            return None
        document = self.document(file.data, file, [*chain, location])
        self.read[location.identity] = document
        return document

    def is_circle(self, location: Location, entry: Entry, name: str, chain: list[Location]) -> bool:
        for index, other in enumerate(chain):
            if other.identity == location.identity:
                circle = " -> ".join(one.label for one in [*chain[index:], location])
                self.problem(f'"{other.label}" extends itself: {circle}', entry, name)
                return True
        if len(chain) >= MAX_CHAIN:
            self.problem(f"more than {MAX_CHAIN} files extend one another", entry, name)
        return len(chain) >= MAX_CHAIN

    def problem(self, headline: str, entry: Entry, name: object, hint: str = "") -> None:
        """Note what is wrong with one of the names."""
        self.failed = True
        self.problems.add(headline, "extends", entry.value, place=entry.place, at=show(name), hint=hint)
