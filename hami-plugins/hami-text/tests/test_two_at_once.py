"""Pipes that open and use the tokenizer of one file at the same time, callers that leave, and processes that fork."""

from __future__ import annotations

import gc
import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import hami
import numpy as np
import pytest
from small_models import ids_of
from together import LONG_S, is_cancelled, pairs, run_forked, run_together

from hami_text import tokenize

TEXT = "the cat sat"
WAIT = 20  # seconds, for what takes milliseconds on a machine that is not busy


class World:
    """Folders of models with equal texts and tokens, one of which is replaced meanwhile."""

    def __init__(self, write: Callable[..., Path]) -> None:
        self.first, self.second = write(), write()
        self.pipe = hami.pipe({"backend": f"Tokenize(model='{self.first}')", "instance_num": 2})
        self._numbers = itertools.count()

    def open(self, model: Path, options: str = "") -> None:
        with hami.pipe(f"Tokenize(model='{model}'{options})") as pipe:
            self.call(pipe)

    def call(self, pipe: hami.Pipe, **keys: object) -> None:
        found = pipe({"data": TEXT, **keys})["result"]["input_ids"]
        assert np.asarray(found).tolist() == [ids_of(TEXT)]

    def leave(self) -> None:
        for number in itertools.count():
            if not is_cancelled(self.pipe.acall({"data": TEXT}), number):
                return

    def replace_file(self) -> None:
        file = self.first.parent / "tokenizer.json"
        other = file.with_name(f"other{next(self._numbers)}.json")
        other.write_text(json.dumps(json.loads(file.read_text("utf-8"))), "utf-8")
        other.replace(file)


CALLS: dict[str, Callable[[World], object]] = {
    "open": lambda world: world.open(world.first),
    "open another": lambda world: world.open(world.second),
    "open otherwise": lambda world: world.open(world.first, ", max_tokens=6"),
    "call": lambda world: world.call(world.pipe),
    "leave": World.leave,
    "replace the file": World.replace_file,
    "replace the pipe": lambda world: world.pipe.replace(f"Tokenize(model='{world.second}')"),
    "close": lambda world: world.pipe.close(),
}


@pytest.mark.parametrize(("first", "second"), pairs(CALLS))
def test_two_calls_of_tokenizers_at_once(write, first, second):
    before = set(tokenize._opened)  # of pipes of other tests
    world = World(write)
    allowed = (hami.PipeClosed,) if "close" in (first, second) else ()
    run_together([lambda name=name: CALLS[name](world) for name in (first, second)] * 2, allowed)
    world.pipe.close()
    world.open(world.first)
    end = time.monotonic() + WAIT
    while set(tokenize._opened) - before and time.monotonic() < end:  # another thread may still leave a closed pipe
        gc.collect()
    assert not set(tokenize._opened) - before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
def test_a_process_that_forks_while_a_tokenizer_is_opened_opens_its_own(write, monkeypatch):
    model = write()
    source = f"Tokenize(model='{model}')"
    opening, opened, open_one = threading.Event(), threading.Event(), tokenize.open_tokenizer

    def open_slowly(*given):
        opening.set()
        assert opened.wait(LONG_S)
        return open_one(*given)

    def use() -> None:
        opened.set()
        with hami.pipe(source) as pipe:
            assert "result" in pipe({"data": TEXT}, timeout=LONG_S)

    monkeypatch.setattr(tokenize, "open_tokenizer", open_slowly)
    thread = threading.Thread(target=lambda: hami.pipe(source).close())
    thread.start()
    assert opening.wait(LONG_S)
    try:
        run_forked(use)
    finally:
        opened.set()
        thread.join(LONG_S)
