// Answer: what the native door sends for a request, in pieces that stay where they are.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inference.hpp"
#include "models.hpp"

namespace hami_serve {

struct Answer {
  Answer() = default;
  Answer(Answer&&) = default;  // the tail stays where it is
  Answer& operator=(Answer&&) = default;

  std::string head;                    // the head of HTTP, and the JSON of the body
  std::vector<std::string_view> tail;  // tensors as bytes
  std::vector<hami::Value> values;     // which the tail is in
  std::list<std::string> texts;        // the same

  void add_text(std::string text) { tail.emplace_back(texts.emplace_back(std::move(text))); }
  std::size_t size() const noexcept {
    std::size_t found = head.size();
    for (const std::string_view each : tail) found += each.size();
    return found;
  }
};

// The keys of a completed request that an answer may need.
using Keys = std::vector<std::pair<std::string, hami::Value>>;

// The bytes at most of the outputs that take long to render: if there are any, `render_outputs` has to run on a thread without
// connections.
std::int64_t size_of_long(const Model& model, const Inference& inference, const Keys& keys);

// The answer with the outputs of a request. Nothing: a value has another form than native code renders.
std::optional<Answer> render_outputs(const Model& model, const Inference& inference, const Keys& keys);

// The answer to a probe.
Answer render_probe(std::string_view json);

// The answer to a client that sends too slowly, with the text of an error.
Answer render_timeout(std::string_view text);

// Adds lines to the head, each with "\r\n" before it.
void add_header_lines(Answer& answer, std::string_view lines);

}  // namespace hami_serve
