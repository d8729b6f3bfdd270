// Inputs: the tensors of a request, from their elements to the keys of a request of a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "body.hpp"
#include "inference.hpp"
#include "models.hpp"

namespace hami_serve {

inline constexpr std::size_t kMaxTensors = 64;
inline constexpr std::size_t kMaxRank = 16;
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

struct Unusual {};  // the door in Python reads this request

inline void require(bool usual) {
  if (!usual) throw Unusual();
}

struct Input {
  std::string name;
  const Datatype* type = nullptr;
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  std::optional<std::size_t> size;  // bytes behind the JSON
  hami::Value value;
  std::optional<std::string_view> text;  // the only element of BYTES, where it was read

  void add_axis(std::int64_t length) {
    require(length > 0 && length <= kMaxElements && shape.size() < kMaxRank);
    require(!__builtin_mul_overflow(count, length, &count) && count <= kMaxElements);
    shape.push_back(length);
  }
};

template <class List>
void require_new(const List& list, const std::string& name) {
  require(list.size() < kMaxTensors);
  for (const auto& each : list) require(each.name != name);
}

// Reads the elements of an input from these bytes of a body. A tensor stays there if it is aligned.
void read_elements(const std::shared_ptr<Body>& body, Input& input, char* data, std::size_t size);

// Checks inputs against those of the model, and sets the keys and the rows of its request.
void bind_inputs(std::vector<Input>& inputs, const Model& model, const Table& table, Inference& inference);

}  // namespace hami_serve
