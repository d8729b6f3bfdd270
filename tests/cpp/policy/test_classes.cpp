// Urgent requests beside 64 callers in a loop: what they wait for, and what the others pay.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../scheduled.hpp"
#include "report.hpp"

using namespace hami;
using namespace hami::testing;
using namespace hami::testing::policy;

namespace {

constexpr Nanoseconds kMillisecond = 1'000'000, kWarmUp = 5'000 * kMillisecond, kEnd = 65'000 * kMillisecond;
constexpr std::size_t kCallers = 64;
constexpr double kUrgentPerSecond = 20;

struct Node {
  double overhead, each;  // of a batch, in ms
  std::size_t max;
  double max_wait = 0;  // in ms
  bool fifo = false;    // the urgent requests are sent as normal ones

  double time(std::size_t items) const { return overhead + each * static_cast<double>(items); }
};

// One instance of a node, with the decision code of the product under a virtual clock.
class Served {
 public:
  explicit Served(const Node& node) : node_(node), scheduler_("n") {
    scheduler_.add_instance({1, node.max}, false);
    scheduler_.config().batching = {BatchingMode::kAdaptive, node.max, 1, 0};
    scheduler_.config().max_wait = static_cast<Nanoseconds>(node.max_wait * kMillisecond);
    for (std::size_t i = 0; i < kCallers; ++i) at(static_cast<Nanoseconds>(i), [this] { arrive(false); });
    next_urgent();
    while (!events_.empty() && events_.begin()->first < kEnd) {
      const auto event = events_.extract(events_.begin());
      now_ = event.key();
      event.mapped()();
    }
    std::sort(urgent_.begin(), urgent_.end());
  }

  double urgent(double part) const {
    return urgent_[static_cast<std::size_t>(part * static_cast<double>(urgent_.size()))];
  }
  double normal_per_ms() const { return static_cast<double>(normal_) / ((kEnd - kWarmUp) / kMillisecond); }

 private:
  void at(Nanoseconds moment, std::function<void()> happens) { events_.emplace(moment, std::move(happens)); }
  void next_urgent() {
    std::exponential_distribution<double> gap(kUrgentPerSecond / 1e9);
    at(now_ + static_cast<Nanoseconds>(gap(random_)), [this] {
      arrive(true);
      next_urgent();
    });
  }
  void arrive(bool urgent) {
    Ref<Request> request = request_of(1);
    request->index = urgent;
    request->priority = urgent && !node_.fifo ? kUrgentPriority : 0;
    scheduler_.push(std::move(request), now_, ++calls_);
    if (scheduler_.batch_ready() || scheduler_.dispatch_idle()) work();
  }
  void work() {
    ++timer_;
    RequestChain taken, removed;
    const NodeScheduler::Action step = scheduler_.next_action(0, now_, taken, removed);
    if (step.what == NodeScheduler::Action::kWait)
      at(step.until, [this, wait = timer_] {
        if (wait == timer_) work();
      });
    if (step.what != NodeScheduler::Action::kRun) return;
    std::vector<Ref<Request>> batch = all_of(taken);
    const auto took = static_cast<Nanoseconds>(node_.time(batch.size()) * kMillisecond);
    at(now_ + took, [this, took, batch = std::move(batch)] { end(batch, took); });
  }
  void end(const std::vector<Ref<Request>>& batch, Nanoseconds took) {
    scheduler_.record_batch(0, batch.size(), took, now_);
    for (const Ref<Request>& request : batch) {
      if (!request->index) at(now_ + kMillisecond / 10, [this] { arrive(false); });
      if (now_ < kWarmUp) continue;
      if (request->index)
        urgent_.push_back(static_cast<double>(now_ - request->queued_at) / kMillisecond);
      else
        ++normal_;
    }
    work();
  }

  const Node node_;
  NodeScheduler scheduler_;
  std::mt19937 random_{5};
  std::multimap<Nanoseconds, std::function<void()>> events_;
  Nanoseconds now_ = 0;
  std::uint64_t calls_ = 0, timer_ = 0;
  std::vector<double> urgent_;  // ms from the arrival to the end
  std::size_t normal_ = 0;
};

}  // namespace

TEST_CASE("policy: an urgent request waits for one batch, and with max_wait for a short one") {
  Table table("classes", {"batch", "max", "variant", "urgent p50, ms", "urgent p99, ms", "normal/ms", "of FIFO"});
  const auto row = [&](const Node& node, const char* variant, const Served& service, const Served& fifo) {
    table.row({text(node.overhead, 1) + " + " + text(node.each, 1) + " · b ms", std::to_string(node.max), variant,
               text(service.urgent(0.5), 1), text(service.urgent(0.99), 1), text(service.normal_per_ms(), 3),
               text(service.normal_per_ms() / fifo.normal_per_ms(), 3)});
  };
  Node narrow{8, 8, 4}, wide{2, 0.6, 64};  // both take 40 ms for a full batch
  Node first = narrow;
  first.fifo = true;
  const Served fifo(first), urgent(narrow);
  row(narrow, "FIFO", fifo, fifo);
  row(narrow, "urgent", urgent, fifo);
  CHECK_LE(urgent.urgent(0.99), narrow.time(narrow.max) + 1.1 * narrow.time(narrow.max));
  CHECK_LE(5 * urgent.urgent(0.99), fifo.urgent(0.99));
  CHECK_GE(urgent.normal_per_ms(), 0.95 * fifo.normal_per_ms());

  Node all = wide, bounded = wide;
  all.fifo = true;
  bounded.max_wait = 10;
  const Served wide_fifo(all), wide_urgent(wide), wide_bounded(bounded);
  row(wide, "FIFO", wide_fifo, wide_fifo);
  row(wide, "urgent", wide_urgent, wide_fifo);
  row(wide, "max_wait = 10 ms", wide_bounded, wide_fifo);
  table.write();
  CHECK_LE(wide_bounded.urgent(0.99), 1.1 * (wide.time(1) + 10));
  const double within = 13 / wide.time(13), full = 64 / wide.time(64);  // 13 items take 9.8 ms
  CHECK_GE(wide_bounded.normal_per_ms(), (within / full - 0.05) * wide_fifo.normal_per_ms());
}
