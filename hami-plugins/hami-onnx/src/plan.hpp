// The decisions of OnnxModel, in Python, about a model: the engine that runs it, and the axes along which requests are joined.
#pragma once

#include <string>
#include <vector>

#include "session.hpp"
// Behind error.hpp, which says the version of the ABI.
#include <hami/model_keys.hpp>

namespace hami_onnx {

inline constexpr int kShared = -1;  // an input or output without rows, which all rows share

struct Plan {
  bool is_native = false;  // false: OnnxModel runs the model, because a value is not a tensor of numbers
  Settings settings;
  bool joins = false;
  std::int64_t fixed = 0;        // the number of rows that the model takes; 0: any
  bool runs_one = false;         // one row also runs alone
  std::vector<int> input_axes;   // of the rows, in the order of the model
  std::vector<int> output_axes;  // the same
  std::vector<int> lone_axes;    // of inputs: the axes that data may leave out if it is one row
  std::string why_not_joined;
  std::vector<std::string> chosen;  // the parameter `inputs`
  hami::ModelKeys keys;             // of the requests; set when the session is open
  bool casts = true;                // arrays of types whose values the model's types all have are converted
  bool stops = true;                // a watched difference ends the joining; false: the user has asked for it
  std::int64_t watch_every = 0;     // joined batches; 0: never

  // Reads the option `onnx_plan`. hami::Error(HAMI_FAILED_PRECONDITION) without it.
  static Plan of(const hami::Dict& options);
};

}  // namespace hami_onnx
