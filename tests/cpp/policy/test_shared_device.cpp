// Instances that share a device, and instances with a device each.
#include <doctest/doctest.h>

#include <string>

#include "report.hpp"
#include "shared_device.hpp"

using namespace hami;
using namespace hami::testing;
using namespace hami::testing::policy;

TEST_CASE("a device that instances share has work while callers are on their way back") {
  struct Course {
    std::size_t callers, instances, max_items;
  };
  for (const Course& course : {Course{64, 2, 32}, Course{64, 4, 16}, Course{96, 2, 32}}) {
    CAPTURE(course.callers);
    CAPTURE(course.max_items);
    SharedDevice apart(course.instances, course.max_items, {BatchingMode::kGreedy, course.max_items, 1, 3'000'000});
    apart.run(course.callers);
    CHECK_LT(apart.idle(), 0.025);
    // Without batching_timeout, and without the declaration that they share it.
    SharedDevice together(course.instances, course.max_items, {BatchingMode::kGreedy, course.max_items, 1, 0}, true,
                          false);
    together.run(course.callers);
    CHECK_GT(together.idle(), 0.04);
    CHECK_GT(apart.rate(), 1.05 * together.rate());
  }
}

TEST_CASE("so it has where more callers wait than are run, and where the sizes of batches are learned") {
  struct Course {
    BatchingMode mode;
    std::size_t callers, instances, max_items;
    double min_items;  // of what the device can do
  };
  for (const Course& course :
       {Course{BatchingMode::kGreedy, 128, 2, 32, 0.95}, Course{BatchingMode::kAdaptive, 64, 2, 32, 0.92},
        Course{BatchingMode::kAdaptive, 64, 4, 16, 0.95}, Course{BatchingMode::kAdaptive, 32, 2, 32, 0.76}}) {
    CAPTURE(course.callers);
    CAPTURE(course.max_items);
    const Nanoseconds delay = course.mode == BatchingMode::kGreedy ? 3'000'000 : 0;
    SharedDevice device(course.instances, course.max_items, {course.mode, course.max_items, 1, delay});
    device.run(course.callers);
    CHECK_GT(device.rate(), course.min_items * SharedDevice::kMostRate);
  }
}

TEST_CASE("instances with a device each do not wait for a start slot") {
  for (const BatchingMode mode : {BatchingMode::kGreedy, BatchingMode::kAdaptive}) {
    SharedDevice devices(2, 32, {mode, 32, 1, 3'000'000}, false);
    devices.run(128);
    const double each = 32 / (SharedDevice::alone(32) + 0.43);  // with what the host does for a batch
    CHECK_GT(devices.rate(), 0.98 * 2 * each);
  }
}

TEST_CASE("policy: throughput and latency on a shared device, and with a device each") {
  struct Course {
    std::size_t callers, instances, max_items;
    bool shared;
    double today;  // items per millisecond, before the rule of batch_policy
  };
  Table table("device", {"load", "instances", "devices", "before", "HAMi", "unit"});
  const auto instances = [](std::size_t count, std::size_t max) {
    return std::to_string(count) + " × " + std::to_string(max);
  };
  for (const Course& course :
       {Course{64, 2, 32, true, 12.75}, Course{64, 4, 16, true, 12.95}, Course{32, 2, 32, true, 10.41},
        Course{8, 2, 32, true, 4.91}, Course{64, 2, 32, false, 17.73}}) {
    SharedDevice device(course.instances, course.max_items, {BatchingMode::kAdaptive, course.max_items, 1, 0},
                        course.shared);
    device.run(course.callers);
    table.row({std::to_string(course.callers) + " callers", instances(course.instances, course.max_items),
               course.shared ? "one" : "one each", text(course.today), text(device.rate()), "items/ms"});
    CAPTURE(course.callers);
    CAPTURE(course.max_items);
    CAPTURE(course.shared);
    CHECK_GE(device.rate(), 0.98 * course.today);
  }
  struct Open {
    double bursts;
    std::size_t burst, instances, max_items;
    double today, at_most;  // milliseconds
  };
  for (const Open& open :
       {Open{0.3, 4, 1, 8, 2.08, 2.1}, Open{1.1, 4, 1, 8, 3.73, 3.75}, Open{9, 1, 2, 32, 3.36, 2.8}}) {
    SharedDevice device(open.instances, open.max_items, {BatchingMode::kAdaptive, open.max_items, 1, 0});
    device.run_open(open.bursts, open.burst);
    table.row({text(open.bursts, 1) + " bursts of " + std::to_string(open.burst) + " per ms",
               instances(open.instances, open.max_items), "one", text(open.today), text(device.latency()), "ms"});
    CAPTURE(open.bursts);
    CHECK_LE(device.latency(), open.at_most);
  }
  table.write();
}
