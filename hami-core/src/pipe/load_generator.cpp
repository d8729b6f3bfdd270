// LoadGenerator: clients of a closed loop, and the arrivals of an open loop.
#include "pipe/load_generator.hpp"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "request/api.hpp"

namespace hami {
namespace {

// After this time, clients that still wait for a request are abandoned: one second, as when a pipe closes.
constexpr Nanoseconds kClientGracePeriod = 1'000'000'000;

// The class of the exception that a caller in Python gets.
std::string class_of(const Error& error) {
  const std::string& message = error.message();  // if foreign, such as "ZeroDivisionError: division by zero"
  return error.code() == ErrorCode::kForeign ? message.substr(0, message.find(':')) : exception_class(error.code());
}

// The message of an exception of Python begins with its class, which is the key already.
void add_failure(LoadResult& result, const Error& error) {
  const std::string kind = class_of(error);
  LoadResult::Failures& failures = result.failed[kind];
  if (failures.count++ > 0) return;
  const std::string& message = error.message();
  const bool repeats = error.code() == ErrorCode::kForeign && message.compare(0, kind.size() + 2, kind + ": ") == 0;
  failures.example = repeats ? message.substr(kind.size() + 2) : message;
}

void add_call(LoadResult& result, const Call& call, Nanoseconds took, Nanoseconds objective) {
  ++result.calls;
  for (std::size_t i = 0; i < call.size(); ++i) {
    if (const Error* error = call.error(i)) {
      add_failure(result, *error);
      continue;
    }
    ++result.completed;
    if (took <= objective) ++result.good;
    result.latency.record(static_cast<std::uint64_t>(took));
    result.total += took;
    result.longest = std::max(result.longest, took);
  }
}

void merge(LoadResult& into, const LoadResult& from) {
  into.latency.merge(from.latency);
  into.total += from.total;
  into.longest = std::max(into.longest, from.longest);
  into.calls += from.calls;
  into.completed += from.completed;
  into.good += from.good;
  for (const auto& [kind, failures] : from.failed) {
    LoadResult::Failures& merged = into.failed[kind];
    if (merged.count == 0) merged.example = failures.example;
    merged.count += failures.count;
  }
}

}  // namespace

struct LoadGenerator::State : std::enable_shared_from_this<State> {
  State(std::shared_ptr<PipeState> of, std::vector<Dict> given, LoadSpec wanted)
      : pipe(std::move(of)),
        inputs(std::move(given)),
        spec(std::move(wanted)),
        threads(spec.arrivals.empty() ? spec.clients : 1) {}

  const std::shared_ptr<PipeState> pipe;
  const std::vector<Dict> inputs;
  const LoadSpec spec;
  const std::size_t threads;
  std::atomic<bool> stopping{false};
  std::atomic<std::uint64_t> started{0};  // measured calls

  Mutex mutex;
  CondVar changed;
  std::size_t warm HAMI_GUARDED_BY(mutex) = 0;         // threads that have ended their warm-up
  std::size_t ended HAMI_GUARDED_BY(mutex) = 0;        // threads that start no further call
  std::size_t outstanding HAMI_GUARDED_BY(mutex) = 0;  // calls of the open loop
  Nanoseconds begin HAMI_GUARDED_BY(mutex) = 0;        // of the measurement
  std::optional<Error> failure HAMI_GUARDED_BY(mutex);
  LoadResult result HAMI_GUARDED_BY(mutex);

  void stop() noexcept {
    MutexLock lock(mutex);
    stopping = true;
    changed.notify_all();
  }

  void run(std::size_t number) noexcept {
    try {
      spec.arrivals.empty() ? run_client(number) : run_arrivals();
    } catch (...) {
      MutexLock lock(mutex);
      if (!failure) failure = current_error();
      stopping = true;
    }
    MutexLock lock(mutex);
    ++ended;
    changed.notify_all();
  }

 private:
  std::vector<Dict> choose(std::mt19937_64& random) const {
    std::uniform_int_distribution<std::size_t> any(0, inputs.size() - 1);
    std::vector<Dict> chosen;
    chosen.reserve(spec.per_call);
    for (std::size_t i = 0; i < spec.per_call; ++i) chosen.push_back(inputs[any(random)]);
    return chosen;
  }

  // Runs the warm-up, waits for that of all threads and returns the moment at which the measurement begins.
  Nanoseconds warm_up(std::mt19937_64& random) {
    for (std::size_t i = 0; i < spec.warmup && !stopping; ++i) pipe->run(choose(random), spec.timeout);
    MutexLock lock(mutex);
    if (++warm == threads) begin = now();
    changed.notify_all();
    changed.wait(lock, [&] {
      mutex.assert_held();
      return warm == threads || stopping;
    });
    return begin;
  }

  void run_client(std::size_t number) {
    std::mt19937_64 random(spec.seed + number);
    const Nanoseconds first = warm_up(random);
    const Nanoseconds end = after(first, spec.duration);
    LoadResult own;
    Nanoseconds moment = now();
    while (!stopping && moment < end && started.fetch_add(1) < spec.calls) {
      std::vector<Dict> requests = choose(random);
      const Nanoseconds start = now();
      const Ref<Call> call = pipe->run(std::move(requests), spec.timeout);
      moment = now();
      add_call(own, *call, moment - start, spec.objective);
    }
    MutexLock lock(mutex);
    merge(result, own);
    result.elapsed = std::max(result.elapsed, moment - first);
  }

  // Returns false once the load is to stop.
  bool sleep_until(Nanoseconds due) {
    MutexLock lock(mutex);
    changed.wait_until(lock, due, [&] { return stopping.load(); });
    return !stopping;
  }

  void run_arrivals() {
    std::mt19937_64 random(spec.seed);
    const Nanoseconds first = warm_up(random);
    for (const Nanoseconds arrival : spec.arrivals) {
      const Nanoseconds due = after(first, arrival);
      if (!sleep_until(due)) break;
      start_due(choose(random), first, due);
    }
    MutexLock lock(mutex);
    changed.wait(lock, [&] {
      mutex.assert_held();
      return outstanding == 0;
    });
  }

  void start_due(std::vector<Dict> requests, Nanoseconds first, Nanoseconds due) {
    {
      MutexLock lock(mutex);
      ++outstanding;
      result.late = std::max(result.late, now() - due);
    }
    const auto complete = [self = shared_from_this(), first, due](Call& call) {
      const Nanoseconds moment = now();
      MutexLock lock(self->mutex);
      add_call(self->result, call, moment - due, self->spec.objective);
      self->result.elapsed = std::max(self->result.elapsed, moment - first);
      if (--self->outstanding == 0) self->changed.notify_all();
    };
    try {
      pipe->start(std::move(requests), spec.timeout, InlinePolicy::kNonBlocking, complete);
    } catch (...) {
      MutexLock lock(mutex);
      --outstanding;
      throw;
    }
  }
};

LoadGenerator::LoadGenerator(std::shared_ptr<PipeState> pipe, std::vector<Dict> inputs, LoadSpec spec)
    : state_(std::make_shared<State>(std::move(pipe), std::move(inputs), std::move(spec))) {
  try {
    for (std::size_t i = 0; i < state_->threads; ++i) workers_.push_back(std::make_unique<Worker>("hami-load"));
    for (std::size_t i = 0; i < state_->threads; ++i) workers_[i]->post([state = state_, i] { state->run(i); });
  } catch (...) {
    state_->stop();  // the workers end and are joined
    throw;
  }
}

LoadGenerator::~LoadGenerator() {
  const UninterruptibleScope must_finish;
  state_->stop();
  const Nanoseconds until = after(kClientGracePeriod);
  for (const auto& worker : workers_) worker->stop(until);
}

bool LoadGenerator::wait(Nanoseconds until) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  const bool complete = state.changed.wait_until(lock, until, [&] {
    state.mutex.assert_held();
    return state.ended == state.threads;
  });
  if (complete && state.failure) throw Error(*state.failure);
  return complete;
}

const LoadResult& LoadGenerator::result() const noexcept {
  State& state = *state_;
  MutexLock lock(state.mutex);
  return state.result;
}

}  // namespace hami
