// NodeVisits: at which nodes a request and its branches are, and since when. For the message of a timeout, and for tracing.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "sync/api.hpp"

namespace hami {

class Request;

// Kept only for requests with a deadline, and for those whose caller has put one under the key `hami.visits`, which also keeps
// the visits that have ended. Several branches, or parts of a list, may be at one node: they count as one visit, which lasts
// from the arrival of the first to the end of the last.
class NodeVisits final : public OpaqueObject {
 public:
  static constexpr const char* kTypeKey = "hami.visits";
  static constexpr std::size_t kMaxEnded = 1000;  // that are kept: a request may visit nodes in a loop

  struct Visit {
    std::string node;
    Nanoseconds arrived;
    Nanoseconds started = kNever;
    Nanoseconds ended = kNever;
    bool failed = false;
    std::size_t waiting = 0;
    std::size_t running = 0;
  };

  explicit NodeVisits(Nanoseconds began) : OpaqueObject(kTypeKey), began_(began) {}
  // For a caller, who asks for `all` when its request has ended.
  static Ref<NodeVisits> recorded();
  // Whether there was ever a recorded one: a program without tracing pays one load and one branch.
  static bool any_recorded() noexcept { return any_recorded_.load(std::memory_order_relaxed); }

  void begin(Nanoseconds moment) noexcept;                          // the request enters the pipe
  void arrive(std::string_view node, Nanoseconds moment) noexcept;  // without memory, the visit is not recorded
  void start(std::string_view node, Nanoseconds moment) noexcept;   // one that has arrived begins to run
  void leave(std::string_view node, bool ran, bool failed = false) noexcept;
  // Those that have ended, then the open ones.
  std::vector<Visit> all() const;
  // "its limit of 50ms passed at node "det" (waited 12ms, ran 38ms)".
  std::string describe(Nanoseconds deadline, Nanoseconds moment) const;

 private:
  Visit* find(std::string_view node) noexcept HAMI_REQUIRES(mutex_);

  inline static std::atomic<bool> any_recorded_{false};

  bool keeps_ended_ = false;
  mutable Mutex mutex_;
  Nanoseconds began_ HAMI_GUARDED_BY(mutex_);
  std::vector<Visit> visits_ HAMI_GUARDED_BY(mutex_);  // by arrival
  std::vector<Visit> ended_ HAMI_GUARDED_BY(mutex_);
  std::string last_left_ HAMI_GUARDED_BY(mutex_);
};

// The value, or null if it is something else. The result is valid while the value exists.
NodeVisits* find_visits(const Value& value) noexcept;
// The visits of the call that the request belongs to; null if they are not kept.
NodeVisits* visits_of(const Request& request) noexcept;

// DeadlineExceeded, with the nodes at which the request is; without memory for that, without them.
Error deadline_exceeded(const Request& request, Nanoseconds moment) noexcept;

}  // namespace hami
