"""From rows back to the tensor that they are the rows of."""

from __future__ import annotations

import pytest
import torch

from hami_torch._rows import gathered, whole_of

WHOLE = torch.arange(24.0).reshape(4, 3, 2)
COMPLEX = torch.tensor([[1 + 2j], [3 + 4j]])


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [2, 2], [1, 3], [4]])
@pytest.mark.parametrize("whole", [WHOLE, WHOLE.clone(), WHOLE[:, 1:], WHOLE.transpose(1, 2), WHOLE.expand(4, 3, 2)])
def test_rows_that_follow_each_other_are_one_tensor_again(whole, sizes):
    parts = whole.split(sizes)
    assert whole_of(parts).data_ptr() == whole.data_ptr()
    assert gathered(parts).equal(whole)
    assert gathered(parts).stride() == whole.stride()


def test_a_part_of_the_rows_is_too():
    assert whole_of(WHOLE.split(1)[1:3]).equal(WHOLE[1:3])
    assert whole_of([WHOLE[0], WHOLE[1]]).equal(WHOLE[0:2].reshape(6, 2))


@pytest.mark.parametrize(
    "parts",
    [
        [WHOLE[0:1], WHOLE[2:3]],  # one is missing between
        [WHOLE[1:2], WHOLE[0:1], WHOLE[2:4]],  # another order
        [WHOLE[0:1], WHOLE[0:1], WHOLE[0:1], WHOLE[0:1]],
        [WHOLE[0:2], WHOLE.clone()[2:4]],  # rows of another
        [WHOLE[0:2], torch.zeros(2, 3, 2)],
        [WHOLE[:, 0], WHOLE[:, 1]],  # not rows
        [WHOLE[0:2], WHOLE.view(torch.int32)[2:4].float()],
        [WHOLE[0:1, :, 0], WHOLE[1:2, :, 1]],
        [WHOLE[0:2], WHOLE[2:4].transpose(1, 2).contiguous().transpose(1, 2)],  # another layout
        [torch.zeros(1, 2), torch.zeros(1, 2)],  # tensors of their own
        COMPLEX.conj().split(1),
        [COMPLEX[0:1], COMPLEX.conj()[1:2]],
        torch.view_as_complex(WHOLE).conj().split(1),
        COMPLEX.conj().imag.split(1),
    ],
)
def test_others_are_copied(parts):
    assert whole_of(parts) is None
    assert gathered(parts).equal(torch.cat(parts))
