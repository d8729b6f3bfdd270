"""Texts of reproducible lengths: of words that are one token each in the vocabulary of BERT."""

from __future__ import annotations

import math
import random

SPECIAL = 2  # tokens around a text
COMMON = (
    "the of and to in a is that for it as was with be by on not he this are or his from at which but have an had they "
    "you were their one all we can her has there been if more when will would who so no out up into do any your what "
    "time water house city river music paper light night world people market school history language"
)
WORDS = COMMON.split()


def of_length(tokens: int, seed: int = 0) -> str:
    """Return a text of this number of tokens, special tokens included."""
    return " ".join(random.Random(seed).choices(WORDS, k=tokens - SPECIAL))


def varied(count: int, seed: int = 7) -> list[str]:
    """Return texts with the lengths of a real collection: the median 16 tokens, 90 % up to 70, at most 256."""
    draw = random.Random(seed)
    spread = math.log(70 / 16) / 1.2816  # the normal distribution has 90 % below 1.2816
    lengths = [min(256, max(3, round(draw.lognormvariate(math.log(16), spread)))) for _ in range(count)]
    return [of_length(tokens, draw.randrange(1 << 30)) for tokens in lengths]
