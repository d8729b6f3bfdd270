// Inference: an inference request of the protocol, as the keys of a request of a pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "body.hpp"
#include "head.hpp"
#include "models.hpp"

namespace hami_serve {

struct WantedOutput {
  std::string name;
  std::optional<bool> binary;  // whether as bytes; nothing: as `all_binary` says
};

struct Inference {
  std::vector<std::pair<std::string, hami::Value>> keys;
  std::vector<WantedOutput> outputs;  // empty: all
  bool all_binary = false;
  std::string id;
  std::uint64_t rows = 1;
  std::optional<std::int64_t> timeout;  // ns
  std::int64_t priority = 0;            // 0: none

  // Both throw Unusual, also if the parameter is there twice.
  void set_timeout(std::int64_t microseconds);  // 0: none, as in Triton
  void set_priority(std::int64_t given);
};

// Whether the body is the input itself.
bool is_raw(const Head& head) noexcept;

// Whether `read_inference` takes long, and has to run on a thread without connections.
bool is_long_to_read(const Head& head) noexcept;

// Reads a body. Nothing: it is wrong, or has something that only the door in Python reads or reports; nothing was changed
// then. JSON numbers go directly to the tensor, and tensors in bytes stay in the body.
std::optional<Inference> read_inference(const Head& head, const std::shared_ptr<Body>& body, const Model& model,
                                        const Table& table);

}  // namespace hami_serve
