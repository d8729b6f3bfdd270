"""Merging consecutive rows back into the tensor that they are views of."""

from __future__ import annotations

import pytest
import torch

from hami_torch._rows import concatenated, merged

WHOLE = torch.arange(24.0).reshape(4, 3, 2)
COMPLEX = torch.tensor([[1 + 2j], [3 + 4j]])


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [2, 2], [1, 3], [4]])
@pytest.mark.parametrize("whole", [WHOLE, WHOLE.clone(), WHOLE[:, 1:], WHOLE.transpose(1, 2), WHOLE.expand(4, 3, 2)])
def test_consecutive_rows_are_merged_without_a_copy(whole, sizes):
    parts = whole.split(sizes)
    assert merged(parts).data_ptr() == whole.data_ptr()
    assert concatenated(parts).equal(whole)
    assert concatenated(parts).stride() == whole.stride()


def test_a_range_of_the_rows_is_merged():
    assert merged(WHOLE.split(1)[1:3]).equal(WHOLE[1:3])
    assert merged([WHOLE[0], WHOLE[1]]).equal(WHOLE[0:2].reshape(6, 2))


@pytest.mark.parametrize(
    "parts",
    [
        [WHOLE[0:1], WHOLE[2:3]],  # a row is missing
        [WHOLE[1:2], WHOLE[0:1], WHOLE[2:4]],  # not in order
        [WHOLE[0:1], WHOLE[0:1], WHOLE[0:1], WHOLE[0:1]],
        [WHOLE[0:2], WHOLE.clone()[2:4]],  # rows of another tensor
        [WHOLE[0:2], torch.zeros(2, 3, 2)],
        [WHOLE[:, 0], WHOLE[:, 1]],  # columns
        [WHOLE[0:2], WHOLE.view(torch.int32)[2:4].float()],
        [WHOLE[0:1, :, 0], WHOLE[1:2, :, 1]],
        [WHOLE[0:2], WHOLE[2:4].transpose(1, 2).contiguous().transpose(1, 2)],  # another layout
        [torch.zeros(1, 2), torch.zeros(1, 2)],  # separate tensors
        COMPLEX.conj().split(1),
        [COMPLEX[0:1], COMPLEX.conj()[1:2]],
        torch.view_as_complex(WHOLE).conj().split(1),
        COMPLEX.conj().imag.split(1),
    ],
)
def test_other_parts_are_copied(parts):
    assert merged(parts) is None
    assert concatenated(parts).equal(torch.cat(parts))
