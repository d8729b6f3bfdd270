// Allocations that fail: the tests replace operator new. ThreadSanitizer does not allow that; with it, none fails.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_THREAD__)
#define HAMI_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAMI_THREAD_SANITIZER
#endif
#endif

namespace hami::testing {

#ifdef HAMI_THREAD_SANITIZER
inline constexpr bool kAllocationsCanFail = false;
#else
inline constexpr bool kAllocationsCanFail = true;
#endif

enum class Failing {
  kOne,      // one allocation
  kAllFrom,  // that one, and all after it
};

// While it exists, an allocation throws std::bad_alloc: number `number`, counted from 1 over all threads.
class FailingAllocations {
 public:
  FailingAllocations(Failing which, std::size_t number) noexcept;
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  // Whether an allocation has failed: there were so many.
  static bool failed() noexcept;
};

// Allocations of this thread succeed and do not count: those of the test itself.
class Spared {
 public:
  Spared() noexcept;
  ~Spared();
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;
};

}  // namespace hami::testing
