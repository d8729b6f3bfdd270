// Shared by the tests of the language.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace hami::testing {

// The expressions that LANGUAGE promises to accept exactly as written.
inline constexpr std::array<std::string_view, 15> kVerbatim = {
    "IoC[InstancesRegister[BackgroundThread[Reflect[backend]]], Register[Block[Batching, "
    "InstanceDispatcher]];Forward[node.{node_name}]]",
    "IoC[InstancesRegister[BackgroundThread[BackendProxy]], Register[DI[Batching, InstanceDispatcher]]; "
    "Forward[node.{node_name}]]",
    "List[InstancesRegister[BackgroundThread[BackendProxy]], Register[Aspect[Batching, InstanceDispatcher]]]",
    "IoC[InstanceDispatcher,Aspect[Batching, InstanceDispatcher];Aspect]",
    "StateFul[Batching, InstanceDispatcher]",
    "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine], TensorrtInferTensor; "
    "CatSplit[S[FixTensor,CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],"
    "SplitTensor]]",
    "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine], TensorrtInferTensor; "
    "CatSplit[S[GpuTensor,CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],"
    "SplitTensor]]",
    "SyncTensor[TensorrtTensor]",
    "Sequential[DecodeTensor,ResizeTensor,CvtColorTensor,SyncTensor]",
    "S[DecodeMat,ResizeMat]",
    "Reflect[key_to_cls_name, default=backend]",
    "Repost[Z, reply]",
    "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]",
    "Forward[node.{node_name}]",
    "IoC[a:=Identity,b:=Identity;S[a,b]]",
};

inline std::string repeat(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace hami::testing
