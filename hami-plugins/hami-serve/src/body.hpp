// Body: the memory of a request's body, in which its tensors stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

namespace hami_serve {

class Body {
 public:
  static constexpr std::size_t kAlignment = 64;  // bytes; of the first tensor, as vector instructions want it
  static constexpr std::size_t kPadding = 64;    // bytes behind the body that simdjson may read

  // `before`: bytes of JSON before the first tensor. Throws std::bad_alloc.
  Body(std::size_t size, std::size_t before) : size_(size), start_(-before % kAlignment) {
    const std::size_t whole = (start_ + size + kPadding + kAlignment - 1) / kAlignment * kAlignment;
    memory_ = static_cast<char*>(std::aligned_alloc(kAlignment, whole));
    if (!memory_) throw std::bad_alloc();
    std::memset(data() + size, 0, kPadding);
  }
  ~Body() { std::free(memory_); }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  char* data() const noexcept { return memory_ + start_; }
  std::size_t size() const noexcept { return size_; }
  std::string_view text(std::size_t from, std::size_t count) const noexcept { return {data() + from, count}; }

 private:
  const std::size_t size_;
  const std::size_t start_;
  char* memory_;
};

}  // namespace hami_serve
