// When a batch starts and how large it is, as pure functions: no state and no clock.
// hami-core/docs/explanation/adaptive-batching.md derives the formulas.
//
// Start. n requests are ready, an instance is free, and k answered callers are expected back within w. One batch of n + k after w
// completes more requests per time than a batch of n now, iff
//
//   (n + k) / (w + t(n + k)) > n / t(n),    which is    n * w < k * beta    for    t(b) = alpha * b + beta.
//
// The batch is held for the k with the highest rate. It waits at most twice as long as estimated, never longer than the wait may
// cost (k * beta / n), and all its holds together last at most beta.
//
// Size. All that is ready, up to the smallest size whose time per item is within 2 % of the best known. While high requests come,
// a batch with normal ones has at most the items that end within max_wait: b = (max_wait - beta) / alpha.
#pragma once

#include <algorithm>
#include <cstddef>

#include "schedule/return_times.hpp"
#include "schedule/service_time_model.hpp"

namespace hami {

struct Hold {
  std::size_t items = 0;    // for how many further items the batch waits; 0: it starts now
  Nanoseconds timeout = 0;  // how long at most
};

struct Ready {
  std::size_t requests = 0, items = 0;  // that the batch has
  std::size_t max_items = 1;            // that it may have
  double items_each = 1;                // of a request, on average
  Nanoseconds free = 0;                 // how long the instance has been free
  Nanoseconds deadline = kNever;        // time until the first deadline
};

// `beta`: what a batch of any size costs; `time`: of a batch of so many items; both in nanoseconds.
template <class Time>
Hold hold_for_returns(const ReturnTimes& returns, const Ready& ready, Nanoseconds moment, double beta,
                      const Time& time) noexcept {
  const Nanoseconds left = static_cast<Nanoseconds>(beta) - ready.free;
  Hold hold;
  if (left <= 0) return hold;
  const double n = static_cast<double>(ready.requests), items = static_cast<double>(ready.items);
  double best = n > 0 ? n / time(items) : 0;
  returns.for_each_return(moment, left, [&](std::size_t count, Nanoseconds wait) {
    const double k = static_cast<double>(count), more = k * ready.items_each, after = time(items + more);
    if (items + more > static_cast<double>(ready.max_items)) return;
    if (static_cast<double>(ready.deadline) < static_cast<double>(wait) + after) return;
    const double rate = (n + k) / (static_cast<double>(wait) + after);
    if (rate <= best) return;
    best = rate;
    Nanoseconds timeout = std::min(policy::kUncertain * wait, left);
    if (ready.deadline != kNever) timeout = std::min(timeout, ready.deadline - static_cast<Nanoseconds>(after));
    if (n > 0) timeout = std::min(timeout, static_cast<Nanoseconds>(k * beta / n));
    hold = {std::max<std::size_t>(1, static_cast<std::size_t>(more + 0.5)), timeout};
  });
  return hold;
}

// The most items whose predicted time is within `limit`, but at least `floor` and at most `cap`.
template <class Time>
std::size_t items_within(Nanoseconds limit, std::size_t floor, std::size_t cap, const Time& time) noexcept {
  std::size_t fits = std::min(floor, cap), above = cap + 1;
  while (fits + 1 < above) {
    const std::size_t middle = fits + (above - fits) / 2;
    (time(middle) <= static_cast<double>(limit) ? fits : above) = middle;
  }
  return fits;
}

// Items that each of `instances` free instances takes of `items`: an equal share if that is known to end sooner than one batch
// of all, else `max_items`.
std::size_t share(std::size_t items, std::size_t instances, std::size_t max_items, const ServiceTimeModel& solo,
                  const ServiceTimeModel& contended) noexcept;

}  // namespace hami
