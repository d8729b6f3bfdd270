"""Fusion: one launch does the work of neighbours, with the results of one launch for each of them."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from native import GATHERED

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")

RESIZE, COLOR = "ResizeTensor(width=32,height=16)", "CvtColorTensor(color=bgr)"
NORMALIZE = "hami-cuda::NormalizeTensor(mean='0.485,0.456,0.406',std='0.229,0.224,0.225')"
CHAIN = f"{RESIZE},{COLOR},{NORMALIZE}"


def results(backend: str, batch: list[dict[str, Any]], **keys: Any) -> list[Any]:
    """Return the results of a batch, as NumPy arrays."""
    config = {"backend": f"S[GpuTensor,{backend},hami-cuda::CpuTensor]", "max": len(batch), "batching": "greedy"}
    with hami.pipe({**config, **keys}) as pipe:
        pipe(batch)
    return [hami.to_numpy(request["result"]) for request in batch]


def pictures(*shapes: tuple[int, ...], dtype: Any = np.uint8, **keys: Any) -> list[dict[str, Any]]:
    random = np.random.default_rng(12)
    return [{"data": random.integers(0, 256, shape).astype(dtype), **keys} for shape in shapes]


CHAINS = {
    "resize, color, normalize": CHAIN,
    "resize, color": f"{RESIZE},{COLOR}",
    "resize, normalize": f"{RESIZE},{NORMALIZE}",
    "color, normalize": f"{COLOR},{NORMALIZE}",
    "gray": f"{RESIZE},CvtColorTensor(color=gray),hami-cuda::NormalizeTensor(mean=0.5,std=0.25)",
    "not rounded": f"ResizeTensor(width=32,height=16,rounded=false),{COLOR},{NORMALIZE}",
    "area": f"ResizeTensor(width=32,height=16,interpolation=area),{COLOR},{NORMALIZE}",
    "cubic": f"ResizeTensor(width=32,height=16,interpolation=cubic,antialias=true),{COLOR},{NORMALIZE}",
    "half precision": f"{RESIZE},{COLOR},hami-cuda::NormalizeTensor(std=2,dtype=float16)",
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_a_fused_chain_gives_exactly_what_its_single_steps_give(fake, name, dtype):
    shapes = ((1, 3, 20, 30), (3, 16, 32), (2, 3, 5, 7), (1, 3, 16, 32))
    before = fake.fake_launches()
    fused = results(CHAINS[name], pictures(*shapes, dtype=dtype))
    between = fake.fake_launches()
    single = results(CHAINS[name], pictures(*shapes, dtype=dtype), fuse=False)
    assert between - before < fake.fake_launches() - between
    for one, other in zip(fused, single, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_layouts_and_grayscale_images_are_fused_too():
    batch = pictures((20, 30, 3), (9, 9, 3), data_format="hwc") + pictures((1, 1, 20, 30), (3, 20, 30), color="bgr")
    single = [dict(request) for request in batch]
    for one, other in zip(results(CHAIN, batch), results(CHAIN, single, fuse=False), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [request["color"] for request in batch] == ["bgr"] * 4


def test_a_chain_with_cat_tensor_is_one_launch(fake):
    batch = pictures((1, 3, 20, 30), (1, 3, 64, 5), (1, 3, 16, 32))
    before = fake.fake_launches()
    whole = results(f"{CHAIN},CatTensor", batch)
    assert fake.fake_launches() == before + 1 + GATHERED
    single = results(CHAIN, pictures((1, 3, 20, 30), (1, 3, 64, 5), (1, 3, 16, 32)), fuse=False)
    for each in whole:
        np.testing.assert_array_equal(each, np.concatenate(single))


def test_images_that_are_not_adjacent_are_concatenated_with_a_copy(fake):
    batch = pictures((1, 3, 20, 30), (1, 3, 64, 5))
    chain = f"ResizeTensor(width=3,height=3),{COLOR},{NORMALIZE}"
    before = fake.fake_launches()
    whole = results(f"{chain},CatTensor", batch)  # results start at multiples of 256 bytes
    assert fake.fake_launches() == before + 2 + GATHERED
    single = results(chain, pictures((1, 3, 20, 30), (1, 3, 64, 5)), fuse=False)
    np.testing.assert_array_equal(whole[0], np.concatenate(single))


def test_a_request_that_fails_in_a_step_fails_alone_with_the_name_of_the_step():
    batch = pictures((1, 3, 20, 30), (1, 2, 20, 30), (3, 4))
    with pytest.raises(hami.BatchError) as raised:
        results(CHAIN, batch)
    errors = {index: str(error).split("\n")[0] for index, error in raised.value.errors}
    assert errors[1] == "CvtColorTensor takes images of 1 or 3 channels, got shape [1, 2, 16, 32]"
    assert errors[2].startswith("ResizeTensor takes images")
    assert hami.to_numpy(batch[0]["result"]).shape == (1, 3, 16, 32)


def test_the_description_shows_what_is_fused():
    config = {"backend": f"S[GpuTensor,{CHAIN},SyncTensor]"}
    with hami.pipe(config) as pipe:
        (chain,) = pipe.describe()["nodes"]["default"]["backends"]
        absorbed = {each["class"]: each["absorbed"] for each in chain["children"]}
        assert absorbed == {
            "GpuTensor": False,
            "ResizeTensor": False,
            "CvtColorTensor": True,
            "NormalizeTensor": True,
            "SyncTensor": False,
        }
    with hami.pipe({**config, "fuse": False}) as pipe:
        (chain,) = pipe.describe()["nodes"]["default"]["backends"]
        assert not any(each["absorbed"] for each in chain["children"])


def test_the_normalization_of_images_in_cpu_memory_goes_to_the_device_where_the_data_is_there():
    pytest.importorskip("hami_image", reason="hami-image is not installed")
    normalize = "NormalizeTensor(mean='1,2,3',std=2,scale=3)"
    (on_device,) = results(normalize, pictures((1, 3, 20, 30)))
    with hami.pipe(normalize) as pipe:
        on_cpu = hami.to_numpy(pipe(pictures((1, 3, 20, 30))[0])["result"])
    np.testing.assert_allclose(on_device, on_cpu, rtol=1e-6)
