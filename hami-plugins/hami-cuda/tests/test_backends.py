"""The backends on the fake driver: results, launches, memory, errors. Results are compared with NumPy."""

from __future__ import annotations

import gc
from typing import Any

import hami
import pytest
from native import GATHERED

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def run(backend: str, *data: Any, **keys: Any) -> list[Any]:
    """Return the results of requests that run as one batch."""
    requests = [{"data": each, **keys} for each in data]
    with hami.pipe({"backend": backend, "max": len(data), "batching": "greedy"}) as pipe:
        pipe(requests if len(requests) > 1 else requests[0])
    return [request["result"] for request in requests]


def on_cpu(backend: str, *data: Any, **keys: Any) -> list[Any]:
    """Return the results as NumPy arrays."""
    found = run(f"S[GpuTensor,{backend},hami-cuda::CpuTensor]", *data, **keys)
    return [hami.to_numpy(each) for each in found]


def pictures(*sizes: tuple[int, int], channels: int = 3) -> list[Any]:
    random = np.random.default_rng(11)
    return [random.integers(0, 256, (1, channels, *size), np.uint8) for size in sizes]


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4)])
def test_tensors_come_back_from_the_device_as_they_were(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    (result,) = on_cpu("Identity", array)
    assert result.dtype == array.dtype
    assert result.shape == array.shape
    assert (result == array).all()


def test_tensors_that_are_not_contiguous_come_back_in_row_major_order():
    array = np.arange(24).reshape(2, 3, 4)
    for view in (array.transpose(2, 0, 1), array[:, ::2], array[..., 1]):
        assert (on_cpu("Identity", view)[0] == view).all()
    with hami.pipe("GpuTensor") as move, hami.pipe("hami-cuda::CpuTensor") as back:
        tensor = move({"data": array})["result"]
        for index in ((slice(None), 1), (1, slice(None, None, 2)), (Ellipsis, slice(1, 3))):
            assert (hami.to_numpy(back({"data": tensor[index]})["result"]) == array[index]).all()


def test_small_tensors_of_a_batch_are_uploaded_at_once(fake):
    random = np.random.default_rng(3)
    small = [random.integers(0, 256, (size, 3), np.uint8) for size in (1, 40, 85, 86, 0, 1000, 7)]
    large = [random.integers(0, 256, 300_000, np.uint8) for _ in range(2)]
    transposed = [np.arange(6.0).reshape(2, 3).T, random.integers(0, 256, (600, 700), np.uint8).T]
    for data, uploads in (
        (small, 2),
        ([*small[:4], *large], 3),
        (transposed, 1),
        ([*large, *transposed], 3),
        (small[:1], 1),
    ):
        before = fake.fake_uploads()
        for array, result in zip(data, on_cpu("Identity", *data), strict=True):
            assert (result == array).all()
        assert fake.fake_uploads() == before + uploads


def test_tensors_of_a_batch_are_copied_to_blocks_of_at_most_32_MiB(fake):
    data = [np.full((1024, 1536), value, np.float64).T for value in range(4)]  # 12 MiB each
    before = fake.fake_uploads()
    for array, result in zip(data, on_cpu("Identity", *data), strict=True):
        assert (result == array).all()
    assert fake.fake_uploads() == before + 2


def test_lists_and_dicts_keep_their_structure():
    one, other = np.zeros(2), np.ones((3, 1))
    (result,) = run("S[GpuTensor,hami-cuda::CpuTensor]", {"a": one, "b": other})
    assert {key: each.tolist() for key, each in result.items()} == {"a": one.tolist(), "b": other.tolist()}
    (result,) = run("S[GpuTensor,hami-cuda::CpuTensor]", [one, other])
    assert [each.tolist() for each in result] == [one.tolist(), other.tolist()]


def test_a_tensor_on_the_device_passes_unchanged():
    with hami.pipe("S[GpuTensor,SyncTensor]") as pipe:
        tensor = pipe({"data": np.zeros((2, 3))})["result"]
        assert (tensor.device, tensor.shape, tensor.dtype) == ("cuda:0", (2, 3), "float64")
        assert pipe({"data": tensor})["result"].__dlpack_device__() == (2, 0)


def test_a_batch_of_different_sizes_is_resized_with_one_launch(fake):
    images = pictures((20, 30), (1, 1), (64, 5), (31, 17))
    before = fake.fake_launches()
    results = on_cpu("ResizeTensor(width=9,height=7)", *images)
    assert fake.fake_launches() == before + 1 + GATHERED
    for image, result in zip(images, results, strict=True):
        assert result.shape == (1, 3, 7, 9)
        assert np.abs(result.astype(int) - np.rint(resized(image[0], 9, 7))).max() <= 1


def resized(image: Any, width: int, height: int) -> Any:
    from test_kernels import reference

    return reference(image, width, height)


def test_an_image_of_the_right_size_is_not_copied(fake):
    before = fake.fake_launches()
    (image,) = pictures((7, 9))
    assert (on_cpu("ResizeTensor(width=9,height=7)", image)[0] == image).all()
    assert fake.fake_launches() == before


def test_layouts_stay():
    (image,) = pictures((20, 30))
    nchw = on_cpu("ResizeTensor(width=9,height=7)", image)[0]
    assert (on_cpu("ResizeTensor(width=9,height=7)", image[0])[0] == nchw[0]).all()
    hwc = np.ascontiguousarray(image[0].transpose(1, 2, 0))
    result = on_cpu("ResizeTensor(width=9,height=7)", hwc, data_format="hwc")[0]
    assert (result == nchw[0].transpose(1, 2, 0)).all()
    several = np.concatenate([image, image[:, ::-1]])
    assert (on_cpu("ResizeTensor(width=9,height=7)", several)[0][1] == nchw[0][::-1]).all()


def test_colors_are_converted_once():
    (image,) = pictures((5, 4))
    backend = "CvtColorTensor(color=bgr),CvtColorTensor(color=bgr)"
    assert (on_cpu(backend, image)[0] == image[:, ::-1]).all()
    assert (on_cpu("CvtColorTensor(color=bgr)", image, color="bgr")[0] == image).all()
    weights = np.array([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)
    gray = np.rint((image * weights).sum(1, keepdims=True))
    assert np.abs(on_cpu("CvtColorTensor(color=gray)", image)[0] - gray).max() <= 1
    assert np.abs(on_cpu("CvtColorTensor(color=gray)", image[:, ::-1], color="bgr")[0] - gray).max() <= 1
    assert (on_cpu("CvtColorTensor(color=rgb)", image[:, :1])[0] == image[:, [0, 0, 0]]).all()


def test_the_color_of_the_result_is_noted():
    request = {"data": pictures((5, 4))[0]}
    with hami.pipe("S[GpuTensor,CvtColorTensor(color=gray)]") as pipe:
        pipe(request)
    assert request["color"] == "gray"


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-3)])
def test_images_are_normalized(dtype, tolerance):
    mean, std = (",".join(map(str, numbers)) for numbers in (MEAN, STD))
    backend = f"hami-cuda::NormalizeTensor(mean='{mean}',std='{std}',scale=0.00392156862745098,dtype={dtype})"
    images = pictures((5, 4), (3, 8))
    for image, result in zip(images, on_cpu(backend, *images), strict=True):
        expected = (image / 255 - np.reshape(MEAN, (1, 3, 1, 1))) / np.reshape(STD, (1, 3, 1, 1))
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance)


def test_memory_returns_when_results_are_dropped(fake):
    before = fake.fake_allocations()
    with hami.pipe("S[GpuTensor,ResizeTensor(width=9,height=7),SyncTensor]") as pipe:
        results = [pipe({"data": image})["result"] for image in pictures((20, 30), (40, 50))]
        assert fake.fake_allocations() == before + 2
        view = results[0][0, 1]
        del results
        assert fake.fake_allocations() == before + 1  # the view keeps its memory
        del view
        assert fake.fake_allocations() == before
    assert fake.fake_pushed() == 0


def test_out_of_memory_fails_the_batch_and_the_pipe_lives(fake, monkeypatch):
    before = fake.fake_allocations()
    (image,) = pictures((200, 300))
    with hami.pipe("S[GpuTensor,ResizeTensor(width=9,height=7),SyncTensor]") as pipe:
        monkeypatch.setenv("FAKE_CUDA_MEMORY", "1000")
        with pytest.raises(MemoryError, match=r"GpuTensor: cannot allocate 180224 bytes on the device.*Lower `max`"):
            pipe({"data": image})
        monkeypatch.delenv("FAKE_CUDA_MEMORY")
        assert fake.fake_allocations() == before
        assert pipe({"data": image})["result"].shape == (1, 3, 7, 9)


def test_a_bad_request_fails_alone():
    good, bad = pictures((20, 30))[0], np.zeros((3, 4))
    requests = [{"data": good}, {"data": bad}, {}, {"data": "text"}, {"data": np.zeros((3, 0, 4), np.uint8)}]
    config = {"backend": "S[GpuTensor,ResizeTensor(width=9,height=7),SyncTensor]", "max": 5, "batching": "greedy"}
    with hami.pipe(config) as pipe, pytest.raises(hami.BatchError) as raised:
        pipe(requests)
    assert requests[0]["result"].shape == (1, 3, 7, 9)
    errors = {index: str(error).split("\n")[0] for index, error in raised.value.errors}
    assert errors[1].startswith("ResizeTensor takes images (a tensor C x H x W or N x C x H x W of uint8, ")
    assert errors[1].endswith("got float64 [3, 4]")
    assert errors[2] == 'GpuTensor: the request has no "data"; its keys are []'
    assert errors[3] == ("GpuTensor takes a tensor, an array or another object with DLPack: expected a tensor, got str")
    assert errors[4] == "ResizeTensor: the image is empty, its shape is [3, 0, 4]"


def test_a_tensor_elsewhere_is_rejected_with_the_backend_that_moves_it(monkeypatch):
    (image,) = pictures((20, 30))
    with pytest.raises(hami.DataTypeError) as raised:
        run("ResizeTensor(width=9,height=7)", image)
    assert str(raised.value).split("\n")[0] == (
        "ResizeTensor takes a tensor on cuda:0, got uint8 [1, 3, 20, 30] on the CPU; put GpuTensor before it"
    )
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    other = run("GpuTensor(device=cuda:1)", image)[0]
    assert other.device == "cuda:1"
    with pytest.raises(hami.DataTypeError, match='on cuda:1; put GpuTensor before it, or set device = "cuda:1"'):
        run("ResizeTensor(width=9,height=7)", other)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("GpuTensor(device=cuda:7)", 'GpuTensor: device "cuda:7" is not available: this process sees cuda:0'),
        ("hami-cuda::GpuTensor(device=cpu)", "backends for images in CPU memory are in hami-image"),
        ("GpuTensor(device=gpu)", '"device" must be cuda, cuda:N or cuda:*, got "gpu"'),
        (
            "ResizeTensor(width=1,height=1,interpolation=area,antialias=true)",
            '"antialias" needs interpolation linear or cubic',
        ),
        ("hami-cuda::NormalizeTensor(std=0)", '"std" is a divisor and must not contain 0'),
        ("hami-cuda::NormalizeTensor(mean='1,2',std='1,2,3')", "must have one number per channel, or one for all"),
    ],
)
def test_a_mistake_in_the_configuration_is_an_error_of_the_build(backend, message):
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe(backend)
    assert message in str(raised.value)


def test_backends_of_one_instance_share_a_stream_and_others_are_ordered(fake):
    (image,) = pictures((20, 30))
    gc.collect()  # freeing a tensor that another stream has read counts as a wait
    gc.collect()  # memory of earlier tests is ordered with other streams when it is freed
    before = fake.fake_stream_waits()
    (result,) = run("S[GpuTensor,ResizeTensor(width=9,height=7)]", image)
    assert fake.fake_stream_waits() == before
    run("ResizeTensor(width=4,height=4)", result)  # another instance, another stream
    assert fake.fake_stream_waits() > before
    before = fake.fake_stream_waits()
    assert "dltensor" in repr(result.__dlpack__(stream=1))
    assert fake.fake_stream_waits() == before + 1


class Foreign:
    """A tensor of another package, which orders it only with the stream that it is given."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return self.tensor.__dlpack__(stream=-1)


def test_a_tensor_of_another_package_that_passes_through_is_ordered_with_other_streams(fake):
    (tensor,) = run("GpuTensor", pictures((20, 30))[0])
    (result,) = run("hami-cuda::FixTensor", Foreign(tensor))
    waits = fake.fake_stream_waits()
    result.__dlpack__(stream=1)
    assert fake.fake_stream_waits() == waits + 1
    del result
    gc.collect()
    assert fake.fake_stream_waits() == waits + 2  # its memory is not free before stream 1 has read it


def test_sync_tensor_waits_for_the_items_in_its_brackets(fake):
    (image,) = pictures((20, 30))
    for wait in ("auto", "spin", "sleep"):
        before = fake.fake_waits()
        (result,) = run(f"SyncTensor(wait={wait})[S[GpuTensor,ResizeTensor(width=9,height=7)]]", image)
        assert result.shape == (1, 3, 7, 9)
        assert fake.fake_waits() > before


def test_sync_tensor_waits_for_results_of_other_packages():
    asked = []

    class Exporter:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **options: Any) -> Any:
            asked.append(options["stream"])
            return self.tensor.__dlpack__(**options)

    @hami.register
    class ExportTensor(hami.Backend):
        def forward(self, batch):
            for item in batch:
                item["result"] = {"tensor": Exporter(item["data"]), "number": 3, "object": object()}

    (result,) = run("S[GpuTensor,ExportTensor,SyncTensor]", np.zeros(3))
    assert isinstance(result["tensor"], Exporter)  # it passes unchanged
    assert len(asked) == 1
    assert asked[0] > 1  # the stream of the instance


@pytest.mark.parametrize(
    "backend",
    [
        "S[GpuTensor,ResizeTensor(width=4,height=4),NormalizeTensor,ContiguousTensor,CpuTensor,SyncTensor]",
        "S[GpuTensor,SoftmaxTensor]",
    ],
)
def test_nodes_learn_how_many_requests_run_together(fake, backend):
    with hami.pipe(backend) as pipe:
        (node,) = pipe.describe()["nodes"].values()
    assert node["batching"]["max"] == "auto"
    assert node["batching"]["instance_num"] == "auto"


def test_all_backends_are_listed():
    names = {name for name, info in hami.backends(load=True).items() if info.owner == "hami-cuda"}
    assert names >= {"CpuTensor", "CvtColorTensor", "GpuTensor", "ResizeTensor", "StreamGuard", "SyncTensor"}


@pytest.mark.parametrize("where", ["GpuTensor,", ""])
@pytest.mark.parametrize(
    "backend",
    [
        "hami-cuda::CpuTensor",
        "FixTensor(dtype=float32)",
        "CatTensor",
        "SplitTensor",
        "ContiguousTensor",
        "SoftmaxTensor",
        "ArgMaxTensor",
        "TopKTensor(k=1)",
        "ResizeTensor(width=2,height=2)",
        "StreamGuard",
    ],
)
def test_a_tensor_without_elements_gives_a_result_or_an_error(backend, where):
    ended = []
    with hami.pipe(f"S[{where}{backend}]") as pipe:
        for shape in ((1, 0), (1, 3, 0, 4), (0,), (1, 3, 2, 2)):
            request = {"data": np.zeros(shape, np.float32)}
            try:
                pipe(request)
            except hami.Error as error:
                ended.append(bool(str(error)))
            else:
                ended.append("result" in request)
    assert ended == [True] * 4


def test_the_instances_of_a_node_get_all_devices_in_turn(fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    for instance, device in enumerate(("cuda:0", "cuda:1", "cuda:0")):
        config = {"backend": "S[GpuTensor,SyncTensor]", "device": "cuda:*", "instance_num": 3}
        with hami.pipe({**config, "entrypoint": f"Forward[default.{instance}]"}) as pipe:
            assert pipe({"data": np.ones(2)})["result"].device == device
