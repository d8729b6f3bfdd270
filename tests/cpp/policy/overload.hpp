// A node under more load than it can take, under a virtual clock: requests with deadlines arrive at random moments, and the decision
// code of the product chooses. Times are in milliseconds.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "../scheduled.hpp"
#include "product.hpp"

namespace hami::testing::policy {

struct Overload {
  std::function<double(Random&, double now)> rate;  // requests per ms
  std::vector<double> timeouts;                     // each request has one of them, by chance
  std::function<double(std::size_t items, Random&, double now)> service;
  std::size_t instances = 1, max = 1;
  double measures = 200'000, learns = 2'000;
  std::size_t callers = 2;  // they ask alternately, or at the same time
  bool together = false;
  std::uint8_t priority = 0;
  BatchingMode mode = BatchingMode::kAdaptive;
  unsigned seed = 1;
};

struct OverloadFigures {
  double useful = 0;  // requests per ms that ended in time
  double ran = 0;     // requests per ms that ran
  std::vector<double> of_caller;
  double after = 0;  // of the requests whose timeouts are over in the last second: the part that ended in time
  std::vector<double> arrivals;  // all of them, and their timeouts, for what is best possible
  std::vector<double> timeouts;
};

class OverloadedNode {
 public:
  explicit OverloadedNode(const Overload& load) : load_(load), random_(load.seed), chance_(load.seed + 100) {
    for (std::size_t i = 0; i < load.instances; ++i) scheduler_.add_instance({1, load.max}, false);
    scheduler_.config().batching = {load.mode, load.max, 1, 0};
    scheduler_.queue().set_aging(nanoseconds(2000));
    figures_.of_caller.resize(load.callers);
    timers_.resize(load.instances);
  }
  OverloadFigures run() {
    next_arrival();
    const Nanoseconds end = nanoseconds(load_.learns + load_.measures);
    while (!events_.empty() && events_.begin()->first < end) {
      const auto event = events_.extract(events_.begin());
      now_ = event.key();
      event.mapped()();
    }
    figures_.useful /= load_.measures;
    figures_.ran /= load_.measures;
    figures_.after = late_arrivals_ > 0 ? in_time_of_late_ / late_arrivals_ : 0;
    return figures_;
  }

 private:
  double ms() const { return static_cast<double>(now_) / 1e6; }
  bool measured() const { return ms() >= load_.learns; }
  void at(Nanoseconds moment, std::function<void()> happens) { events_.emplace(moment, std::move(happens)); }
  void next_arrival() {
    const double gap = random_.exponential() / load_.rate(random_, ms());
    at(now_ + nanoseconds(gap), [this] {
      for (std::size_t i = 0; i < (load_.together ? load_.callers : 1); ++i) arrive();
      next_arrival();
    });
  }
  void arrive() {
    Ref<Request> request = request_of(1);
    request->index = calls_ % load_.callers;
    const double timeout = load_.timeouts[random_.below(load_.timeouts.size())];
    request->deadline = now_ + nanoseconds(timeout);
    request->priority = load_.priority;
    if (measured()) {
      figures_.arrivals.push_back(ms());
      figures_.timeouts.push_back(timeout);
    }
    if (is_late(ms())) ++late_arrivals_;
    ++calls_;
    if (scheduler_.fail_if_late(*request, now_)) return;
    scheduler_.push(std::move(request), now_, calls_);
    if (scheduler_.batch_ready()) work(*scheduler_.forming());
    dispatch();
  }
  bool is_late(double arrived) const {
    const double until = load_.learns + load_.measures - load_.timeouts.back();
    return arrived >= until - 1000 && arrived < until;
  }
  void dispatch() {
    while (const auto instance = scheduler_.dispatch_idle()) work(*instance);
  }
  void work(std::size_t instance) {
    RequestChain taken, removed;
    ++timers_[instance];
    NodeScheduler::Action step{};
    do step = scheduler_.next_action(instance, now_, taken, removed);
    while (all_of(removed), step.what == NodeScheduler::Action::kAgain);
    if (step.what == NodeScheduler::Action::kWait)
      at(step.until, [this, instance, wait = timers_[instance]] {
        if (wait == timers_[instance]) work(instance), dispatch();
      });
    if (step.what != NodeScheduler::Action::kRun) return;
    std::vector<Ref<Request>> batch = all_of(taken);
    const Nanoseconds took = nanoseconds(load_.service(batch.size(), chance_, ms()));
    at(now_ + took, [this, instance, took, batch = std::move(batch)] {
      for (const Ref<Request>& request : batch) {
        if (!measured()) continue;
        figures_.ran += 1;
        if (now_ > request->deadline) continue;
        figures_.useful += 1;
        figures_.of_caller[request->index] += 1;
        if (is_late(static_cast<double>(request->queued_at) / 1e6)) ++in_time_of_late_;
      }
      scheduler_.record_batch(instance, batch.size(), took, now_);
      work(instance);
      dispatch();
    });
  }

  const Overload load_;
  Random random_, chance_;
  NodeScheduler scheduler_{"n"};
  std::multimap<Nanoseconds, std::function<void()>> events_;
  std::vector<std::uint64_t> timers_;
  Nanoseconds now_ = 0;
  std::uint64_t calls_ = 0;
  double late_arrivals_ = 0, in_time_of_late_ = 0;
  OverloadFigures figures_;
};

}  // namespace hami::testing::policy
