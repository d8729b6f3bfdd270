// The files that a model consists of: the model itself and the files with its weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace hami_openvino {

struct ModelFiles {
  std::filesystem::path model;
  std::vector<std::filesystem::path> weights;  // where they are expected; an IR without constants has no such file

  // Changes when one of the files is replaced.
  std::string fingerprint() const;
  // The ONNX model with its weights in it, if these are links that lead out of its folder, as in the Hugging Face cache.
  // OpenVINO does not follow such links.
  std::optional<std::string> with_linked_weights() const;
  // "; weights file … does not exist" for each missing file, else "".
  std::string show_missing() const;
};

// hami::Error(HAMI_FAILED_PRECONDITION) if `model` is not an existing file.
ModelFiles find_model_files(const std::string& model);

}  // namespace hami_openvino
