// The statistics of a node by their public names, for every form in which they are shown.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "observe/node_stats.hpp"
#include "observe/node_times.hpp"

namespace hami {

inline double in_milliseconds(std::uint64_t nanoseconds) noexcept { return static_cast<double>(nanoseconds) / 1e6; }

// Calls visit(name, value) with the counts of requests.
template <class Visit>
void for_each_count(const RequestStats& stats, const Visit& visit) {
  const std::uint64_t running = stats.running;
  const std::uint64_t ended = stats.completed + stats.failed + stats.rejected + stats.expired + stats.cancelled;
  const std::uint64_t submitted = stats.submitted;  // read last, so that it includes every request counted above
  visit("submitted", submitted);
  visit("completed", stats.completed.load());
  visit("failed", stats.failed.load());
  visit("rejected", stats.rejected.load());
  visit("expired", stats.expired.load());
  visit("cancelled", stats.cancelled.load());
  visit("waiting", submitted > ended + running ? submitted - ended - running : std::uint64_t{0});
  visit("running", running);
}

// Calls visit(name, value), where the value is a std::uint64_t or a double, with all that NodeStats holds, except the lanes.
template <class Visit>
void for_each_statistic(const NodeStats& node, const Visit& visit) {
  for_each_count(node, visit);
  visit("dropped", node.dropped.load());
  visit("queued_bytes", node.queued_bytes.load());
  visit("retried", node.retried.load());
  visit("batches", node.batches.load());
  visit("batch_items", node.batch_items.load());
  visit("inline_batches", node.inline_batches.load());
  visit("model_calls", node.model_calls.load());
  visit("compute_ms", in_milliseconds(node.compute_ns));
  visit("closed_full", node.closed_full.load());
  visit("closed_target_size", node.closed_target_size.load());
  visit("closed_timeout", node.closed_timeout.load());
  visit("closed_queue_empty", node.closed_queue_empty.load());
  if (const std::uint64_t target = node.target_batch_size) {
    visit("target_batch_size", target);
    visit("batch_overhead_ms", in_milliseconds(node.batch_overhead_ns));
    visit("per_item_ms", in_milliseconds(node.per_item_ns));
  }
  if (const std::uint64_t instances = node.instances_in_use) visit("instances_in_use", instances);
}

// Calls visit(name, value) with what the policy of the node has decided until `moment`. The value is a bool, a double, a
// std::uint64_t or a std::string_view.
template <class Visit>
void for_each_decision(const NodeStats& node, Nanoseconds moment, const Visit& visit) {
  if (const std::uint64_t target = node.target_batch_size) visit("target_batch_size", target);
  const PolicyStats& policy = node.policy;
  if (const PolicyStats::Waits waits = policy.return_waits; waits != PolicyStats::kUnknown)
    visit("return_waits", waits == PolicyStats::kOn);
  if (policy.gain_known) visit("return_wait_gain", policy.return_wait_gain.load());
  if (const std::uint64_t instances = node.instances_in_use) visit("instances_in_use", instances);
  if (const double padded = policy.padded_cost; padded > 0) {
    const double cost = policy.cost;
    visit("padding", std::max(0.0, 1 - cost / padded));
    visit("batch_cost", cost / static_cast<double>(std::max<std::uint64_t>(1, node.batches)));
    visit("cost_per_second", cost * 1e9 / static_cast<double>(std::max<std::uint64_t>(1, node.compute_ns)));
  }
  switch (policy.trial) {
    case PolicyStats::kNone: break;
    case PolicyStats::kReturnWaits: visit("trial", std::string_view("return_waits")); break;
    case PolicyStats::kMoreInstances: visit("trial", std::string_view("more_instances")); break;
    case PolicyStats::kFewerInstances: visit("trial", std::string_view("fewer_instances")); break;
  }
  if (const Nanoseconds until = policy.capped_until; until > 0) visit("capped", moment < until);
}

inline bool uses_lanes(const NodeStats& node) noexcept {
  return node.lanes[kUrgentLane].submitted + node.lanes[kHighLane].submitted > 0;
}

// Calls visit(name, histogram, number of its units in one of the statistic).
template <class Visit>
void for_each_histogram(const RequestTimes& times, const Visit& visit) {
  visit("queue_ms", times.queue, 1e6);
  visit("latency_ms", times.latency, 1e6);
}

template <class Visit>
void for_each_histogram(const NodeTimes& times, const Visit& visit) {
  for_each_histogram(static_cast<const RequestTimes&>(times), visit);
  visit("batch_ms", times.batch, 1e6);
  visit("batch_sizes", times.batch_items, 1.0);
}

// Calls visit(smallest value, largest value, count) for the buckets that are not empty.
template <class Visit>
void for_each_bucket(const Histogram& from, double unit, const Visit& visit) {
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i)
    if (const std::uint64_t count = from.count(i))
      visit(static_cast<double>(Histogram::lower_bound(i)) / unit,
            static_cast<double>(Histogram::lower_bound(i + 1) - 1) / unit, count);
}

// Calls visit(name, milliseconds, BackendTime). A name that occurs again gets a number; the only backend of a node has the time
// of the node.
template <class Visit>
void for_each_backend(const NodeTimes& times, const NodeStats& node, const Visit& visit) {
  std::map<std::string, int> seen;
  const bool is_only = times.backends.size() == 1;
  times.backends.for_each([&](const BackendTime& time) {
    const int number = ++seen[time.name];
    const std::string name = number == 1 ? time.name : time.name + " (" + std::to_string(number) + ")";
    visit(name, in_milliseconds(is_only ? node.compute_ns : time.nanoseconds), time);
  });
}

}  // namespace hami
