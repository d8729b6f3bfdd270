// A file of a model as a private mapping, in which lengths of 1 are replaced by free ones.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hami_onnx {

class ModelInMemory {
 public:
  // `freed`: offsets of dimensions of the length 1, as hami_model_check.free_axis finds them.
  // hami::Error(HAMI_FAILED_PRECONDITION) if the file cannot be read, or has something else there.
  ModelInMemory(const std::string& path, const std::vector<std::string>& freed);
  ~ModelInMemory();
  ModelInMemory(const ModelInMemory&) = delete;
  ModelInMemory& operator=(const ModelInMemory&) = delete;

  const void* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hami_onnx
