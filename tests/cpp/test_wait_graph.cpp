// The wait graph without pipes: which wait is refused, and when, while the threads of two nodes wait for each other.
#include <doctest/doctest.h>

#include <string>

#include "request/execution_frame.hpp"
#include "request/wait_graph.hpp"

using namespace hami;

namespace {

// A node with one instance, whose queue the test fills.
class Place final : public WaitLocation {
 public:
  explicit Place(std::string name, bool is_full = true) : full(is_full), name_(std::move(name)) {}

  const std::string& location_name() const noexcept override { return name_; }
  const std::string& pipe_name() const noexcept override { return pipe_; }
  Blocked blocked(const std::vector<std::size_t>&, Nanoseconds) override { return {{}, full}; }
  void wake_capacity_waits() noexcept override { ++woken; }

  bool full;
  int woken = 0;

 private:
  static inline const std::string pipe_ = "p";
  std::string name_;
};

const Batch kNoBatch(nullptr, 0);

// Throws the error of a wait for capacity that another one has had refused.
std::string refusal_of(BlockedScope& wait) {
  try {
    wait.leave();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kReentrantCall);
    return error.message();
  }
  return "";
}

bool is_refused_at_once(Place& full, Nanoseconds until, bool gives_way) {
  try {
    const BlockedScope wait(full, until, gives_way);
    return false;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kReentrantCall;
  }
}

}  // namespace

TEST_CASE("a request between two nodes that completes a deadlock cycle has a nested submission refused at once") {
  Place a("a"), b("b");
  ExecutionFrame inside_b(b, 0, kNoBatch);
  BlockedScope nested(a, kNever, true);
  AdoptFrame other_thread(nullptr);
  ExecutionFrame inside_a(a, 0, kNoBatch);
  BlockedScope hop(b, kNever, false);
  CHECK(nested.refused());
  CHECK_EQ(a.woken, 1);
  CHECK_FALSE(hop.refused());
  CHECK_EQ(refusal_of(nested).find("waiting for capacity in the queue of node \"a\" would deadlock: a -> b -> a"), 0u);
  CHECK_EQ(refusal_of(hop), "");
}

TEST_CASE("a request between two nodes is refused at once if nothing in its deadlock cycle gives way") {
  Place a("a"), b("b");
  ExecutionFrame inside_b(b, 0, kNoBatch);
  BlockedScope first(a, kNever, false);
  AdoptFrame other_thread(nullptr);
  ExecutionFrame inside_a(a, 0, kNoBatch);
  CHECK(is_refused_at_once(b, kNever, false));
  CHECK_FALSE(first.refused());
}

TEST_CASE("a queue that becomes full again completes a deadlock cycle of waits that began before") {
  Place a("a", false), b("b");
  ExecutionFrame inside_b(b, 0, kNoBatch);
  BlockedScope nested(a, kNever, true);
  AdoptFrame other_thread(nullptr);
  ExecutionFrame inside_a(a, 0, kNoBatch);
  const BlockedScope hop(b, kNever, false);
  CHECK_FALSE(nested.refused());
  a.full = true;
  WaitGraphLock().check_full(a);
  CHECK(nested.refused());
  CHECK_FALSE(hop.refused());
}

TEST_CASE("of the waits in a deadlock cycle the one with the least time is refused, even if another one gives way") {
  Place a("a"), b("b");
  ExecutionFrame inside_b(b, 0, kNoBatch);
  BlockedScope nested(a, 200, true);
  AdoptFrame other_thread(nullptr);
  ExecutionFrame inside_a(a, 0, kNoBatch);
  CHECK(is_refused_at_once(b, 100, false));
  CHECK_FALSE(nested.refused());
  const BlockedScope longer(b, 300, false);
  CHECK(nested.refused());
}

TEST_CASE("a refused wait is no longer part of a deadlock cycle") {
  Place a("a"), b("b");
  ExecutionFrame inside_b(b, 0, kNoBatch);
  BlockedScope nested(a, kNever, true);
  AdoptFrame other_thread(nullptr);
  ExecutionFrame inside_a(a, 0, kNoBatch);
  const BlockedScope hop(b, kNever, false);
  CHECK(nested.refused());
  AdoptFrame third_thread(nullptr);
  ExecutionFrame also_inside_a(a, 1, kNoBatch);
  CHECK_FALSE(is_refused_at_once(b, kNever, true));
}

TEST_CASE("no wait depends on a thread for a request that it has completed") {
  Place a("a"), b("b");
  ExecutionFrame inside_b(b, 0, kNoBatch);
  BlockedScope call(WaitToken::Release::kEarly);
  const Ref<Request> request = make_counted<Request>();
  request->wait_token = Ref<Counted>(call.token().get());
  Request* list[] = {request.get()};
  AdoptFrame other_thread(nullptr);
  ExecutionFrame inside_a(a, 0, Batch(list, 1));
  inside_a.begin_completion();
  CHECK(is_refused_at_once(b, kNever, true));  // the call waits for the request, which this thread has to complete
  ExecutionFrame::passed_on(Batch(list, 1));
  CHECK_FALSE(is_refused_at_once(b, kNever, true));  // the call waits for another request
}
