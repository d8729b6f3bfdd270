"""The backends of this package. Importing this module needs a library; the error has the command that installs it."""

from hami_trt._tensorrt import require_library

require_library()

from hami_trt.load_tensorrt_engine import LoadTensorrtEngine  # noqa: E402
from hami_trt.onnx2tensorrt import Onnx2Tensorrt  # noqa: E402
from hami_trt.tensorrt_infer_tensor import TensorrtInferTensor  # noqa: E402

__all__ = ["LoadTensorrtEngine", "Onnx2Tensorrt", "TensorrtInferTensor"]
