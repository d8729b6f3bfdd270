// Body: the memory of a request's body, in which its tensors stay.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

namespace hami_serve {

class Body {
 public:
  static constexpr std::size_t kAlignment = 64;  // bytes; of the first tensor, as vector instructions want it
  static constexpr std::size_t kPadding = 64;    // bytes behind the body that simdjson may read

  // `before`: bytes of JSON before the first tensor. Throws std::bad_alloc.
  Body(std::size_t size, std::size_t before) : Body(before) {
    memory_ = static_cast<char*>(std::aligned_alloc(kAlignment, rounded(size, kAlignment)));
    if (!memory_) throw std::bad_alloc();
    end(size);
  }
  // A body whose size is not known before its end.
  explicit Body(std::size_t before) noexcept : start_(-before % kAlignment) {}
  ~Body() {
    if (mapped_ > 0)
      ::munmap(memory_, mapped_);
    else
      std::free(memory_);
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  // Reserves memory for twice so many bytes: the kernel moves pages, and no byte is copied. Throws std::bad_alloc.
  void grow(std::size_t size) {
    constexpr std::size_t kStep = 1 << 16;  // bytes; whole pages
    if (rounded(size, kStep) <= mapped_) return;
    const std::size_t whole = rounded(2 * size, kStep);
    void* const grown = memory_ ? ::mremap(memory_, mapped_, whole, MREMAP_MAYMOVE)
                                : ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(grown);
    mapped_ = whole;
  }
  // It has so many bytes, for which there is memory.
  void end(std::size_t size) noexcept {
    size_ = size;
    std::memset(data() + size, 0, kPadding);
  }

  char* data() const noexcept { return memory_ + start_; }
  std::size_t size() const noexcept { return size_; }
  std::string_view text(std::size_t from, std::size_t count) const noexcept { return {data() + from, count}; }

 private:
  // With the bytes before and behind them.
  std::size_t rounded(std::size_t size, std::size_t step) const noexcept {
    return (start_ + size + kPadding + step - 1) / step * step;
  }

  const std::size_t start_;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;  // bytes of the mapping; 0: the memory is allocated
  char* memory_ = nullptr;
};

}  // namespace hami_serve
