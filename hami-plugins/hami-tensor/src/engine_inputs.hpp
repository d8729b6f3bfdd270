// EngineInputs: what the engine of an instance takes, as its backend announces it in `options` while it is initialised.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensors.hpp"

namespace hami_tensor {

inline constexpr std::string_view kEngineInputs = "engine_inputs";
inline constexpr std::int64_t kAnySize = -1;  // of an axis

struct EngineInput {
  std::string name;
  DLDataType dtype;
  std::optional<Shape> shape;   // none: any number of axes
  std::string device;           // "cpu", "cuda:0"
  bool has_batch_axis = false;  // axis 0 is the batch: any number of rows

  bool takes(const Shape& shape) const;
};

// Empty if no engine has announced its inputs. Error(HAMI_FAILED_PRECONDITION) for an entry that is not as reference/backends.md describes.
std::vector<EngineInput> read_engine_inputs(const hami::Dict& options);

}  // namespace hami_tensor
