// One instance of a node under a virtual clock: callers, a queue and batches, with an exchangeable decision. Times are in
// milliseconds. The random numbers are the same with every standard library, so every figure is the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <vector>

namespace hami::testing::policy {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  // Above 0, at most 1.
  double uniform() { return (static_cast<double>(generator_()) + 1) / 4294967296.0; }
  double exponential() { return -std::log(uniform()); }
  std::size_t below(std::size_t count) { return generator_() % count; }

 private:
  std::mt19937 generator_;
};

// The cost of a batch, and the arrivals.
struct Load {
  std::function<double(double items, double now)> service;  // time of a batch
  std::size_t cap = 64;
  std::size_t callers = 0;               // closed loop: each asks again after a pause
  std::function<double(Random&)> pause;  // between the answer and the next request of a caller
  double bursts = 0;                     // open loop: bursts per millisecond, at random moments
  std::size_t burst = 1;                 // requests of a burst
  std::function<std::size_t(Random&)> items = [](Random&) { return std::size_t{1}; };  // of a request
  std::size_t learns = 200;                                                            // batches before the measurement
  double measures = 700;                                                               // milliseconds
  unsigned seed = 1;
};

struct Figures {
  double rate = 0;     // items per millisecond
  double latency = 0;  // mean time from arrival to answer, per request
  double size = 0;     // mean items of a batch
};

// Decides when a batch starts, and how large it is.
class Decider {
 public:
  struct Step {
    std::size_t run = 0;    // requests that start now
    double until = kNever;  // else: asks again then, or when `wakes`
  };
  virtual ~Decider() = default;
  virtual void arrive(double now, std::size_t items) = 0;
  // Whether the instance, which runs nothing, is asked now that a request has arrived.
  virtual bool wakes() = 0;
  // `completed` items of a batch that has just ended; 0: the instance was idle or holding.
  virtual Step next(double now, std::size_t completed, double took) = 0;
};

inline Figures simulate(Decider& decider, const Load& load) {
  struct Waiting {
    double arrived;
    std::size_t items;
  };
  Random random(load.seed);
  std::priority_queue<double, std::vector<double>, std::greater<double>> arrivals;
  std::queue<Waiting> queue;
  std::vector<Waiting> running;
  double now = 0, began = 0, ends = kNever, timer = kNever, start = kNever;
  std::size_t batches = 0, items = 0, requests = 0, measured = 0;
  double latency = 0;
  const auto ask = [&](std::size_t completed, double took) {
    const Decider::Step step = decider.next(now, completed, took);
    timer = step.run > 0 ? kNever : step.until;
    if (step.run == 0) return;
    std::size_t together = 0;
    for (std::size_t i = 0; i < step.run; ++i) {
      running.push_back(queue.front());
      together += queue.front().items;
      queue.pop();
    }
    began = now;
    ends = now + load.service(static_cast<double>(together), now);
  };
  for (std::size_t i = 0; i < load.callers; ++i) arrivals.push(load.pause(random));
  if (load.bursts > 0) arrivals.push(random.exponential() / load.bursts);
  while (now < start + load.measures) {
    const double arrival = arrivals.empty() ? kNever : arrivals.top();
    now = std::min({arrival, ends, timer});
    if (now == arrival) {
      arrivals.pop();
      for (std::size_t i = 0; i < (load.callers > 0 ? 1 : load.burst); ++i) {
        queue.push({now, load.items(random)});
        decider.arrive(now, queue.back().items);
        if (running.empty() && decider.wakes()) ask(0, 0);
      }
      if (load.callers == 0) arrivals.push(now + random.exponential() / load.bursts);
    } else if (now == ends) {
      std::size_t completed = 0;
      for (const Waiting& request : running) {
        completed += request.items;
        if (now >= start) latency += now - request.arrived;
        if (load.callers > 0) arrivals.push(now + load.pause(random));
      }
      if (now >= start) {
        items += completed;
        requests += running.size();
        ++measured;
      }
      running.clear();
      ends = kNever;
      if (++batches == load.learns) start = now;
      ask(completed, now - began);
    } else {
      ask(0, 0);
    }
  }
  return {static_cast<double>(items) / load.measures, latency / static_cast<double>(requests),
          static_cast<double>(items) / static_cast<double>(measured)};
}

}  // namespace hami::testing::policy
