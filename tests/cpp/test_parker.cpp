// Threads that are woken together: each of them wakes, no matter what the others do.
#include <doctest/doctest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "sync/waiting.hpp"

using namespace hami;

namespace {

struct Job final : Counted {
  Parker parker;
  bool done = false;

  // True: it was done in time.
  bool wait(Nanoseconds until = kNever) {
    return parker.wait(until, [&] { return done; }, [] {});
  }
  bool parked() const {
    MutexLock lock(parker.mutex);
    return parker.parked();
  }
  // True: its thread sleeps, and is still to be woken.
  bool complete() {
    MutexLock lock(parker.mutex);
    done = true;
    return parker.parked();
  }
};

using Jobs = std::vector<Ref<Job>>;

Jobs jobs(std::size_t count) {
  Jobs made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(make_counted<Job>());
  return made;
}

void finish_together(const Jobs& all) {
  std::vector<Parker::Entry> parked;
  for (const Ref<Job>& job : all)
    if (job->complete()) parked.push_back({Ref<Counted>(job.get()), &job->parker});
  Parker::wake_all(parked);
  CHECK(parked.empty());
}

class Threads {
 public:
  template <class Function>
  void start(Function function) {
    threads_.emplace_back(std::move(function));
  }
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::deque<std::thread> threads_;
};

void sleep_until_all_are_asleep(const Jobs& all) {
  for (const Ref<Job>& job : all)
    while (!job->parked()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("all who sleep are woken together, however many") {
  for (std::size_t count = 0; count < 12; ++count) {
    const Jobs all = jobs(count);
    Threads threads;
    for (const Ref<Job>& job : all) threads.start([job] { CHECK(job->wait()); });
    sleep_until_all_are_asleep(all);
    finish_together(all);
  }
}

TEST_CASE("a thread does not sleep for a call that is done") {
  const Ref<Job> job = make_counted<Job>();
  CHECK_FALSE(job->complete());
  CHECK(job->wait());
  CHECK_FALSE(job->parked());
}

TEST_CASE("a thread that has left wakes no other and delays no other") {
  for (std::size_t leaver = 0; leaver < 7; ++leaver) {
    const Jobs all = jobs(7);
    Threads threads;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i != leaver) threads.start([job = all[i]] { CHECK(job->wait()); });
    Jobs sleepers = all;
    sleepers.erase(sleepers.begin() + static_cast<std::ptrdiff_t>(leaver));
    sleep_until_all_are_asleep(sleepers);
    std::vector<Parker::Entry> parked;  // as if the leaver had slept when it was woken
    for (const Ref<Job>& job : all) {
      job->complete();
      parked.push_back({Ref<Counted>(job.get()), &job->parker});
    }
    Parker::wake_all(parked);
  }
}

TEST_CASE("a thread that gives up at that moment wakes the threads that it was to wake") {
  constexpr std::size_t kThreads = 8;
  for (int round = 0; round < 300; ++round) {
    const Jobs all = jobs(kThreads);
    std::atomic<std::size_t> in_time{0};
    {
      Threads threads;
      for (std::size_t i = 0; i < kThreads; ++i) {
        const Nanoseconds until = i % 2 ? kNever : after(20'000 * static_cast<Nanoseconds>(round % 10));
        threads.start([&, job = all[i], until] { in_time += job->wait(until); });
      }
      finish_together(all);
    }
    CHECK_GE(in_time, kThreads / 2);
  }
}
