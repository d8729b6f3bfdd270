// TextInstances: instances of an engine that share the cores of a machine, under a virtual clock, and callers that ask again as soon as
// they are answered. An engine pads the texts of a batch to the longest. Times are in milliseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "product.hpp"

namespace hami::testing::policy {

// Tokens of a text of a real collection: the median 16, 90 % up to 70, at most 256.
inline double tokens(Random& random) {
  const double normal = std::sqrt(2 * random.exponential()) * std::cos(2 * M_PI * random.uniform());
  return std::clamp(std::round(16 * std::exp(1.1516 * normal)), 3.0, 256.0);
}

class TextInstances {
 public:
  struct Setup {
    std::size_t callers = 64, instances = 1, max = 64;
    double cores = 2, threads = 1;  // threads: cores that an instance can use
    double fixed = 1, each = 0.09;  // milliseconds of one core, of a batch and of a token
    std::function<double(Random&)> cost = [](Random&) { return 10.0; };
    bool by_cost = true;
    bool has_long = false;  // another caller asks for one text of 512 tokens, when 3 of 10 texts are answered
    double weight = 1;      // of the batch of that text, where batches share the cores
  };
  struct Figures {
    double rate = 0;  // texts per ms
    double p99 = 0;   // of the latency, without the long text
    double size = 0;  // mean texts of a batch
  };

  explicit TextInstances(const Setup& setup) : setup_(setup) {
    for (std::size_t i = 0; i < setup.instances; ++i) scheduler_.add_instance({1, setup.max}, false);
    scheduler_.set_batching({BatchingMode::kGreedy, setup.max, 1, 0});
    if (setup.by_cost) scheduler_.learn_costs();
    for (int i = 0; i < 400; ++i) push(setup.by_cost ? tokens(random_) : setup.cost(random_));  // the times are known
    while (!running_.empty() || !scheduler_.queue().empty()) step();
  }

  Figures run(std::size_t texts) {
    counts_ = true;
    const double began = now_;
    std::size_t batches = 0;
    for (std::size_t i = 0; i < setup_.callers; ++i) push(setup_.cost(random_));
    for (bool asked = !setup_.has_long; answered_.size() < texts; ++batches) {
      if (!asked && answered_.size() >= texts * 3 / 10) push(kLong), asked = true;
      step();
    }
    const double count = static_cast<double>(answered_.size());
    std::sort(answered_.begin(), answered_.end());
    return {count / (now_ - began), answered_[texts * 99 / 100], count / static_cast<double>(batches)};
  }

 private:
  static constexpr double kLong = 512;

  struct Text {
    double cost, since;
  };
  struct Running {
    NodeScheduler::Index instance;
    double left, began, largest;  // left: milliseconds of one core
    std::vector<Text> texts;
  };

  void push(double cost) {
    Ref<Request> request = request_of(1);
    request->cost = cost;
    request->index = next_++;
    waiting_[request->index] = {cost, now_};
    scheduler_.push(std::move(request), nanoseconds(now_), ++calls_, 0);
    dispatch();
  }
  void dispatch() {
    while (const std::optional<NodeScheduler::Index> idle = scheduler_.dispatch_idle()) ask(*idle);
  }
  void ask(NodeScheduler::Index instance) {
    RequestChain taken, removed;
    const NodeScheduler::Action step = scheduler_.next_action(instance, nanoseconds(now_), taken, removed);
    if (step.what != NodeScheduler::Action::kRun) return;
    Running batch{instance, 0, now_, 0, {}};
    for (const Ref<Request>& request : all_of(taken)) {
      const auto found = waiting_.extract(request->index);
      batch.texts.push_back(found.mapped());
      batch.largest = std::max(batch.largest, found.mapped().cost);
    }
    batch.left = setup_.fixed + setup_.each * static_cast<double>(batch.texts.size()) * batch.largest;
    running_.push_back(std::move(batch));
  }
  // How many cores a batch has.
  double cores(const Running& batch) const {
    double wanted = 0, weights = 0;
    for (const Running& one : running_) {
      wanted += setup_.threads;
      weights += weight(one);
    }
    return wanted <= setup_.cores ? setup_.threads : setup_.cores * weight(batch) / weights;
  }
  double weight(const Running& batch) const { return batch.largest == kLong ? setup_.weight : 1; }

  void step() {
    const auto time_left = [&](const Running& batch) { return batch.left / cores(batch); };
    auto first = std::min_element(running_.begin(), running_.end(), [&](const Running& one, const Running& other) {
      return time_left(one) < time_left(other);
    });
    const double passes = time_left(*first);
    std::vector<double> each;
    for (const Running& batch : running_) each.push_back(passes * cores(batch));
    for (std::size_t i = 0; i < running_.size(); ++i) running_[i].left -= each[i];
    now_ += passes;
    const Running ended = std::move(*first);
    running_.erase(first);
    scheduler_.record_batch(ended.instance, ended.texts.size(), nanoseconds(now_ - ended.began), nanoseconds(now_));
    for (const Text& text : ended.texts) {
      if (!counts_ || text.cost == kLong) continue;
      answered_.push_back(now_ - text.since);
      push(setup_.cost(random_));
    }
    ask(ended.instance);
    dispatch();
  }

  const Setup setup_;
  Random random_{1};
  NodeScheduler scheduler_{"n"};
  double now_ = 0.001;
  bool counts_ = false;
  std::uint64_t calls_ = 0;
  std::size_t next_ = 0;
  std::map<std::size_t, Text> waiting_;
  std::vector<Running> running_;
  std::vector<double> answered_;
};

}  // namespace hami::testing::policy
