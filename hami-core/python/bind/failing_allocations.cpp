// The operator new of development builds.
#include "failing_allocations.hpp"

#ifdef HAMI_ASSERTIONS
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> before_failure{-1};  // allocations that still succeed; negative: all succeed
std::atomic<bool> fails_on{false};             // all that follow fail too
std::atomic<bool> has_failed{false};

bool fails() noexcept {
  if (before_failure.load(std::memory_order_relaxed) < 0) return false;
  const std::int64_t left = before_failure.fetch_sub(1);
  if (left > 0 || (left < 0 && !fails_on)) return false;
  if (fails_on) before_failure = 0;
  has_failed = true;
  return true;
}

}  // namespace

void* operator new(std::size_t size) {
  void* const made = fails() ? nullptr : std::malloc(size > 0 ? size : 1);
  if (!made) throw std::bad_alloc();
  return made;
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { std::free(pointer); }
#endif

namespace hami::bind {

void register_failing_allocations([[maybe_unused]] pybind11::module_& module) {
#ifdef HAMI_ASSERTIONS
  namespace py = pybind11;
  const auto fail = [](std::int64_t number, bool on) {
    fails_on = on;
    before_failure = number - 1;
    return has_failed.exchange(false);
  };
  module.def(
      "_fail_allocations", fail, py::arg("number"), py::arg("on"),
      "Let allocation `number` of the C++ code fail, counted from 1 over all threads, and with `on` all after it; "
      "0: none. Return whether one has failed since the last call.");
#endif
}

}  // namespace hami::bind
