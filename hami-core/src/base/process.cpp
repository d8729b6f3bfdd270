// Counts forks by a handler that the C library runs in the child.
#include "base/process.hpp"

#include <pthread.h>

#include <atomic>

namespace hami {
namespace {

std::atomic<unsigned> forks{0};

const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

unsigned fork_generation() noexcept {
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace hami
