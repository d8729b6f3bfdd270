// The key by which CatTensor and FixTensor pass the number of rows of a request to SplitTensor, as in hami-tensor.
#pragma once

#include <cstdint>
#include <string_view>

namespace hami_cuda {

inline constexpr std::string_view kTensorRows = "tensor_rows";
inline constexpr std::int64_t kWithoutBatchAxis = -1;  // one row, and its tensors had no batch axis

}  // namespace hami_cuda
