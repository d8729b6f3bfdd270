// SharedCores: instances that share the cores of a machine, under a virtual clock, with the decisions of the product.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "product.hpp"

namespace hami::testing::policy {

// Batches that run at the same time have a core each. More batches than cores share them evenly, and each further one makes all of
// them slower by the part `crowded`. Times are in milliseconds.
class SharedCores {
 public:
  struct Machine {
    double cores = 1, crowded = 0;
    std::function<double(double items)> service;  // time of a batch by itself
  };
  SharedCores(Machine machine, std::size_t instances, const BatchingConfig& policy, bool is_auto)
      : machine_(std::move(machine)) {
    for (std::size_t i = 0; i < instances; ++i) scheduler_.add_instance({1, policy.max}, false);
    scheduler_.config().batching = policy;
    if (is_auto) scheduler_.config().auto_instances = true;
  }

  // So many callers, which return after 0.01 ms, for so many batches. May be called again with other callers.
  void run(std::size_t callers, std::size_t batches) {
    for (; callers_ < callers; ++callers_) arrivals_.push(now_ + 0.01);
    begin(batches);
  }
  // Calls of so many requests at random moments, so many calls per millisecond.
  void run_open(double rate, std::size_t batches, std::size_t requests = 1) {
    open_rate_ = rate;
    call_size_ = requests;
    if (arrivals_.empty()) arrivals_.push(now_ + random_.exponential() / rate);
    begin(batches);
  }
  void set_machine(Machine machine) { machine_ = std::move(machine); }

  // Of the last run.
  double rate() const { return items_ / (now_ - began_); }  // items per millisecond
  double latency() const { return latency_ / items_; }      // mean, in milliseconds
  // The part of the batches that started while so many ran, themselves included.
  double share_of(std::size_t running) const {
    const auto found = started_.find(running);
    return found == started_.end() ? 0 : static_cast<double>(found->second) / static_cast<double>(batches_);
  }
  std::size_t instances_in_use() const { return scheduler_.instances_in_use(); }

 private:
  struct Running {
    NodeScheduler::Index instance;
    double left, began;           // left: of its time by itself
    std::vector<double> arrived;  // of each of its requests
  };

  void begin(std::size_t batches) {
    began_ = now_;
    items_ = latency_ = 0;
    batches_ = 0;
    started_.clear();
    while (batches_ < batches) step();
  }

  double speed() const {
    const double running = static_cast<double>(running_.size());
    return running <= machine_.cores ? 1
                                     : machine_.cores / running / (1 + machine_.crowded * (running - machine_.cores));
  }

  void step() {
    const auto sooner = [](const Running& one, const Running& other) { return one.left < other.left; };
    const auto first = std::min_element(running_.begin(), running_.end(), sooner);
    const auto timer = std::min_element(timers_.begin(), timers_.end(),
                                        [](const auto& one, const auto& other) { return one.second < other.second; });
    const double ends = first == running_.end() ? kNever : now_ + first->left / speed();
    const double arrives = arrivals_.empty() ? kNever : arrivals_.top();
    const double rings = timer == timers_.end() ? kNever : std::max(now_, timer->second);
    const double next = std::min({ends, arrives, rings});
    for (Running& batch : running_) batch.left -= (next - now_) * speed();
    now_ = next;
    if (next == ends) {
      end(first);
    } else if (next == arrives) {
      arrivals_.pop();
      if (open_rate_ > 0) arrivals_.push(now_ + random_.exponential() / open_rate_);
      arrive();
    } else {
      ask(timer->first);
    }
  }

  void arrive() {
    ++calls_;
    for (std::size_t i = 0; i < call_size_; ++i) {
      waiting_.push(now_);
      scheduler_.push(request_of(1), nanoseconds(now_), calls_);
    }
    if (scheduler_.batch_ready()) ask(*scheduler_.forming());
    for (std::size_t workers = scheduler_.instances_for(call_size_); workers > 0; --workers) dispatch_idle();
  }

  void end(std::vector<Running>::iterator which) {
    const Running batch = *which;
    running_.erase(which);
    const std::size_t items = batch.arrived.size();
    items_ += static_cast<double>(items);
    for (const double arrived : batch.arrived) {
      latency_ += now_ - arrived;
      if (open_rate_ == 0) arrivals_.push(now_ + 0.01);
    }
    ++batches_;
    scheduler_.record_batch(batch.instance, items, nanoseconds(now_ - batch.began), nanoseconds(now_));
    ask(batch.instance);
  }

  void ask(NodeScheduler::Index instance) {
    RequestChain taken, removed;
    const NodeScheduler::Action step = scheduler_.next_action(instance, nanoseconds(now_), taken, removed);
    timers_.erase(instance);
    if (step.what == NodeScheduler::Action::kWait) timers_[instance] = static_cast<double>(step.until) / 1e6;
    if (step.what == NodeScheduler::Action::kRun) {
      Running batch{instance, machine_.service(static_cast<double>(taken.size())), now_, {}};
      for (; batch.arrived.size() < taken.size(); waiting_.pop()) batch.arrived.push_back(waiting_.front());
      running_.push_back(std::move(batch));
      ++started_[running_.size()];
    }
    dispatch_idle();
  }

  void dispatch_idle() {
    if (const std::optional<NodeScheduler::Index> next = scheduler_.dispatch_idle()) ask(*next);
  }

  Machine machine_;
  NodeScheduler scheduler_{"n"};
  Random random_{1};
  double now_ = 0, began_ = 0, open_rate_ = 0;
  std::size_t callers_ = 0, batches_ = 0, call_size_ = 1;
  std::uint64_t calls_ = 0;
  double items_ = 0, latency_ = 0;
  std::priority_queue<double, std::vector<double>, std::greater<double>> arrivals_;
  std::queue<double> waiting_;  // when each queued request arrived
  std::vector<Running> running_;
  std::map<NodeScheduler::Index, double> timers_;
  std::map<std::size_t, std::size_t> started_;
};

}  // namespace hami::testing::policy
