"""Which first-party plugin has which name, so that a message can say what to install. Do not edit.

Written by `python ci/first_party.py` from hami-plugins/*/pyproject.toml.
"""

BACKENDS: dict[str, str] = {
    "CatTensor": "hami-torch",
    "ContiguousTensor": "hami-torch",
    "CpuTensor": "hami-torch",
    "CropMat": "hami-image",
    "CropTensor": "hami-torch",
    "CvtColorMat": "hami-image",
    "CvtColorTensor": "hami-torch",
    "DecodeMat": "hami-image",
    "DecodeTensor": "hami-torch",
    "FixTensor": "hami-torch",
    "GpuTensor": "hami-torch",
    "LetterBoxMat": "hami-image",
    "LoadTensorrtEngine": "hami-trt",
    "Mat2Tensor": "hami-image",
    "NormalizeTensor": "hami-image",
    "Onnx2Tensorrt": "hami-trt",
    "OpenvinoTensor": "hami-openvino",
    "ResizeMat": "hami-image",
    "ResizeTensor": "hami-torch",
    "SplitTensor": "hami-torch",
    "StreamGuard": "hami-torch",
    "StreamPool": "hami-torch",
    "SyncTensor": "hami-torch",
    "Tensor2Mat": "hami-image",
    "TensorrtInferTensor": "hami-trt",
    "TensorrtTensor": "hami-trt",
    "TopLeftResizeMat": "hami-image",
    "TorchModel": "hami-torch",
}
PIPELINES: dict[str, str] = {}
DISTRIBUTIONS: frozenset[str] = frozenset(
    {
        "hami-image",
        "hami-openvino",
        "hami-torch",
        "hami-trt",
    }
)
