// The operator new of the tests.
#include "failing_allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kNone = 0;
std::atomic<std::size_t> failing{kNone};  // the number of the first allocation that fails
std::atomic<std::size_t> counted{0};
std::atomic<bool> only_one{true};
std::atomic<bool> has_failed{false};
thread_local int spared = 0;

[[maybe_unused]] bool fails() noexcept {
  const std::size_t number = failing.load(std::memory_order_relaxed);
  if (number == kNone || spared > 0) return false;
  const std::size_t mine = counted.fetch_add(1) + 1;
  if (only_one ? mine != number : mine < number) return false;
  has_failed = true;
  return true;
}

}  // namespace

namespace hami::testing {

FailingAllocations::FailingAllocations(Failing which, std::size_t number) noexcept {
  counted = 0;
  has_failed = false;
  only_one = which == Failing::kOne;
  failing = number;
}
FailingAllocations::~FailingAllocations() { failing = kNone; }
bool FailingAllocations::failed() noexcept { return has_failed; }

Spared::Spared() noexcept { ++spared; }
Spared::~Spared() { --spared; }

}  // namespace hami::testing

#ifndef HAMI_THREAD_SANITIZER
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(size > 0 ? size : 1);
}
void* operator new(std::size_t size) {
  void* const made = operator new(size, std::nothrow);
  if (!made) throw std::bad_alloc();
  return made;
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return operator new(size, std::nothrow); }
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { std::free(pointer); }
void operator delete[](void* pointer) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { std::free(pointer); }
#endif
