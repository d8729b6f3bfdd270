// Which files a model consists of: its own and those with its weights.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hami_openvino {

struct Files {
  std::filesystem::path model;
  std::vector<std::filesystem::path> weights;  // where they lie or belong; an IR without constants has none

  // Changes when one of them is replaced.
  std::string stamp() const;
  // "; there is no …" of each file with weights that is not there, else "".
  std::string show_missing() const;
};

// hami::Error(HAMI_FAILED_PRECONDITION): there is no such file.
Files files_of(const std::string& model);

}  // namespace hami_openvino
