"""Sizes of CUDA graphs; that they replay is a matter of tests/gpu."""

from __future__ import annotations

import pytest

from hami_torch._graphs import next_size


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, None)])
def test_a_batch_is_padded_to_the_next_captured_size(rows, size):
    assert next_size([1, 2, 4, 8], rows) == size
