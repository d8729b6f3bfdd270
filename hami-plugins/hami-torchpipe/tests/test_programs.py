"""Programs of the documentation of torchpipe 0.2, paraphrased: the same calls and keys, with another import.

Backends that need a GPU run as substitutes on the CPU: SyncTensor passes its items on, and TensorrtTensor computes the
mean of each channel instead of a model. The other backends are those of hami-image.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import cv2
import hami
import numpy as np
import pytest
from skimage.data import astronaut

import hami_torchpipe as omniback
import hami_torchpipe as torchpipe
import hami_torchpipe as tp
from hami_torchpipe import pipe

BATCHES: list[int] = []


class SyncTensor(omniback.Backend):
    """Runs its item, or passes `data` on."""

    child_count = (0, 1)

    def forward(self, batch: list[Any]) -> None:
        for child in self.children:
            child.forward(batch)
        if not self.children:
            for item in batch:
                item["result"] = item["data"]


class TensorrtTensor:
    """A plain class, as torchpipe's own Python backends are: every key of the node arrives as text."""

    def init(self, params: dict[str, str], options: Any) -> None:
        self.limit = int(params["max"])
        floats = {key: [float(one) for one in params.get(key, "0,0,0").split(",")] for key in ("mean", "std")}
        self.mean, self.std = np.float32(floats["mean"]), np.float32(floats["std"] if "std" in params else [1, 1, 1])
        assert params["model"].endswith(".onnx")

    def max(self) -> int:
        return self.limit

    def forward(self, ios: list[Any]) -> None:
        BATCHES.append(len(ios))
        for io in ios:
            images = np.asarray(io["data"], np.float32).reshape(1, 3, 224, 224)
            io["result"] = (images.mean((0, 2, 3)) - self.mean) / self.std


@pytest.fixture(autouse=True)
def _substitutes() -> None:
    BATCHES.clear()
    torchpipe.register("SyncTensor", SyncTensor)
    torchpipe.register("TensorrtTensor", TensorrtTensor)


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    file = tmp_path / "img.jpg"
    cv2.imwrite(str(file), astronaut()[:, :, ::-1])
    return file


def expected(photograph: Path, mean: tuple[float, ...] = (0, 0, 0), std: tuple[float, ...] = (1, 1, 1)) -> Any:
    """Return what the program computes, with OpenCV alone."""
    image = cv2.resize(cv2.imread(str(photograph)), (224, 224))[:, :, ::-1]
    return (image.astype(np.float32).mean((0, 1)) - np.float32(mean)) / np.float32(std)


def test_the_program_of_the_readme(photograph: Path) -> None:
    model_path = "./resnet101.onnx"
    thread_safe_pipe = pipe(
        {
            "preprocessor": {
                "backend": "S[DecodeMat,ResizeMat,CvtColorMat,Mat2Tensor,SyncTensor]",
                "instance_num": 2,
                "color": "rgb",
                "resize_h": "224",
                "resize_w": "224",
                "next": "model",
            },
            "model": {
                "backend": "SyncTensor[TensorrtTensor]",
                "model": model_path,
                "model::cache": model_path.replace(".onnx", ".trt"),
                "max": "4",
                "batching_timeout": 4,
                "instance_num": 2,
                "mean": "123.675, 116.28, 103.53",
                "std": "58.395, 57.120, 57.375",
            },
        }
    )
    data = {"data": photograph.read_bytes()}
    thread_safe_pipe(data)
    result = data["result"]
    mean_and_std = ((123.675, 116.28, 103.53), (58.395, 57.120, 57.375))
    assert np.allclose(result, expected(photograph, *mean_and_std), atol=1e-3)

    answers: list[Any] = []

    def client() -> None:
        own = {"data": photograph.read_bytes()}
        thread_safe_pipe(own)
        answers.append(own["result"])

    clients = [Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert len(answers) == 8
    assert all(np.array_equal(answer, result) for answer in answers)
    assert max(BATCHES) <= 4
    thread_safe_pipe.close()


def test_the_program_of_basic_usage() -> None:
    config = {
        "instance_num": 2,
        "batching_timeout": 5,
        "backend": "SyncTensor[TensorrtTensor]",
        "model": "resnet18_-1x3x224x224.onnx",
        "max": 4,
    }
    models = tp.pipe(config)
    input = {"data": np.ones((1, 3, 224, 224), np.float32)}
    models(input)
    assert np.array_equal(input["result"], np.ones(3, np.float32))
    models.close()


def test_the_toml_file_of_the_resnet_example(photograph: Path, tmp_path: Path) -> None:
    file = tmp_path / "resnet50.toml"
    file.write_text(
        "batching_timeout = 4  # default of all nodes\n"
        "instance_num = 2\n"
        "[jpg_decoder]\n"
        'backend = "S[DecodeMat,ResizeMat,CvtColorMat,Mat2Tensor,SyncTensor]"\n'
        'resize_h = 224\nresize_w = 224\ncolor = "rgb"\ninstance_num = 8\nnext = "resnet50"\n'
        "[resnet50]\n"
        'backend = "SyncTensor[TensorrtTensor]"\nmax = 4\nmodel = "./ResNet.onnx"\n"model::cache" = "./ResNet.trt"\n'
        'mean = "123.675, 116.28, 103.53"\nstd = "58.395, 57.120, 57.375"\nprecision = "fp16"\n'
    )
    model = omniback.pipe(str(file))
    io = omniback.Dict({"data": photograph.read_bytes()})
    model(io)
    mean_and_std = ((123.675, 116.28, 103.53), (58.395, 57.120, 57.375))
    assert np.allclose(io["result"], expected(photograph, *mean_and_std), atol=1e-3)
    model.close()


def test_decode_mat_obeys_color_which_it_ignores_in_torchpipe() -> None:
    model = omniback.init("S[DecodeMat,Mat2Tensor(layout=hwc)]", {"color": "rgb"})
    pixel = np.full((1, 1, 3), (255, 0, 0), np.uint8)
    input = {"data": cv2.imencode(".png", pixel)[1].tobytes()}
    model(input)
    assert input["result"].shape == (1, 1, 3)
    assert input["result"][0, 0, -1] == 255  # blue is the last channel of RGB
    model.close()


def test_the_example_of_a_class_of_the_program() -> None:
    class WarpAffine:
        def init(self, params=None, options=None):
            self.threads = params["instance_num"]

        def forward(self, ios):
            io = ios[0]
            size = (io["target_w"], io["target_h"])
            io["result"] = cv2.warpAffine(io["data"], io["affine_matrix"], size)
            return ios

        def max(self):
            return 1

    torchpipe.register("WarpAffineTensor", WarpAffine)
    points = np.float32([[0, 0], [112, 0], [0, 112]]), np.float32([[10, 10], [100, 20], [20, 100]])
    image = np.arange(112 * 112 * 3, dtype=np.uint32).reshape(112, 112, 3).astype(np.uint8)
    io = {"data": image, "target_h": 128, "target_w": 128, "affine_matrix": cv2.getAffineTransform(*points)}
    model = torchpipe.pipe({"backend": "SyncTensor[WarpAffineTensor]", "instance_num": 4})
    model(io)
    assert io["data"].shape == (112, 112, 3)
    assert io["result"].shape == (128, 128, 3)
    model.close()


def test_the_example_of_a_random_choice_names_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "random.toml"
    file.write_text(
        "[mix]\nnode_entrypoint = 'Register[Random(0.5)[node.cpu_preproc,node.gpu_preproc]]'\n"
        '[cpu_preproc]\nbackend = "S[DecodeMat,ResizeMat,CvtColorMat,Mat2Tensor,SyncTensor]"\n'
        "color = 'rgb'\nresize_h = 224\nresize_w = 224\n"
        '[gpu_preproc]\nbackend = "Identity"\n'
    )
    with pytest.raises(hami.BackendNotFound) as caught:
        omniback.pipe(file)
    assert str(caught.value).splitlines()[-1] == (
        "  from torchpipe: write a hami.Backend with child_count = (1, None) that chooses one of self.children"
    )
