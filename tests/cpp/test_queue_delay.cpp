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
  explicit Two(Nanoseconds queue_delay = 100) {
    for (int i = 0; i < 2; ++i) scheduler_.add_instance({1, 4}, false);
    scheduler_.set_policy({BatchingMode::kGreedy, 4, 1, queue_delay});
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
    scheduler_.record_batch(instance, completed_items, 60);
    return ask(instance, moment, completed_items);
  }
  std::string ask(Index instance, Nanoseconds moment, std::size_t completed_items = 0) {
    RequestChain taken, removed;
    const Action step = scheduler_.next_action(instance, moment, completed_items, taken, removed);
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
    return next ? ask(*next, moment, 0) : "";
  }

  NodeScheduler scheduler_{"n"};
  std::uint64_t calls_ = 0;
};

}  // namespace

TEST_CASE(
    "the first of those who were released together waits for the others, for as long as their batch took at most") {
  Two node;
  CHECK_EQ(node.come(2, 0), "0 runs 1; 1 runs 1; ");
  CHECK_EQ(node.come(4, 10), "");
  CHECK_EQ(node.ends(0, 60, 1), "0 runs 4; ");
  CHECK_EQ(node.ends(1, 61, 1), "1 rests; ");
  CHECK_EQ(node.ends(0, 120, 4), "0 rests; ");
  CHECK_EQ(node.come(4, 121), "0 waits till 180; 0 runs 4; ");
  CHECK_EQ(node.ends(0, 200, 4), "0 rests; ");
  CHECK_EQ(node.come(1, 201), "0 waits till 260; ");
  CHECK_EQ(node.ask(0, 260), "0 runs 1; ");  // the others do not come
  CHECK_EQ(node.ends(0, 320, 1), "0 rests; ");
  CHECK_EQ(node.come(1, 321), "0 runs 1; ");  // and a lone request does not wait again
}

TEST_CASE(
    "those who were just released are waited for also where the first has waited longer than that, if they come") {
  Two node;
  CHECK_EQ(node.come(2, 0), "0 runs 1; 1 runs 1; ");
  CHECK_EQ(node.come(8, 10), "");
  CHECK_EQ(node.ends(0, 60, 1), "0 runs 4; ");
  CHECK_EQ(node.ends(1, 61, 1), "1 waits till 64; ");
  CHECK_EQ(node.ask(1, 64), "1 runs 4; ");
  CHECK_EQ(node.come(1, 65), "");
  CHECK_EQ(node.ends(0, 200, 4), "0 waits till 260; ");
  CHECK_EQ(node.come(3, 210), "0 runs 4; ");
  CHECK_EQ(node.come(2, 211), "");
  CHECK_EQ(node.ends(1, 400, 4), "1 waits till 460; ");
  CHECK_EQ(node.ends(0, 450, 4), "0 rests; ");
  CHECK_EQ(node.ask(1, 460), "1 runs 2; ");  // no request arrived: the next batches have no such delay
  CHECK_EQ(node.come(2, 461), "0 waits till 510; ");
  CHECK_EQ(node.ask(0, 510), "0 waits till 561; ");
  CHECK_EQ(node.ask(0, 561), "0 runs 2; ");
  CHECK_EQ(node.come(2, 562), "");
  CHECK_EQ(node.ends(1, 700, 2), "1 runs 2; ");
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

TEST_CASE("full batches of returning callers start staggered, by eight times their return time, evenly at most") {
  Two node;
  node.both_run_4();
  CHECK_EQ(node.ends(0, 200, 4), "0 rests; ");
  CHECK_EQ(node.ends(1, 201, 4), "1 rests; ");
  CHECK_EQ(node.come_together(4, 202), "1 runs 4; ");
  CHECK_EQ(node.come_together(4, 203), "0 waits till 226; ");  // 3 after its last batch
  CHECK_EQ(node.come_together(4, 220), "");
  CHECK_EQ(node.ends(1, 221, 4), "1 rests; ");
  CHECK_EQ(node.ask(0, 226), "0 runs 4; ");
  CHECK_EQ(node.ask(1, 226), "1 waits till 256; ");  // half of the 60 that a batch takes and the 1 that they were away

  CHECK_EQ(node.ask(1, 256), "1 runs 4; ");
}

TEST_CASE("evenly is a part of the mean time from one batch to the next, without waits and without longer pauses") {
  Two node;
  node.both_run_4();
  Nanoseconds moment = 200;
  for (int round = 0; round < 15; ++round) {  // fewer batches than are run until it is tried to begin at once
    node.ends(0, moment, 4);
    node.ends(1, moment, 4);
    CHECK_EQ(node.come_together(4, moment + 6), "1 runs 4; ");
    CHECK_EQ(node.come_together(4, moment + 6),
             "0 waits till " + std::to_string(moment + 6 + 33) + "; ");  // half of 60 and 6
    node.ask(0, moment + 6 + 33);
    moment += 200;
  }
  node.ends(0, moment, 4);
  node.ends(1, moment, 4);
  CHECK_EQ(node.come_together(4, moment + 50), "1 runs 4; ");  // of the 50 count 20, a third of 60
  CHECK_EQ(node.come_together(4, moment + 50), "0 waits till " + std::to_string(moment + 50 + 34) + "; ");
}

TEST_CASE(
    "where more waits than is run full batches wait for a sixteenth of their time at most, and after a pause not at all") {
  Two node;
  node.both_run_4();
  CHECK_EQ(node.come_together(8, 100), "");
  CHECK_EQ(node.ends(0, 200, 4), "0 runs 4; ");
  CHECK_EQ(node.ends(1, 201, 4), "1 waits till 204; ");
  CHECK_EQ(node.ask(1, 204), "1 runs 4; ");
  CHECK_EQ(node.ends(0, 300, 4), "0 rests; ");
  CHECK_EQ(node.ends(1, 301, 4), "1 rests; ");
  CHECK_EQ(node.come_together(4, 400), "1 runs 4; ");
  CHECK_EQ(node.come_together(4, 401), "0 runs 4; ");
}

TEST_CASE("full batches begin at once without batching_timeout, and when the pipe closes") {
  Two without(0);
  without.both_run_4();
  without.ends(0, 200, 4);
  without.ends(1, 201, 4);
  CHECK_EQ(without.come_together(4, 211), "1 runs 4; ");
  CHECK_EQ(without.come_together(4, 212), "0 runs 4; ");

  Two node;
  node.both_run_4();
  node.ends(0, 200, 4);
  node.ends(1, 201, 4);
  CHECK_EQ(node.come_together(4, 211), "1 runs 4; ");
  CHECK_EQ(node.come_together(4, 212), "0 waits till 246; ");
  CHECK_EQ(node.stops(213), "0 runs 4; ");
}
