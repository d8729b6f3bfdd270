// More requests than a node can answer in time: how many it answers, whose, and how soon it is normal again.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "overload.hpp"
#include "report.hpp"

using namespace hami::testing::policy;
using hami::BatchingMode;
using hami::kHighPriority;
using hami::kUrgentPriority;

namespace {

constexpr double kService = 20;  // ms of a request that runs alone

// What clairvoyant nodes answer if each request takes `service` at one after the other: with one timeout for all, first in, first out
// without the requests that end late answers most (an exchange argument); with several timeouts, no more than the capacity.
double best_possible(const Overload& load, const OverloadFigures& figures, const std::vector<double>& service) {
  const double capacity = 1 / *std::max_element(service.begin(), service.end());
  const double bound = std::min(capacity, static_cast<double>(figures.arrivals.size()) / load.measures);
  if (load.timeouts.size() > 1 || load.instances > 1 || load.max > 1) return bound;
  std::vector<double> free(service.size());
  double count = 0;
  for (const double arrival : figures.arrivals) {
    std::vector<double> ends = free;
    double end = arrival;
    for (std::size_t node = 0; node < service.size(); ++node)
      end = ends[node] = std::max(free[node], end) + service[node];
    if (end > arrival + load.timeouts.front()) continue;
    free = ends;
    ++count;
  }
  return std::min(bound, count / load.measures);
}

double lognormal(Random& random, double sigma) {
  const double normal = std::sqrt(2 * random.exponential()) * std::cos(2 * 3.14159265358979 * random.uniform());
  return std::exp(sigma * normal - sigma * sigma / 2);
}

struct Noise {
  const char* name;
  std::function<double(Random&)> factor;  // mean 1
  double least = 0.9;                     // part of what is best possible without noise, for two nodes in a row
};
const Noise kNoises[] = {
    {"none", [](Random&) { return 1.0; }},
    {"10 %", [](Random& random) { return lognormal(random, 0.1); }},
    {"1 in 10 is twice as long", [](Random& random) { return (random.uniform() < 0.1 ? 2 : 1) / 1.1; }, 0.85}};

}  // namespace

TEST_CASE("policy: under overload a node answers nearly as many requests in time as is possible") {
  Table table("overload", {"load", "timeouts, in batches", "noise", "useful/s", "best possible/s", "ratio",
                           "difference of two callers, %"});
  for (const Noise& noise : kNoises)
    for (const double times : {1.5, 3.0, 10.0})
      for (const std::vector<double>& timeouts : {std::vector<double>{2}, {4}, {20}, {2, 4, 20}}) {
        Overload load;
        load.rate = [=](Random&, double) { return times / kService; };
        std::string shown;
        for (const double timeout : timeouts) {
          load.timeouts.push_back(timeout * kService);
          shown += (shown.empty() ? "" : ", ") + text(timeout, 0);
        }
        load.service = [&](std::size_t, Random& random, double) { return kService * noise.factor(random); };
        const OverloadFigures figures = OverloadedNode(load).run();
        const double best = best_possible(load, figures, {kService}), ratio = figures.useful / best;
        const double one = figures.of_caller[0], other = figures.of_caller[1];
        const double difference = 200 * std::abs(one - other) / (one + other);
        table.row({text(times, 1), shown, noise.name, text(1000 * figures.useful, 1), text(1000 * best, 1),
                   text(ratio, 3), text(difference, 1)});
        CAPTURE(times);
        CAPTURE(shown);
        CAPTURE(noise.name);
        CHECK_GE(ratio, 0.9);
        CHECK_LE(difference, 10);
      }
  table.write();
}

TEST_CASE("policy: two nodes in a row answer nearly as many requests in time as is possible") {
  Table table("overload-graph", {"nodes", "load", "timeout", "noise", "useful/s", "best possible/s", "ratio",
                                 "difference of two callers, %"});
  for (const Noise& noise : kNoises)
    for (const auto& nodes : {std::pair(20.0, 20.0), {20.0, 25.0}, {25.0, 20.0}, {10.0, 40.0}, {40.0, 10.0}})
      for (const double times : {1.5, 3.0, 10.0})
        for (const std::vector<double>& timeouts : {std::vector<double>{2}, {4}, {20}, {2, 4, 20}}) {
          const double first = nodes.first, second = nodes.second;
          const double slower = std::max(first, second), whole = first + second;
          Overload load;
          load.measures = 100'000;
          load.rate = [&](Random&, double) { return times / slower; };
          std::string shown;
          for (const double timeout : timeouts) {
            load.timeouts.push_back(timeout * whole);
            shown += (shown.empty() ? "" : ", ") + text(timeout, 0);
          }
          const auto takes = [&](double time) {
            return [&noise, time](std::size_t, Random& random, double) { return time * noise.factor(random); };
          };
          load.service = takes(first);
          load.next = {takes(second)};
          const OverloadFigures figures = OverloadedNode(load).run();
          const double best = best_possible(load, figures, {first, second}), ratio = figures.useful / best;
          const double one = figures.of_caller[0], other = figures.of_caller[1];
          const double difference = 200 * std::abs(one - other) / (one + other);
          table.row({text(first, 0) + " and " + text(second, 0) + " ms", text(times, 1), shown, noise.name,
                     text(1000 * figures.useful, 1), text(1000 * best, 1), text(ratio, 3), text(difference, 1)});
          CAPTURE(first);
          CAPTURE(times);
          CAPTURE(shown);
          CAPTURE(noise.name);
          CHECK_GE(ratio, noise.least);
          CHECK_LE(difference, 10);
        }
  table.write();
}

TEST_CASE("policy: callers who ask at the same time get equal shares of an overloaded node") {
  struct Case {
    std::size_t callers;
    double timeout;
    std::uint8_t priority = 0;
  };
  // With more callers or a shorter time, the node is idle now and then, and takes who comes first.
  for (const Case& each :
       {Case{2, 4}, {2, 20}, {3, 8}, {3, 20}, {8, 20}, {2, 4, 7}, {2, 4, kHighPriority}, {3, 20, kUrgentPriority}}) {
    Overload load;
    load.callers = each.callers;
    load.together = true;
    load.rate = [&](Random&, double) { return 3 / kService / static_cast<double>(each.callers); };
    load.timeouts = {each.timeout * kService};
    load.priority = each.priority;
    load.service = [](std::size_t, Random& random, double) { return kService * lognormal(random, 0.05); };
    load.measures = 100'000 * static_cast<double>(each.callers);
    const OverloadFigures figures = OverloadedNode(load).run();
    const auto [least, most] = std::minmax_element(figures.of_caller.begin(), figures.of_caller.end());
    CAPTURE(each.callers);
    CAPTURE(each.timeout);
    CHECK_LE(*most - *least, 0.1 * *most);
  }
}

TEST_CASE("policy: several instances, and batches, answer nearly as many requests in time as is possible") {
  struct Kind {
    const char* name;
    std::size_t instances, max;
    double overhead, each;
    double timeout;  // ms
    double best;     // requests per ms that it can do at all
    BatchingMode mode;
  };
  Table table("overload-batches", {"node", "load", "useful/s", "best possible/s", "ratio"});
  for (const Kind& kind : {
           Kind{"4 instances", 4, 1, 0, 20, 80, 0.2, BatchingMode::kAdaptive},
           Kind{"4 instances, short timeout", 4, 1, 0, 20, 40, 0.2, BatchingMode::kAdaptive},
           Kind{"4 + 1 ms * n, at most 32", 1, 32, 4, 1, 144, 32.0 / 36, BatchingMode::kAdaptive},
           Kind{"the same, greedy", 1, 32, 4, 1, 144, 32.0 / 36, BatchingMode::kGreedy},
           Kind{"the same, two instances", 2, 32, 4, 1, 144, 64.0 / 36, BatchingMode::kAdaptive},
           Kind{"timeout 20 ms: batches of at most 16", 1, 32, 4, 1, 20, 16.0 / 20, BatchingMode::kAdaptive},
           Kind{"20 ms for any batch of at most 8", 1, 8, 20, 0, 80, 8.0 / 20, BatchingMode::kAdaptive},
           Kind{"the same, each call alone", 1, 8, 20, 0, 80, 1.0 / 20, BatchingMode::kPerCall},
       })
    for (const double times : {1.5, 3.0, 10.0}) {
      Overload load;
      load.measures = 20'000;
      load.instances = kind.instances;
      load.max = kind.max;
      load.mode = kind.mode;
      load.timeouts = {kind.timeout};
      load.rate = [&](Random&, double) { return times * kind.best; };
      load.service = [&](std::size_t items, Random& random, double) {
        return (kind.overhead + kind.each * static_cast<double>(items)) * lognormal(random, 0.03);
      };
      const OverloadFigures figures = OverloadedNode(load).run();
      // A batch has at most the requests that arrived within its timeout, without its own time.
      const double instances = static_cast<double>(kind.instances), rate = times * kind.best / instances;
      const double size = rate * (kind.timeout - kind.overhead) / (1 + rate * kind.each);
      const double best = std::min(kind.best, instances * size / (kind.overhead + kind.each * size));
      table.row({kind.name, text(times, 1), text(1000 * figures.useful, 1), text(1000 * best, 1),
                 text(figures.useful / best, 3)});
      CAPTURE(kind.name);
      CAPTURE(times);
      CHECK_GE(figures.useful, 0.9 * best);
    }
  table.write();
}

TEST_CASE("policy: within a second after an overload, one node or two in a row answer all requests in time") {
  for (const bool two : {false, true})
    for (const double times : {1.5, 3.0, 10.0})
      for (const std::vector<double>& timeouts : {std::vector<double>{2}, {4}, {20}, {2, 4, 20}}) {
        Overload load;
        load.measures = 22'400;
        load.rate = [=](Random&, double now) { return (now < 22'000 ? times : 0.2) / kService; };
        load.service = [](std::size_t, Random&, double) { return kService; };
        if (two) load.next = {load.service};
        for (const double timeout : timeouts) load.timeouts.push_back(timeout * kService * (two ? 2 : 1));
        CAPTURE(two);
        CAPTURE(times);
        CAPTURE(timeouts.front());
        CAPTURE(timeouts.size());
        // of three that arrive at a time, two end within 40 ms
        CHECK_GE(OverloadedNode(load).run().after, timeouts.front() > 2 ? 1 : 0.75);
      }
}

TEST_CASE("policy: a node that was too slow for a while answers again within a second") {
  for (const double timeout : {1.5, 2.0, 4.0}) {
    Overload load;
    load.learns = 10'000;
    load.measures = 12'100;  // the last second begins about a second after the node is fast again
    load.rate = [](Random&, double) { return 1.5 / kService; };
    load.timeouts = {timeout * kService};
    load.service = [](std::size_t, Random&, double) { return kService; };
    const double always_fast = OverloadedNode(load).run().after;
    load.service = [](std::size_t, Random&, double now) {
      return now > 10'000 && now < 20'000 ? 5 * kService : kService;
    };
    CAPTURE(timeout);
    CHECK_GE(OverloadedNode(load).run().after, 0.95 * always_fast);
  }
}

TEST_CASE("policy: while no request is late, requests with deadlines run in the order of those without") {
  for (const double load_factor : {0.3, 0.7, 0.9})
    for (const bool two : {false, true}) {
      Overload load;
      load.measures = 20'000;
      load.rate = [=](Random&, double) { return load_factor / kService; };
      load.service = [](std::size_t, Random& random, double) { return kService * lognormal(random, 0.05); };
      if (two) load.next = {load.service};
      CAPTURE(load_factor);
      CAPTURE(two);
      load.timeouts = {kNever};
      const OverloadFigures without = OverloadedNode(load).run();
      for (const double timeout : {3'600'000.0, 60 * kService}) {
        load.timeouts = {timeout};
        const OverloadFigures with = OverloadedNode(load).run();
        CHECK_EQ(with.useful, with.ran);
        CHECK(with.order == without.order);
        CHECK_GE(with.useful, 0.95 * load_factor / kService);
      }
    }
}

TEST_CASE("policy: below its capacity, a node starves no request without a deadline") {
  for (const double load_factor : {0.5, 0.8, 0.95})
    for (const std::vector<double>& timeouts :
         {std::vector<double>{2, kNever}, {2, 4, 20, kNever}, {2, 2, 2, kNever}}) {
      Overload load;
      load.measures = 100'000;
      load.rate = [=](Random&, double) { return load_factor / kService; };
      for (const double timeout : timeouts) load.timeouts.push_back(timeout * kService);
      load.service = [](std::size_t, Random& random, double) { return kService * lognormal(random, 0.05); };
      const OverloadFigures figures = OverloadedNode(load).run();
      CAPTURE(load_factor);
      CAPTURE(timeouts.size());
      // Normal requests are overdue after 2 s, and then go first. Those of the last 2 s may still wait.
      const double longest = 2000 + 20 * kService;
      CHECK_LE(figures.longest, longest);
      const double waiting = static_cast<double>(figures.patient - figures.patient_ended);
      CHECK_LE(waiting, longest * static_cast<double>(figures.patient) / load.measures);
    }
}
