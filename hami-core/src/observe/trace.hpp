// trace: the timeline of the process: events of all threads, which a writer thread puts into a file.
//
// Each thread has a ring of events, which it fills without a lock and the writer empties. A full ring drops new events and
// counts them. The end of a slice always has a place: slices in the file are never left open by a full ring.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"

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

struct Options {
  std::string path;
  Nanoseconds last =
      0;  // above 0: keep only the events of this time, and write them when a request takes at least `slow`
  Nanoseconds slow = kNever;
};
struct Summary {
  std::uint64_t events = 0;
  std::uint64_t lost = 0;     // of rings that were full
  std::uint64_t written = 0;  // bytes; with `last`, files
  std::string error;          // why the trace ended early; empty: it did not
};

// Error(kAlreadyExists) if a trace is active, Error(kConfig) if the file cannot be written.
void start(const Options& options);
// Writes what is left, and ends the trace. Without a trace it does nothing.
Summary stop();

}  // namespace hami::trace
