// NodeVisits: at which nodes a request and its branches are, and since when. For the message of a timeout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/mutex.hpp"
#include "value/error.hpp"

namespace hami {

class Request;

// Kept only for requests with a deadline. Several branches, or parts of a list, may be at one node: they count as one visit,
// which lasts from the arrival of the first to the end of the last.
class NodeVisits final : public Counted {
 public:
  explicit NodeVisits(Nanoseconds began) : began_(began) {}

  void arrive(std::string_view node, Nanoseconds moment) noexcept;  // without memory, the visit is not recorded
  void start(std::string_view node, Nanoseconds moment) noexcept;   // one that has arrived begins to run
  void leave(std::string_view node, bool ran) noexcept;
  // "its limit of 50ms passed at node "det" (waited 12ms, ran 38ms)".
  std::string describe(Nanoseconds deadline, Nanoseconds moment) const;

 private:
  struct Visit {
    std::string node;
    Nanoseconds arrived;
    Nanoseconds started = kNever;
    std::size_t waiting = 0;
    std::size_t running = 0;
  };
  Visit* find(std::string_view node) noexcept HAMI_REQUIRES(mutex_);

  const Nanoseconds began_;
  mutable Mutex mutex_;
  std::vector<Visit> visits_ HAMI_GUARDED_BY(mutex_);  // by arrival
  std::string last_left_ HAMI_GUARDED_BY(mutex_);
};

// The visits of the call that the request belongs to; null if it has no deadline.
NodeVisits* visits_of(const Request& request) noexcept;

// DeadlineExceeded, with the nodes at which the request is; without memory for that, without them.
Error deadline_exceeded(const Request& request, Nanoseconds moment) noexcept;

}  // namespace hami
