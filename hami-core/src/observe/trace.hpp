// trace: the timeline of the process: threads record events, from which telemetry/ makes a file.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/api.hpp"

namespace hami::trace {

// A text that events refer to; 0 is none.
using Name = std::uint32_t;
// Without memory, or after 65536 different texts: a name that stands for all others.
Name intern(std::string_view text) noexcept;
std::string text_of(Name name);

enum class Category : std::uint8_t { kRequest, kQueue, kBatch, kBackend, kHop, kOutcome, kTimer };
inline constexpr const char* kCategoryNames[] = {"request", "queue", "batch", "backend", "hop", "outcome", "timer"};

struct Event {
  enum Kind : std::uint8_t {
    kBegin,    // of a slice of the thread; its flows are the members recorded before it
    kEnd,      // of the thread's innermost slice
    kInstant,  // at this moment on the thread
    kMember,  // a request belongs to the next slice of the thread; `until`: it waited in the queue from `time` until then
    kRequestBegin,  // a request was submitted
    kRequestEnd,    // and has its outcome, `name`; `until`: when it was submitted
    kSlice,         // from `time` until `until`, on a track of its own
  };
  Nanoseconds time = 0;
  Nanoseconds until = 0;
  std::uint64_t request = 0;  // 0: none
  std::uint64_t batch = 0;    // 0: none
  Name name = 0;
  Name node = 0;
  Name reason = 0;          // why a batch started
  std::uint16_t count = 0;  // items of a batch, saturated
  Kind kind = kInstant;
  Category category = Category::kTimer;
};
static_assert(sizeof(Event) == 48);

namespace detail {
inline std::atomic<bool> active{false};
}
// False costs one load and one branch, which is all that a program without a trace pays.
inline bool active() noexcept { return detail::active.load(std::memory_order_relaxed); }

// These record only while a trace is active; callers ask `active` first.
std::uint64_t next_id() noexcept;  // of a request or batch
void record(const Event& event) noexcept;

// A slice of the current thread, for its scope. Scopes of a thread end in the opposite order.
class Slice {
 public:
  Slice() noexcept = default;
  ~Slice() {
    if (recorded()) end();
  }
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  // At most once.
  void begin(const Event& event) noexcept;
  void end() noexcept;
  bool recorded() const noexcept { return session_ != 0; }

 private:
  std::uint32_t session_ = 0;  // 0: it is not recorded
};
// The same for a caller whose scope is not one of C++: returns a token for `end_slice`; 0: not recorded.
std::uint32_t begin_slice(Event event) noexcept;
void end_slice(std::uint32_t token) noexcept;

}  // namespace hami::trace

// Which requests a trace records with all their steps.
//
// A trace that waits for a slow request is always on and must cost little. It records the steps of at most kSampledRequests
// in each period of its writer, and of the other requests only those that were slow, without their steps. Any other trace
// records the steps of every request. All of this is for while a trace is active.
namespace hami::trace {

inline constexpr int kSampledRequests = 8;  // in 4 ms; two thousand requests in a second cost less than 1 % of a core

namespace detail {
inline std::atomic<bool> sampling{false};
inline std::atomic<int> sampled_requests{kSampledRequests};
inline std::atomic<int> left_in_period{0};
inline std::atomic<Nanoseconds> slow{kNever};

inline constexpr Nanoseconds kCoarse = 20'000'000;  // the coarse clock is at most one tick of the kernel, 10 ms, behind
inline Nanoseconds coarse_now() noexcept {
  timespec moment{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &moment);
  return Nanoseconds{moment.tv_sec} * 1'000'000'000 + moment.tv_nsec;
}
}  // namespace detail

inline bool is_sampling() noexcept { return detail::sampling.load(std::memory_order_relaxed); }
// Whether to record the steps of a new request.
inline bool samples_request() noexcept {
  return !is_sampling() || (detail::left_in_period.load(std::memory_order_relaxed) > 0 &&
                            detail::left_in_period.fetch_sub(1, std::memory_order_relaxed) > 0);
}
// Whether to record a step of the current thread that names no request: inside a slice that is recorded.
bool samples_step() noexcept;
// Whether a request that began at this moment was slow. Of most requests the coarse clock, which costs a fifth, says that it
// was not.
inline bool is_slow_since(Nanoseconds began) noexcept {
  const Nanoseconds slow = detail::slow.load(std::memory_order_relaxed);
  return slow != kNever && detail::coarse_now() - began >= slow - detail::kCoarse && now() - began >= slow;
}

// For the recorder.
inline void begin_period() noexcept {
  detail::left_in_period.store(detail::sampled_requests.load(std::memory_order_relaxed), std::memory_order_relaxed);
}
inline void begin_sampling(bool samples, Nanoseconds slow) noexcept {
  detail::sampling.store(samples, std::memory_order_relaxed);
  detail::slow.store(slow, std::memory_order_relaxed);
  begin_period();
}

}  // namespace hami::trace
