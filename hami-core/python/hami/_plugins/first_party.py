"""Which first-party plugin has which name, so that a message can say what to install. Do not edit.

Written by `python ci/first_party.py` from hami-plugins/*/pyproject.toml.
"""

BACKENDS: dict[str, str] = {
    "CpuTensor": "hami-torch",
    "CropLines": "hami-ocr",
    "CropMat": "hami-image",
    "CropTensor": "hami-torch",
    "CvtColorMat": "hami-image",
    "CvtColorTensor": "hami-torch",
    "DecodeMat": "hami-image",
    "DecodeTensor": "hami-torch",
    "DetectText": "hami-ocr",
    "GatherLines": "hami-ocr",
    "GpuTensor": "hami-torch",
    "LetterBoxMat": "hami-image",
    "LoadOnnx": "hami-onnx",
    "LoadTensorrtEngine": "hami-trt",
    "Mat2Tensor": "hami-image",
    "NormalizeTensor": "hami-image",
    "Onnx2Tensorrt": "hami-trt",
    "OnnxInferTensor": "hami-onnx",
    "OnnxTensor": "hami-onnx",
    "OpenvinoTensor": "hami-openvino",
    "OrientText": "hami-ocr",
    "RecognizeText": "hami-ocr",
    "ResizeMat": "hami-image",
    "ResizeTensor": "hami-torch",
    "StreamGuard": "hami-torch",
    "StreamPool": "hami-torch",
    "SyncTensor": "hami-torch",
    "Tensor2Mat": "hami-image",
    "TensorrtInferTensor": "hami-trt",
    "TensorrtTensor": "hami-trt",
    "TopLeftResizeMat": "hami-image",
    "TorchModel": "hami-torch",
}
PIPELINES: dict[str, str] = {
    "ocr": "hami-ocr",
}
DEVICES: dict[str, str] = {
    "cuda": "hami-torch",
}
DISTRIBUTIONS: frozenset[str] = frozenset(
    {
        "hami-accel",
        "hami-image",
        "hami-model-check",
        "hami-ocr",
        "hami-onnx",
        "hami-openvino",
        "hami-serve",
        "hami-torch",
        "hami-trt",
    }
)
