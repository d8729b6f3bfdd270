// Instances that share one device, or do not, in virtual time: how much of it callers who come back in a closed loop get.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include "scheduled.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

using Index = NodeScheduler::Index;
using Action = NodeScheduler::Action;

// Batches that cost about what those of ResNet-50 did on an H100, in milliseconds. Concurrent batches share the device; that
// the younger gets the larger part, since its early layers are large, was seen there, how much larger is assumed. The host
// works before the device does, and callers come back one by one.
class SharedDevice {
 public:
  SharedDevice(std::size_t instances, std::size_t max_items, const BatchingConfig& policy, bool shared = true)
      : contended_(shared) {
    for (std::size_t i = 0; i < instances; ++i) scheduler_.add_instance({1, max_items}, false);
    scheduler_.set_policy(policy);
  }

  // Runs so many callers for three seconds.
  void run(std::size_t callers) {
    happen(0, Event::kReleased, 0, callers);
    while (now_ < kEnd) step();
  }
  double rate() const { return static_cast<double>(done_) / (kEnd - kWarm); }  // items a millisecond
  double idle() const { return nothing_runs_ / (kEnd - kWarm); }               // the part of the time without work

  static constexpr double kMostRate = 13.4;
  static double alone(double items) { return 0.577 + 0.0626 * items; }

 private:
  static constexpr double kWarm = 1000, kEnd = 3000;
  static constexpr double kEarly = 1.3, kLate = 0.7;
  static constexpr double kPrepares = 0.33, kTells = 0.1, kWakes = 0.15, kCaller = 0.0103;

  struct Event {
    enum What { kStarts, kAsks, kReleased, kCame } what;
    double at;
    Index instance;
    std::size_t items;
    double began;
    bool operator<(const Event& other) const { return at > other.at; }
  };
  struct Batch {
    Index instance;
    double items, left, began;  // left: of its time by itself
    bool early = true;
  };

  static Nanoseconds nanoseconds(double milliseconds) { return static_cast<Nanoseconds>(milliseconds * 1e6 + 0.5); }
  // Three quarters of it, and the last quarter by chance.
  double about(double duration) { return duration * (0.75 + 0.25 * std::exponential_distribution<double>()(random_)); }

  void happen(double at, Event::What what, Index instance, std::size_t items, double began = 0) {
    events_.push({what, at, instance, items, began});
  }

  // How fast each batch goes on, 1 by itself.
  std::vector<double> speeds() const {
    double items = 0, weights = 0;
    const auto weight = [](const Batch& batch) { return batch.items * (batch.early ? kEarly : kLate); };
    for (const Batch& batch : running_) {
      items += batch.items;
      weights += weight(batch);
    }
    const double all = std::min(items / alone(items), kMostRate);
    std::vector<double> found;
    for (const Batch& batch : running_)
      found.push_back(!contended_ ? 1.0
                                  : std::min(1.0, all * weight(batch) / weights * alone(batch.items) / batch.items));
    return found;
  }

  void step() {
    const std::vector<double> speed = speeds();
    double next = events_.empty() ? kEnd : std::min(kEnd, events_.top().at);
    std::size_t ends = running_.size();  // which batch comes to an end, or to the end of its early part
    const auto to_do = [](const Batch& batch) {
      return batch.early ? batch.left - alone(batch.items) / 2 : batch.left;
    };
    for (std::size_t i = 0; i < running_.size(); ++i)
      if (const double at = now_ + std::max(0.0, to_do(running_[i])) / speed[i]; at < next) {
        next = at;
        ends = i;
      }
    const auto sooner = [](const auto& one, const auto& other) { return one.second < other.second; };
    const auto timer = std::min_element(timers_.begin(), timers_.end(), sooner);
    const bool rings = timer != timers_.end() && timer->second <= next;
    if (rings) next = std::max(now_, timer->second);
    for (std::size_t i = 0; i < running_.size(); ++i) running_[i].left -= (next - now_) * speed[i];
    if (running_.empty() && now_ >= kWarm) nothing_runs_ += next - now_;
    now_ = next;
    if (rings) return ask(timer->first, 0);
    if (ends < running_.size()) return end(ends);
    if (events_.empty() || events_.top().at > now_) return;
    const Event event = events_.top();
    events_.pop();
    handle(event);
  }

  void end(std::size_t which) {
    if (running_[which].early) {
      running_[which].early = false;
      return;
    }
    const Batch batch = running_[which];
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
    const auto items = static_cast<std::size_t>(batch.items);
    if (now_ >= kWarm) done_ += items;
    const double told = now_ + about(kTells);
    happen(told, Event::kAsks, batch.instance, items, batch.began);
    happen(told + about(kWakes), Event::kReleased, 0, items);
  }

  void handle(const Event& event) {
    switch (event.what) {
      case Event::kStarts: {
        const auto items = static_cast<double>(event.items);
        running_.push_back({event.instance, items, alone(items), event.began});
        break;
      }
      case Event::kAsks:
        scheduler_.record_batch(event.instance, event.items, nanoseconds(now_ - event.began));
        ask(event.instance, event.items);
        break;
      case Event::kReleased:
        loop_is_free_ = std::max(loop_is_free_, now_);
        for (std::size_t i = 0; i < event.items; ++i) happen(loop_is_free_ += about(kCaller), Event::kCame, 0, 1);
        break;
      case Event::kCame:
        scheduler_.push(request_of(1), nanoseconds(now_), ++calls_);
        if (scheduler_.batch_ready()) ask(*scheduler_.forming(), 0);
        for (std::size_t hands = scheduler_.instances_for(1); hands > 0; --hands) dispatch_idle();
        break;
    }
  }

  void ask(Index instance, std::size_t completed_items) {
    RequestChain taken, removed;
    const Action step = scheduler_.next_action(instance, nanoseconds(now_), completed_items, taken, removed);
    timers_.erase(instance);
    if (step.what == Action::kWait) timers_[instance] = static_cast<double>(step.until) / 1e6;
    if (step.what == Action::kRun) happen(now_ + about(kPrepares), Event::kStarts, instance, taken.size(), now_);
    dispatch_idle();
  }

  void dispatch_idle() {
    if (const std::optional<Index> next = scheduler_.dispatch_idle()) ask(*next, 0);
  }

  const bool contended_;  // else each instance has one
  NodeScheduler scheduler_{"n"};
  std::mt19937 random_{1};
  double now_ = 0;
  std::vector<Batch> running_;
  std::map<Index, double> timers_;
  std::priority_queue<Event> events_;
  double loop_is_free_ = 0;
  std::uint64_t calls_ = 0;
  std::size_t done_ = 0;
  double nothing_runs_ = 0;
};

}  // namespace

TEST_CASE("a device that instances share has work while callers are on their way back") {
  struct Course {
    std::size_t callers, instances, max_items;
  };
  for (const Course& course : {Course{64, 2, 32}, Course{64, 4, 16}, Course{96, 2, 32}}) {
    CAPTURE(course.callers);
    CAPTURE(course.max_items);
    SharedDevice apart(course.instances, course.max_items, {BatchingMode::kGreedy, course.max_items, 1, 3'000'000});
    apart.run(course.callers);
    CHECK_LT(apart.idle(), 0.015);
    SharedDevice together(course.instances, course.max_items, {BatchingMode::kGreedy, course.max_items, 1, 0});
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
    const Nanoseconds company = course.mode == BatchingMode::kGreedy ? 3'000'000 : 0;
    SharedDevice device(course.instances, course.max_items, {course.mode, course.max_items, 1, company});
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
