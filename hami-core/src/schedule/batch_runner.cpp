// BatchRunner: hooks, retries and statistics around an instance's forward.
#include "schedule/batch_runner.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace hami {
namespace {

// The `result` of a hook becomes `data` for the next step; without a `result` the hook has changed the request in place.
void run_hook(Backend& hook, Batch batch) {
  hook.forward(batch);
  for (Request* request : batch)
    if (request->alive() && request->dict.contains(kResult)) result_to_data(*request, hook.label());
}

constexpr std::uint64_t kMinusOne = UINT64_MAX;  // counters wrap around

constexpr RequestStats::Counter RequestStats::* kOutcomes[] = {&RequestStats::completed, &RequestStats::failed,
                                                               &RequestStats::rejected, &RequestStats::expired,
                                                               &RequestStats::cancelled};

// RAII: applies this node's `on_batch_error` policy to the batch, also where the instance passes requests on; restores the
// previous policy on exit.
class ScopedRetryPolicy {
 public:
  ScopedRetryPolicy(Batch batch, bool isolates) : batch_(batch) {
    const auto agrees = [&](const Request* request) { return request->isolates == isolates; };
    if (std::all_of(batch.begin(), batch.end(), agrees)) return;
    before_.reserve(batch.size());
    for (Request* request : batch) before_.push_back(std::exchange(request->isolates, isolates));
  }
  ~ScopedRetryPolicy() {
    for (std::size_t i = 0; i < before_.size(); ++i) batch_[i].isolates = before_[i];
  }
  ScopedRetryPolicy(const ScopedRetryPolicy&) = delete;
  ScopedRetryPolicy& operator=(const ScopedRetryPolicy&) = delete;

 private:
  Batch batch_;
  std::vector<bool> before_;
};

}  // namespace

void BatchRunner::set_hooks(Init& init) {
  if (!init.has_brackets()) return;
  before_gathering_ = init.make(init.items()[0]);
  if (init.items().size() > 1) before_instance_ = init.make(init.items()[1]);
}

void BatchRunner::record_arrival(Batch batch) noexcept {
  std::optional<Nanoseconds> moment;
  for (const Request* request : batch) {
    NodeVisits* const visits = visits_of(*request);
    if (!visits) continue;
    if (!moment) moment = now();
    visits->arrive(node_, *moment);
  }
}

bool BatchRunner::admit(Request& request, std::size_t max_items, const Remarks* remarks) noexcept {
  try {
    request.items = declared_items(request.dict);
    if (request.items > max_items)
      throw Error(ErrorCode::kRequest, "request_size is " + std::to_string(request.items) + "; node \"" + node_ +
                                           "\" takes at most " + std::to_string(max_items) +
                                           (remarks ? remarks->lines() : ""));
    if (before_gathering_) {
      const BlockingScope blocking;  // the hook may take long or block
      Request* one = &request;
      run_hook(*before_gathering_, Batch(&one, 1));
    }
  } catch (...) {
    request.fail(current_error());
  }
  if (!request.alive()) *request.error = request.error->with_note(note_);
  return request.alive();
}

void BatchRunner::set_costs(Batch batch) noexcept {
  try {
    cost_(batch);
  } catch (...) {
    const Error error = current_error();
    for (Request* request : batch) request->fail(error);
  }
  for (Request* request : batch)
    if (!request->alive()) *request->error = request->error->with_note(note_);
}

void BatchRunner::forward(Backend& instance, Batch batch) {
  if (before_instance_) run_hook(*before_instance_, batch);
  ++stats_.model_calls;
  instance.forward(batch);
}

Nanoseconds BatchRunner::run(Backend& instance, Batch batch, StartReason reason) noexcept {
  count(batch, &RequestStats::running);
  const Nanoseconds start = now();
  trace::Slice slice;
  if (trace::active()) trace_start(batch, start, reason, slice);
  for (const Request* request : batch)
    if (NodeVisits* const visits = visits_of(*request)) visits->start(node_, start);
  try {
    const RunningThreads::Scope listed(times_.threads, start);
    const ScopedRetryPolicy retry_policy(batch, isolate_);
    bool again = false;
    stats_.retried += forward_with_retry(batch, isolate_, [&](Batch part) {
      if (std::exchange(again, true) && trace::active()) trace_at_node(part, trace::intern("retry"));
      forward(instance, part);
    });
  } catch (...) {  // no memory for the policy
    const Error error = current_error();
    for (Request* request : batch) request->fail(error);
  }
  const Nanoseconds took = now() - start;
  slice.end();
  stats_.compute_ns += static_cast<std::uint64_t>(took);
  ++stats_.batches;
  stats_.batch_items += batch.items();
  for (Request* request : batch)
    if (!request->alive()) *request->error = request->error->with_note(note_);
  record_end(batch, true);
  record_times(batch, start, took);
  count_outcomes(batch);
  count(batch, &RequestStats::running, kMinusOne);
  return took;
}

void BatchRunner::record_end(Batch batch, bool ran) noexcept {
  for (const Request* request : batch)
    if (NodeVisits* const visits = visits_of(*request))
      visits->leave(node_, ran, outcome_of(request->error) != kCompleted);
}

// Requests that were queued have waited until now. Those of an inline batch were not.
void BatchRunner::trace_start(Batch batch, Nanoseconds start, StartReason reason, trace::Slice& slice) noexcept {
  static const trace::Name reasons[] = {trace::intern("full"), trace::intern("target_size"), trace::intern("timeout"),
                                        trace::intern("queue_empty"), trace::intern("inline")};
  trace::Event event;
  event.category = trace::Category::kBatch;
  event.name = event.node = trace_name_;
  event.kind = trace::Event::kMember;
  event.until = start;
  for (const Request* request : batch) {
    event.time = request->queued_at;
    request->for_each_trace_id([&](std::uint64_t id) {
      if (event.batch == 0) event.batch = trace::next_id();
      event.request = id;
      trace::record(event);
    });
  }
  if (event.batch == 0 && !trace::samples_step()) return;
  if (event.batch == 0) event.batch = trace::next_id();
  event.request = 0;
  event.time = start;
  event.reason = reasons[static_cast<std::size_t>(reason)];
  event.count = static_cast<std::uint16_t>(std::min<std::size_t>(batch.items(), UINT16_MAX));
  slice.begin(event);
}

void BatchRunner::trace_at_node(Batch batch, trace::Name name) noexcept {
  trace::Event event;
  event.category = trace::Category::kOutcome;
  event.name = name;
  event.node = trace_name_;
  for (const Request* request : batch)
    request->for_each_trace_id([&](std::uint64_t id) {
      if (event.time == 0) event.time = now();
      event.request = id;
      trace::record(event);
    });
}

void BatchRunner::trace_rejected(Batch batch) noexcept {
  trace::Event event;
  event.kind = trace::Event::kMember;
  event.node = trace_name_;
  event.until = now();
  for (Request* request : batch) {
    if ((event.time = request->queued_at) > 0)
      request->for_each_trace_id([&](std::uint64_t id) {
        event.request = id;
        trace::record(event);
      });
    trace_at_node(Batch(&request, 1), name_of(outcome_of(request->error)));
  }
}

// Requests of an inline batch were not queued.
void BatchRunner::record_times(Batch batch, Nanoseconds start, Nanoseconds took) noexcept {
  for (Request* request : batch) {
    const Nanoseconds queued_at = std::exchange(request->queued_at, 0);
    const Nanoseconds waited = queued_at > 0 ? std::max<Nanoseconds>(0, start - queued_at) : 0;
    const auto record = [&](RequestTimes& times) {
      times.queue.record(static_cast<std::uint64_t>(waited));
      times.latency.record(static_cast<std::uint64_t>(waited + took));
    };
    record(times_);
    if (const LaneName lane = lane_of(request->priority); lane != kNormalLane) record(times_.lanes[lane]);
  }
  times_.batch.record(static_cast<std::uint64_t>(took));
  times_.batch_items.record(batch.items());
}

// Called before the requests complete, because their caller may read the statistics at once.
void BatchRunner::count_outcomes(Batch batch) noexcept {
  for (Request* request : batch) count(Batch(&request, 1), kOutcomes[outcome_of(request->error)]);
}

void BatchRunner::count(Batch batch, RequestStats::Counter RequestStats::* statistic, std::uint64_t by) noexcept {
  stats_.*statistic += batch.size() * by;
  for (const Request* request : batch)
    if (const LaneName lane = lane_of(request->priority); lane != kNormalLane) stats_.lanes[lane].*statistic += by;
}

void BatchRunner::complete_unreachable(RequestChain& requests) noexcept {
  use_all(requests, [&](Batch batch) {
    record_end(batch, false);
    if (trace::active()) trace_at_node(batch, name_of(kRejected));
    count(batch, &RequestStats::rejected);
    complete_requests(batch);
  });
}

void BatchRunner::complete_rejected(Batch batch) noexcept {
  if (batch.empty()) return;
  record_end(batch, false);
  if (trace::active()) trace_rejected(batch);
  count_outcomes(batch);
  complete_requests(batch);
}

void BatchRunner::complete_rejected(RequestChain& requests) noexcept {
  use_all(requests, [&](Batch batch) { complete_rejected(batch); });
}

}  // namespace hami
