// SharedDevice: instances that share one device, under a virtual clock, with the decisions of the product.
#pragma once

#include <algorithm>
#include <map>
#include <queue>
#include <vector>

#include "product.hpp"

namespace hami::testing::policy {

// Batches that cost about what those of ResNet-50 did on an H100, in milliseconds. Concurrent batches share the device; that
// the younger gets the larger part, since its early layers are large, was seen there, how much larger is assumed. The host
// works before the device does, and callers come back one by one.
class SharedDevice {
 public:
  SharedDevice(std::size_t instances, std::size_t max_items, const BatchingConfig& policy, bool shared = true,
               bool declared = true)
      : contended_(shared) {
    for (std::size_t i = 0; i < instances; ++i) scheduler_.add_instance({1, max_items}, false);
    scheduler_.config().batching = policy;
    scheduler_.config().shared_device = shared && declared;
  }

  // Runs so many callers for three seconds.
  void run(std::size_t callers) {
    happen(0, Event::kReleased, 0, callers);
    while (now_ < kEnd) step();
  }
  // The same for requests at random moments: bursts per millisecond, and requests of a burst.
  void run_open(double bursts, std::size_t burst) {
    bursts_ = bursts;
    happen(random_.exponential() / bursts_, Event::kBurst, 0, burst);
    while (now_ < kEnd) step();
  }
  double rate() const { return static_cast<double>(done_) / (kEnd - kWarm); }   // items a millisecond
  double latency() const { return latency_ / static_cast<double>(answered_); }  // mean, in milliseconds
  double idle() const { return nothing_runs_ / (kEnd - kWarm); }                // the part of the time without work

  static constexpr double kMostRate = 13.4;
  static double alone(double items) { return 0.577 + 0.0626 * items; }

 private:
  static constexpr double kWarm = 1000, kEnd = 3000;
  static constexpr double kEarly = 1.3, kLate = 0.7;
  static constexpr double kPrepares = 0.33, kTells = 0.1, kWakes = 0.15, kCaller = 0.0103;

  struct Event {
    enum What { kStarts, kAsks, kReleased, kCame, kBurst } what;
    double at;
    NodeScheduler::Index instance;
    std::size_t items;
    double began;
    bool operator<(const Event& other) const { return at > other.at; }
  };
  struct Batch {
    NodeScheduler::Index instance;
    double items, left, began;  // left: of its time by itself
    std::vector<double> came;   // when each of its requests arrived
    bool early = true;
  };

  // Three quarters of it, and the last quarter by chance.
  double about(double duration) { return duration * (0.75 + 0.25 * random_.exponential()); }

  void happen(double at, Event::What what, NodeScheduler::Index instance, std::size_t items, double began = 0) {
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
    if (rings) return ask(timer->first);
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
    if (now_ >= kWarm)
      for (const double came : batch.came) latency_ += told - came;
    if (now_ >= kWarm) answered_ += batch.came.size();
    if (bursts_ == 0) happen(told + about(kWakes), Event::kReleased, 0, items);
  }

  void handle(const Event& event) {
    switch (event.what) {
      case Event::kStarts: {
        const auto items = static_cast<double>(event.items);
        running_.push_back({event.instance, items, alone(items), event.began, std::move(starting_[event.instance])});
        break;
      }
      case Event::kAsks:
        scheduler_.record_batch(event.instance, event.items, nanoseconds(now_ - event.began), nanoseconds(now_));
        ask(event.instance);
        break;
      case Event::kReleased:
        loop_is_free_ = std::max(loop_is_free_, now_);
        for (std::size_t i = 0; i < event.items; ++i) happen(loop_is_free_ += about(kCaller), Event::kCame, 0, 1);
        break;
      case Event::kBurst:
        for (std::size_t i = 0; i < event.items; ++i) happen(now_, Event::kCame, 0, 1);
        happen(now_ + random_.exponential() / bursts_, Event::kBurst, 0, event.items);
        break;
      case Event::kCame:
        came_.push(now_);
        scheduler_.push(request_of(1), nanoseconds(now_), ++calls_);
        if (scheduler_.batch_ready()) ask(*scheduler_.forming());
        for (std::size_t workers = scheduler_.instances_for(1); workers > 0; --workers) dispatch_idle();
        break;
    }
  }

  void ask(NodeScheduler::Index instance) {
    RequestChain taken, removed;
    const NodeScheduler::Action step = scheduler_.next_action(instance, nanoseconds(now_), taken, removed);
    timers_.erase(instance);
    if (step.what == NodeScheduler::Action::kWait) timers_[instance] = static_cast<double>(step.until) / 1e6;
    if (step.what == NodeScheduler::Action::kRun) {
      std::vector<double>& came = starting_[instance];
      for (came.clear(); came.size() < taken.size(); came_.pop()) came.push_back(came_.front());
    }
    if (step.what == NodeScheduler::Action::kRun)
      happen(now_ + about(kPrepares), Event::kStarts, instance, taken.size(), now_);
    dispatch_idle();
  }

  void dispatch_idle() {
    if (const std::optional<NodeScheduler::Index> next = scheduler_.dispatch_idle()) ask(*next);
  }

  const bool contended_;  // else each instance has one
  NodeScheduler scheduler_{"n"};
  Random random_{1};
  double now_ = 0;
  std::vector<Batch> running_;
  std::map<NodeScheduler::Index, double> timers_;
  std::priority_queue<Event> events_;
  double loop_is_free_ = 0;
  std::uint64_t calls_ = 0;
  std::size_t done_ = 0;
  double nothing_runs_ = 0;
  double bursts_ = 0;
  std::queue<double> came_;  // when each queued request arrived
  std::map<NodeScheduler::Index, std::vector<double>> starting_;
  double latency_ = 0;
  std::size_t answered_ = 0;
};

}  // namespace hami::testing::policy
