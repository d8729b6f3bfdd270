// instance_num = "auto": how many of the instances run at a time is learned from the time for which the node has work.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "report.hpp"
#include "shared_cores.hpp"

using namespace hami;
using namespace hami::testing;
using namespace hami::testing::policy;

namespace {

constexpr std::size_t kInstances = 8;
const BatchingConfig kOneByOne{BatchingMode::kAdaptive, 1, 1, 0};
const BatchingConfig kAuto{BatchingMode::kAdaptive, hami::policy::kAutoMax, 1, 0, true};

SharedCores::Machine machine_of(double cores, double crowded = 0) {
  return {cores, crowded, [](double items) { return 2 * items; }};
}

// Long enough for the largest number of instances to be tried.
constexpr std::size_t kLearns = 8'000, kMeasures = 20'000;

double rate_of(const SharedCores::Machine& machine, std::size_t instances, const BatchingConfig& policy,
               std::size_t callers, bool is_auto) {
  SharedCores course(machine, instances, policy, is_auto);
  course.run(callers, kLearns);
  course.run(callers, kMeasures);
  return course.rate();
}

}  // namespace

TEST_CASE("policy: as many instances run as the cores are worth") {
  Table table("instances",
              {"batch time", "cores", "callers", "instances in use", "best fixed, items/ms", "HAMi, items/ms", "%"});
  struct Batch {
    const char* name;
    std::function<double(double)> service;
    BatchingConfig policy;
  };
  const Batch batches[] = {{"2 ms an item, one by one", [](double items) { return 2 * items; }, kOneByOne},
                           {"2 ms an item", [](double items) { return 2 * items; }, kAuto},
                           {"4 + 0.1 ms an item", [](double items) { return 4 + 0.1 * items; }, kAuto}};
  for (const Batch& batch : batches)
    for (const double cores : {1, 2, 4})
      for (const std::size_t callers : {1, 4, 64}) {
        const SharedCores::Machine machine{cores, 0.02, batch.service};
        double best = 0;
        for (const std::size_t instances : {1, 2, 4, 8})
          best = std::max(best, rate_of(machine, instances, batch.policy, callers, false));
        SharedCores course(machine, kInstances, batch.policy, true);
        course.run(callers, kLearns);
        course.run(callers, kMeasures);
        CAPTURE(batch.name);
        CAPTURE(cores);
        CAPTURE(callers);
        CHECK_GE(course.rate(), 0.95 * best);
        table.row({batch.name, text(cores, 0), std::to_string(callers), std::to_string(course.instances_in_use()),
                   text(best), text(course.rate()), text(100 * course.rate() / best, 1)});
      }
  table.write();
}

TEST_CASE("a node uses one instance at first, and further ones only for requests that would wait") {
  SharedCores course(machine_of(8), kInstances, kOneByOne, true);
  CHECK_EQ(course.instances_in_use(), 1U);
  course.run(1, 5'000);
  CHECK_EQ(course.share_of(1), 1.0);
  CHECK_EQ(course.instances_in_use(), 1U);
}

TEST_CASE("a second instance that pays is found within two comparisons") {
  SharedCores course(machine_of(2), 2, kOneByOne, true);
  course.run(16, 24 * 3 + 48 * 2 + 1);  // three rounds with one instance, two with both
  course.run(16, 240);
  CHECK_GT(course.share_of(2), 0.99);
}

TEST_CASE("instances that do not pay run for a few batches only") {
  SharedCores course(machine_of(1, 0.1), kInstances, kOneByOne, true);
  course.run(16, kLearns);
  course.run(16, 50'000);
  CHECK_GT(course.share_of(1), 0.95);
  CHECK_LT(course.share_of(1), 1.0);  // they are tried again now and then
}

TEST_CASE("a number of instances that was found stays") {
  SharedCores course(machine_of(4, 0.1), kInstances, kOneByOne, true);
  course.run(64, kLearns);
  std::size_t four = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    course.run(64, 100);
    four += course.instances_in_use() == 4;
  }
  CHECK_GT(four, 475U);
}

TEST_CASE("a machine that becomes busy gets fewer batches at a time") {
  SharedCores course(machine_of(8), kInstances, kOneByOne, true);
  course.run(64, kLearns);
  CHECK_EQ(course.instances_in_use(), 8U);
  course.set_machine(machine_of(2, 0.1));
  course.run(64, 300'000);
  CHECK_EQ(course.instances_in_use(), 2U);
}

TEST_CASE("requests at random moments wait less with more instances") {
  SharedCores one(machine_of(4), 1, kOneByOne, false), several(machine_of(4), kInstances, kOneByOne, true);
  for (SharedCores* course : {&one, &several}) {
    course->run_open(0.4, kLearns);  // 0.8 of what one instance can do
    course->run_open(0.4, kMeasures);
  }
  CHECK_LT(several.latency(), 0.6 * one.latency());
}

TEST_CASE("the requests of one call are shared by the instances") {
  SharedCores one(machine_of(4), 1, kOneByOne, false), several(machine_of(4), kInstances, kOneByOne, true);
  for (SharedCores* course : {&one, &several}) {
    course->run_open(1e-6, kLearns, 16);  // never two calls at a time
    course->run_open(1e-6, kMeasures, 16);
  }
  CHECK_LT(several.latency(), 0.4 * one.latency());
}

TEST_CASE("with reserve, a normal request may always run") {
  NodeScheduler scheduler("n");
  for (int i = 0; i < 4; ++i) scheduler.add_instance({1, 1}, false);
  scheduler.config().reserve = 2;
  scheduler.config().auto_instances = true;
  CHECK_EQ(scheduler.instances_in_use(), 3U);
  scheduler.push(request_of(1), 1, 1);
  CHECK_EQ(scheduler.instances_for(1), 1U);
}

TEST_CASE("a node for which backends wait uses all instances") {
  NodeScheduler scheduler("n");
  for (int i = 0; i < 4; ++i) scheduler.add_instance({1, 1}, false);
  scheduler.config().auto_instances = true;
  CHECK_EQ(scheduler.instances_in_use(), 1U);
  const Ref<Request> request = request_of(1);
  scheduler.begin_arrival(*request);
  CHECK_EQ(scheduler.instances_in_use(), 4U);
}
