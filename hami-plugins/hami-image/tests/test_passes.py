"""The native passes: what backends do together is what they do one by one, with the instructions of every processor."""

from __future__ import annotations

import os
import subprocess
import sys

import hami
import numpy as np
import pytest

NORMALIZE = "NormalizeTensor(mean='0.485,0.456,0.406',std='0.229,0.224,0.225',scale=0.00392157)"
CHAINS = [
    f"Mat2Tensor,{NORMALIZE}",
    f"Mat2Tensor(layout=chw),{NORMALIZE}",
    f"Mat2Tensor(dtype=uint8),{NORMALIZE}",
    f"Mat2Tensor(dtype=float16),{NORMALIZE}",
    "Mat2Tensor(layout=hwc),NormalizeTensor(mean=3,std=7)",
    "Mat2Tensor,NormalizeTensor(mean=3,std=7)",
    f"ResizeMat(37,21),Mat2Tensor,{NORMALIZE}",
    "ResizeMat(3,50),Mat2Tensor(layout=chw)",
    "ResizeMat(9,8,interpolation=area),Mat2Tensor(layout=hwc),NormalizeTensor(mean=3,std=7)",
]
PASSES = ["plain", "sse4.1", "avx2", "neon"]  # a processor without the instructions uses the best that it has


def pictures() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    shapes = [(5, 7, 3), (1, 1, 3), (3, 40, 3), (17, 33, 4), (6, 9, 1), (8, 31), (2, 64, 3)]
    images = [random.integers(0, 256, shape, np.uint8) for shape in shapes]
    whole = random.integers(0, 256, (20, 30, 3), np.uint8)
    return [
        *images,
        whole[3:9, 4:21],
        whole[:, :, ::-1],
        whole[::2, ::3],
        whole.astype(np.float32),
        whole.astype(np.uint16),
    ]


def outcomes(backend: str, images: list[np.ndarray], **params: object) -> list[np.ndarray | str]:
    found: list[np.ndarray | str] = []
    with hami.pipe({"backend": backend, **params}) as pipe:
        for image in images:
            try:
                found.append(hami.to_numpy(pipe({"data": image})["result"]))
            except hami.RequestError as error:
                found.append(str(error).splitlines()[0])
    return found


def are_same(one: np.ndarray | str, other: np.ndarray | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one == other
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.parametrize("chain", CHAINS)
def test_backends_that_run_together_give_what_each_gives_alone(chain):
    together = outcomes(f"S[{chain}]", pictures())
    alone = outcomes(f"S[{chain}]", pictures(), fuse=False)
    assert any(isinstance(each, np.ndarray) for each in alone)
    assert all(map(are_same, together, alone))


def test_the_chain_is_one_backend():
    with hami.pipe(f"S[Mat2Tensor,{NORMALIZE}]") as pipe:
        (chain,) = pipe.describe()["nodes"]["default"]["backends"]
    assert {each["class"]: each["absorbed"] for each in chain["children"]} == {
        "Mat2Tensor": False,
        "NormalizeTensor": True,
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_normalization_rounds_as_numpy_does(dtype):
    tensor = np.random.default_rng(4).integers(0, 256, (2, 3, 9, 21)).astype(dtype)
    factor = (0.00392157 / np.array([0.229, 0.224, 0.225])).astype(np.float32).reshape(-1, 1, 1)
    offset = (-np.array([0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).astype(np.float32).reshape(-1, 1, 1)
    (result,) = outcomes(NORMALIZE, [tensor])
    assert np.array_equal(result, tensor.astype(np.float32) * factor + offset)


def test_one_bad_picture_fails_alone():
    images = [np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.uint8), np.ones((4, 4, 3), np.uint8)]
    first, second, third = outcomes(f"S[Mat2Tensor,{NORMALIZE}]", images)
    assert second == 'NormalizeTensor: "mean" and "std" are for 3 channels, got a tensor of shape (1, 1, 4, 4)'
    assert isinstance(first, np.ndarray)
    assert isinstance(third, np.ndarray)


DIGEST = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import test_passes
found = hashlib.sha256()
for chain in test_passes.CHAINS:
    for result in test_passes.outcomes(f"S[{chain}]", test_passes.pictures()):
        found.update(result.encode() if isinstance(result, str) else result.tobytes())
print(found.hexdigest())
"""


def test_the_passes_of_every_processor_give_the_same_bits():
    here = os.path.dirname(__file__)
    digests = set()
    for name in PASSES:
        environment = {**os.environ, "HAMI_IMAGE_PASSES": name}
        command = [sys.executable, "-c", DIGEST, here]
        digests.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1
