// Answer: what the native door sends for a request, in pieces that stay where they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inference.hpp"
#include "models.hpp"

namespace hami_serve {

struct Answer {
  std::string head;                    // the head of HTTP, and the JSON of the body
  std::vector<std::string_view> tail;  // tensors as bytes
  std::vector<hami::Value> values;     // which the tail is in
  std::vector<std::string> texts;      // the same
};

// The keys of a completed request that an answer may need.
using Keys = std::vector<std::pair<std::string, hami::Value>>;

// The answer with the outputs of a request. Nothing: a value has another form than native code renders, or takes long.
std::optional<Answer> render_outputs(const Model& model, const Inference& inference, const Keys& keys);

// The answer to a probe.
Answer render_probe(std::string_view json);

// The answer to a client that sends too slowly, with the text of an error.
Answer render_timeout(std::string_view text);

// Tells the client that the connection ends after this answer.
void mark_last(Answer& answer);

}  // namespace hami_serve
