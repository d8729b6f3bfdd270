// NodeScheduler: the queue delay of an instance, moment by moment.
#include <doctest/doctest.h>

#include <string>

#include "scheduled.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

using Index = NodeScheduler::Index;
using Action = NodeScheduler::Action;

// Two instances with `max` 4 and a queue delay of 100 by default; requests arrive and batches end as the test says.
class Two {
 public:
  explicit Two(Nanoseconds queue_delay = 100, bool shared_device = false) {
    for (int i = 0; i < 2; ++i) scheduler_.add_instance({1, 4}, false);
    scheduler_.config().batching = {BatchingMode::kGreedy, 4, 1, queue_delay};
    scheduler_.config().shared_device = shared_device;
  }

  // `count` requests arrive one by one; each time an idle instance is asked and reports its action.
  std::string come(std::size_t count, Nanoseconds moment) {
    std::string said;
    for (std::size_t i = 0; i < count; ++i) {
      scheduler_.push(request_of(1), moment, ++calls_);
      said += call(moment);
    }
    return said;
  }
  std::string ends(Index instance, Nanoseconds moment, std::size_t completed_items) {
    scheduler_.record_batch(instance, completed_items, 60, moment);
    return ask(instance, moment);
  }
  std::string ask(Index instance, Nanoseconds moment) {
    RequestChain taken, removed;
    const Action step = scheduler_.next_action(instance, moment, taken, removed);
    const std::string who = std::to_string(instance);
    if (step.what == Action::kRun) return who + " runs " + std::to_string(taken.size()) + "; ";
    return who + (step.what == Action::kWait ? " waits till " + std::to_string(step.until) : " rests") + "; ";
  }
  // `count` requests arrive one by one; no instance is asked before all have arrived.
  std::string come_together(std::size_t count, Nanoseconds moment) {
    for (std::size_t i = 0; i < count; ++i) scheduler_.push(request_of(1), moment, ++calls_);
    return call(moment);
  }
  void both_run_4() {
    CHECK_EQ(come_together(4, 0), "0 runs 4; ");
    CHECK_EQ(come_together(4, 0), "1 runs 4; ");
  }
  std::string stops(Nanoseconds moment) {
    scheduler_.stop();
    return call(moment);
  }

 private:
  std::string call(Nanoseconds moment) {
    const std::optional<Index> next = scheduler_.batch_ready() ? scheduler_.forming() : scheduler_.dispatch_idle();
    return next ? ask(*next, moment) : "";
  }

  NodeScheduler scheduler_{"n"};
  std::uint64_t calls_ = 0;
};

}  // namespace

TEST_CASE("a batch is held for callers who were answered, for at most twice the time after which they usually return") {
  Two node;
  CHECK_EQ(node.come_together(4, 0), "0 runs 4; ");
  CHECK_EQ(node.ends(0, 60, 4), "0 rests; ");  // nothing is known about their return
  CHECK_EQ(node.come_together(4, 70), "0 runs 4; ");
  CHECK_EQ(node.ends(0, 130, 4), "0 waits till 150; ");
  CHECK_EQ(node.come(3, 140), "");
  CHECK_EQ(node.ask(0, 150), "0 waits till 240; ");  // the fourth is late: now only the queue delay holds them
  CHECK_EQ(node.come(1, 160), "0 runs 4; ");
  CHECK_EQ(node.ends(0, 220, 4), "0 waits till 240; ");
  CHECK_EQ(node.come(4, 230), "0 runs 4; ");
  CHECK_EQ(node.ends(0, 290, 4), "0 waits till 310; ");
  CHECK_EQ(node.ask(0, 310), "0 rests; ");    // no caller returned
  CHECK_EQ(node.come(1, 400), "0 runs 1; ");  // and a single request does not wait again
}

TEST_CASE("an instance that becomes free leaves the waiting requests to the instance in a queue delay") {
  Two node;
  CHECK_EQ(node.come(1, 0), "0 runs 1; ");
  CHECK_EQ(node.come(1, 1), "1 runs 1; ");
  CHECK_EQ(node.come(2, 2), "");
  CHECK_EQ(node.ends(0, 60, 1), "0 waits till 102; ");
  CHECK_EQ(node.ends(1, 61, 1), "1 rests; ");
  CHECK_EQ(node.come(2, 62), "0 runs 4; ");
  CHECK_EQ(node.come(1, 63), "1 runs 1; ");
}

TEST_CASE("a queue delay without a limit never ends by itself") {
  Two node(kNever);
  CHECK_EQ(node.come(1, 1), "0 runs 1; ");
  CHECK_EQ(node.come(1, 1), "1 runs 1; ");
  CHECK_EQ(node.come(2, 2), "");
  CHECK_EQ(node.ends(0, 60, 1), "0 waits till " + std::to_string(kNever) + "; ");
  CHECK_EQ(node.come(2, 61), "0 runs 4; ");
}

TEST_CASE(
    "batches of instances that share a device start evenly spaced: by the usual time of a batch, divided by their number") {
  Two node(0, true);
  node.both_run_4();
  CHECK_EQ(node.ends(0, 60, 4), "0 rests; ");
  CHECK_EQ(node.ends(1, 61, 4), "1 rests; ");
  CHECK_EQ(node.come_together(4, 70), "1 runs 4; ");          // no other batch runs
  CHECK_EQ(node.come_together(4, 72), "0 waits till 100; ");  // 30 after 70
  CHECK_EQ(node.come_together(4, 73), "");                    // nor does a full queue end its wait
  CHECK_EQ(node.ask(0, 100), "0 runs 4; ");
  CHECK_EQ(node.ends(1, 131, 4), "1 runs 4; ");  // later than 130
}

TEST_CASE("a batch starts at once if the instances have a device each, and when the pipe closes") {
  Two without;
  without.both_run_4();
  without.ends(0, 60, 4);
  without.ends(1, 60, 4);
  CHECK_EQ(without.come_together(4, 70), "1 runs 4; ");
  CHECK_EQ(without.come_together(4, 71), "0 runs 4; ");

  Two node(0, true);
  node.both_run_4();
  node.ends(0, 60, 4);
  node.ends(1, 60, 4);
  CHECK_EQ(node.come_together(4, 70), "1 runs 4; ");
  CHECK_EQ(node.come_together(4, 72), "0 waits till 100; ");
  CHECK_EQ(node.stops(80), "0 runs 4; ");
}
