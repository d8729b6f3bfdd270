// What CheckModel, in Python, found out about a model before it is opened: the names of its ports, and whether its rows are
// independent.
#pragma once

#include <hami/backend.hpp>
#include <map>
#include <string>
#include <vector>

namespace hami_openvino {

struct Plan {
  // Knowledge about the rows of the model, as OpenVINO computes them. kUnknown: a test decides when the model is opened.
  enum class Rows { kUnknown, kIndependent, kMix };

  Rows rows = Rows::kUnknown;
  std::string why;                   // the finding and the advice, if rows are not known to be independent
  std::vector<std::string> inputs;   // of the ONNX file, in its order; empty: the names that OpenVINO reports
  std::vector<std::string> outputs;  // the same for outputs
  std::map<std::string, int>
      input_axes;  // if rows are independent: the axis of the rows by name; -1: all rows share it
  std::map<std::string, int> output_axes;

  // Reads the option `openvino_plan`; without it, nothing is known.
  static Plan of(const hami::Dict& options);
  // Differs between plans that lead to different models. `rows` does not: what a test finds may be known the next time.
  std::string fingerprint() const;
};

}  // namespace hami_openvino
