// A node, or several in a row, under more load than they can take, under a virtual clock: requests with deadlines arrive at random moments, and the decision
// code of the product chooses. Times are in milliseconds.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../scheduled.hpp"
#include "product.hpp"
#include "schedule/time_after.hpp"

namespace hami::testing::policy {

struct Overload {
  std::function<double(Random&, double now)> rate;  // requests per ms
  std::vector<double> timeouts;                     // each request has one of them, by chance; infinite: no deadline
  std::function<double(std::size_t items, Random&, double now)> service;
  std::vector<std::function<double(std::size_t items, Random&, double now)>>
      next;  // of the nodes after it, one after the other
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
  std::vector<double> order;                   // when the requests arrived that ended, in the order in which they did
  std::size_t patient = 0, patient_ended = 0;  // requests without a deadline, and those of them that ended
  double longest = 0;                          // from an arrival to its end
};

class OverloadedNode {
 public:
  explicit OverloadedNode(const Overload& load) : load_(load), random_(load.seed), chance_(load.seed + 100) {
    GraphSpec spec(1 + load.next.size());
    for (std::size_t i = 0; i < spec.size(); ++i) {
      spec[i].name = std::to_string(i);
      if (i > 0) spec[i - 1].next = {spec[i].name};
    }
    graph_.emplace(spec);
    std::vector<const SharedTime*> times;
    for (std::size_t i = 0; i < spec.size(); ++i) {
      nodes_.push_back(std::make_unique<Node>(spec[i].name));
      nodes_[i]->service = i == 0 ? load.service : load.next[i - 1];
      nodes_[i]->sink = Ref<CompletionSink>(make_counted<Way>(*this, i).get());
      nodes_[i]->timers.resize(load.instances);
      NodeScheduler& scheduler = nodes_[i]->scheduler;
      for (std::size_t instance = 0; instance < load.instances; ++instance)
        scheduler.add_instance({1, load.max}, false);
      scheduler.config().batching = {load.mode, load.max, 1, 0};
      scheduler.queue().set_aging(nanoseconds(2000));
      times.push_back(&nodes_[i]->learned);
    }
    times_.emplace(*graph_, std::move(times));
    figures_.of_caller.resize(load.callers);
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
  class Way final : public CompletionSink {
   public:
    Way(const OverloadedNode& nodes, std::size_t node) : nodes_(nodes), node_(node) {}
    Parker* complete(Request* const*, std::size_t) noexcept override { return nullptr; }
    LearnedTime time_after(const Request&, Nanoseconds moment) const noexcept override {
      return nodes_.times_->after(node_, moment);
    }

   private:
    const OverloadedNode& nodes_;
    const std::size_t node_;
  };
  struct Node {
    explicit Node(std::string name) : scheduler(std::move(name)) {}
    NodeScheduler scheduler;
    SharedTime learned;
    std::function<double(std::size_t items, Random&, double now)> service;
    Ref<CompletionSink> sink;
    std::vector<std::uint64_t> timers;
  };

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
    request->trace_id = static_cast<std::uint64_t>(now_);  // when it arrived
    const double timeout = load_.timeouts[random_.below(load_.timeouts.size())];
    request->deadline = timeout < policy::kNever ? now_ + nanoseconds(timeout) : hami::kNever;
    request->priority = load_.priority;
    if (measured()) {
      figures_.arrivals.push_back(ms());
      figures_.timeouts.push_back(timeout);
      figures_.patient += request->deadline == hami::kNever;
    }
    if (is_late(ms())) ++late_arrivals_;
    ++calls_;
    enter(0, std::move(request));
  }
  void enter(std::size_t node, Ref<Request> request) {
    NodeScheduler& scheduler = nodes_[node]->scheduler;
    request->sink = nodes_[node]->sink;
    if (scheduler.fail_if_late(*request, now_)) return;
    scheduler.push(std::move(request), now_, ++entries_);
    if (scheduler.batch_ready()) work(node, *scheduler.forming());
    dispatch(node);
  }
  bool is_late(double arrived) const {
    const double until = load_.learns + load_.measures - load_.timeouts.back();
    return arrived >= until - 1000 && arrived < until;
  }
  void dispatch(std::size_t node) {
    while (const auto instance = nodes_[node]->scheduler.dispatch_idle()) work(node, *instance);
  }
  void work(std::size_t place, std::size_t instance) {
    Node& node = *nodes_[place];
    RequestChain taken, removed;
    ++node.timers[instance];
    NodeScheduler::Action step{};
    do step = node.scheduler.next_action(instance, now_, taken, removed);
    while (all_of(removed), step.what == NodeScheduler::Action::kAgain);
    if (step.what == NodeScheduler::Action::kWait)
      at(step.until, [this, &node, place, instance, wait = node.timers[instance]] {
        if (wait == node.timers[instance]) work(place, instance), dispatch(place);
      });
    if (step.what != NodeScheduler::Action::kRun) return;
    std::vector<Ref<Request>> batch = all_of(taken);
    const Nanoseconds took = nanoseconds(node.service(batch.size(), chance_, ms()));
    at(now_ + took, [this, &node, place, instance, took, batch = std::move(batch)] {
      for (const Ref<Request>& request : batch) {
        if (place + 1 < nodes_.size())
          enter(place + 1, request);
        else
          end(*request);
      }
      node.scheduler.record_batch(instance, batch.size(), took, now_);
      node.learned.set(node.scheduler.estimate(batch.size(), now_));
      work(place, instance);
      dispatch(place);
    });
  }
  void end(const Request& request) {
    if (!measured()) return;
    const double arrived = static_cast<double>(request.trace_id) / 1e6;
    figures_.ran += 1;
    figures_.patient_ended += request.deadline == hami::kNever && arrived >= load_.learns;
    figures_.order.push_back(arrived);
    figures_.longest = std::max(figures_.longest, ms() - arrived);
    if (now_ > request.deadline) return;
    figures_.useful += 1;
    figures_.of_caller[request.index] += 1;
    if (is_late(arrived)) ++in_time_of_late_;
  }

  const Overload load_;
  Random random_, chance_;
  std::optional<Graph> graph_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::optional<GraphTimes> times_;
  std::multimap<Nanoseconds, std::function<void()>> events_;
  Nanoseconds now_ = 0;
  std::uint64_t calls_ = 0, entries_ = 0;
  double late_arrivals_ = 0, in_time_of_late_ = 0;
  OverloadFigures figures_;
};

}  // namespace hami::testing::policy
