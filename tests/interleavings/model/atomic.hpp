// An atomic and a futex of a model: each operation is a step.
#pragma once

#include <linux/futex.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>

#include "explore.hpp"

namespace model {

template <class T>
class Atomic {
 public:
  static constexpr bool is_always_lock_free = true;

  Atomic() = default;
  explicit Atomic(T value) : value_(value) {}

  T load(std::memory_order = std::memory_order_seq_cst) const noexcept {
    step({this, nullptr, false, true});
    return value_;
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    changed([&](T) { value_ = value; });
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    return changed([&](T) { value_ = value; });
  }
  T fetch_or(T bits, std::memory_order = std::memory_order_seq_cst) noexcept {
    return changed([&](T before) { value_ = before | bits; });
  }
  T fetch_and(T bits, std::memory_order = std::memory_order_seq_cst) noexcept {
    return changed([&](T before) { value_ = before & bits; });
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    const T wanted = expected;
    expected = changed([&](T before) { value_ = before == wanted ? value : before; });
    return expected == wanted;
  }

 private:
  // Returns the value from before.
  template <class Change>
  T changed(const Change& change) noexcept {
    step({this});
    const T before = value_;
    change(before);
    return before;
  }

  T value_{};
};

// SYS_futex of a word whose waits have no end.
inline long futex(long, const void* word, int operation, std::uint32_t value, const timespec*, const void*, int) {
  static std::map<const void*, std::uint64_t> woken;  // how often
  step({word});
  if (operation == FUTEX_WAKE) return ++woken[word], 0;
  if (*static_cast<const std::uint32_t*>(word) != value) return errno = EAGAIN, -1;
  const std::uint64_t before = woken[word];
  step({word}, [=] { return woken[word] != before; });
  return 0;
}

}  // namespace model
