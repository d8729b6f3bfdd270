// The parts of the core and of hami-process that hand work from thread to thread, in every order of their steps.
//
//   interleavings     one line for each part: its name, and how many orders were tried. Status 1 if a promise breaks in one
//
// The sources of these parts are compiled here as they are, with the mutex, the atomic and the clock of model/. Each wait has to
// end, so a lost wake-up is a deadlock.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/log.cpp"
#include "base/near.cpp"
#include "base/process.cpp"
#include "sync/blocking.cpp"
#include "sync/event.cpp"
#include "sync/queue.cpp"
#include "sync/waiting.cpp"
#include "value/dict.cpp"
#include "value/error.cpp"
#include "value/tensor.cpp"
#include "value/value.cpp"
#include "value/visible.cpp"

#include "model_mailbox.hpp"

using namespace hami;
using model::Program;

namespace {

void expect(bool holds, const char* what) {
  if (!holds) model::fail(what);
}

// ---- Parker: the completion of several calls, whose threads wake each other ----

struct Call final : Counted {
  Parker parker;
  bool done = false;
  bool waited = false;

  bool wait(Nanoseconds until) {
    waited = parker.wait(until, [&] {
      parker.mutex.assert_held();
      return done;
    }, [] {});
    return waited;
  }
  bool complete() {
    MutexLock lock(parker.mutex);
    done = true;
    return parker.parked();
  }
};

// `limited`: how many of the threads wait for a limited time only.
void parked_threads(Program& program, std::size_t count, std::size_t limited) {
  const auto calls = std::make_shared<std::vector<Ref<Call>>>();
  for (std::size_t i = 0; i < count; ++i) calls->push_back(make_counted<Call>());
  for (std::size_t i = 0; i < count; ++i)
    program.thread([calls, i, limited] { (*calls)[i]->wait(i < limited ? 10 : kNever); });
  program.thread([calls] {
    std::vector<Parker::Entry> parked;
    for (const Ref<Call>& call : *calls)
      if (call->complete())
        parked.push_back({Ref<Counted>(call.get()), &call->parker});
      else
        call->parker.wake();
    Parker::wake_all(parked);
  });
  program.at_end([calls, limited] {
    for (std::size_t i = limited; i < calls->size(); ++i) expect((*calls)[i]->waited, "a wait without a limit gave up");
  });
}

// ---- The GIL: a thread that waits must not hold it, and takes it back without the mutex of what it waits for ----

Mutex* gil = nullptr;

struct GilHooks {
  GilHooks() {
    BlockingHooks hooks;
    hooks.leave = []() noexcept -> void* { return gil ? (gil->unlock(), gil) : nullptr; };
    hooks.enter = [](void* token) noexcept {
      if (token) static_cast<Mutex*>(token)->lock();
    };
    set_blocking_hooks(hooks);
  }
};

void threads_with_the_gil(Program& program) {
  const auto lock = std::make_shared<Mutex>();
  const auto calls = std::make_shared<std::vector<Ref<Call>>>();
  for (int i = 0; i < 2; ++i) calls->push_back(make_counted<Call>());
  gil = lock.get();
  for (int i = 0; i < 2; ++i)
    program.thread([lock, calls, i] {
      lock->lock();
      (*calls)[static_cast<std::size_t>(i)]->wait(kNever);
      lock->assert_held();
      lock->unlock();
    });
  program.thread([lock, calls] {
    lock->lock();  // as a backend of Python that completes them
    for (const Ref<Call>& call : *calls) {
      call->complete();
      call->parker.wake();
    }
    lock->unlock();
  });
}

// ---- Queue: values from producers to consumers ----

void producers_and_consumers(Program& program, int producers, int consumers, int each) {
  struct State {
    explicit State() : queue(make_counted<Queue>(1)) {}
    Ref<Queue> queue;
    int sum = 0, count = 0;
  };
  const auto state = std::make_shared<State>();
  for (int i = 0; i < producers; ++i)
    program.thread([state, i, each] {
      for (int n = 0; n < each; ++n) state->queue->push(Value(std::int64_t{1 + i * each + n}));
    });
  for (int i = 0; i < consumers; ++i)
    program.thread([state, mine = producers * each / consumers] {
      for (int n = 0; n < mine; ++n) {
        state->sum += static_cast<int>(state->queue->pop().as_int());
        ++state->count;
      }
    });
  program.at_end([state, total = producers * each] {
    expect(state->count == total && state->sum == total * (total + 1) / 2, "a value was lost or came twice");
  });
}

// The consumer takes what there is, as a batch, until the queue is closed.
void batches_until_the_end(Program& program) {
  const auto queue = std::make_shared<Ref<Queue>>(make_counted<Queue>(2));
  const auto taken = std::make_shared<std::size_t>(0);
  program.thread([queue] {
    for (int n = 0; n < 3; ++n) (*queue)->push(Value(std::int64_t{n}));
    (*queue)->close();
  });
  program.thread([queue, taken] {
    for (;;) {
      const std::vector<Value> batch = (*queue)->pop_all();
      if (batch.empty()) return;
      *taken += batch.size();
    }
  });
  program.at_end([taken] { expect(*taken == 3, "a batch lost a value"); });
}

// ---- Mailbox of hami-process: messages from a process to another one ----

void messages(Program& program, std::uint32_t count, bool closes) {
  struct Shared {
    hami_process::Mailbox box{};
    std::uint32_t room = 0;
    std::uint32_t taken = 0;
  };
  constexpr std::int64_t kLong = std::int64_t{1} << 60;
  const auto shared = std::make_shared<Shared>();
  program.thread([shared, count] {
    for (std::uint32_t n = 1; n <= count; ++n) {
      if (shared->box.put(&shared->room, &n, sizeof n, kLong) != hami_process::kDone) return;
    }
  });
  program.thread([shared, count] {
    for (std::uint32_t n = 1; n <= count; ++n) {
      std::uint32_t got = 0;
      if (shared->box.take(&shared->room, &got, sizeof got, kLong) != sizeof got) return;
      expect(got == n, "a message was lost, came twice or was torn");
      shared->taken = got;
    }
  });
  if (closes) program.thread([shared] { shared->box.close(); });
  program.at_end([shared, count, closes] {
    expect(closes || shared->taken == count, "a message was not taken");
    expect(!closes || (shared->box.state.load() & hami_process::Mailbox::kClosedBit), "a closed mailbox is open again");
  });
}

bool holds(const char* name, const std::function<void(Program&)>& make) {
  const model::Result result = model::explore(make);
  std::printf("%s: %llu%s%s\n", name, static_cast<unsigned long long>(result.runs), result.failure.empty() ? "" : ": ",
              result.failure.c_str());
  gil = nullptr;
  return result.failure.empty();
}

}  // namespace

int main() {
  const GilHooks hooks;
  bool all = true;
  all &= holds("parker, 2 calls", [](Program& program) { parked_threads(program, 2, 0); });
  all &= holds("parker, 5 calls", [](Program& program) { parked_threads(program, 5, 0); });
  all &= holds("parker, 3 calls, one with a limit", [](Program& program) { parked_threads(program, 3, 1); });
  all &= holds("GIL", threads_with_the_gil);
  all &= holds("queue, 1 to 1", [](Program& program) { producers_and_consumers(program, 1, 1, 3); });
  all &= holds("queue, 2 to 1", [](Program& program) { producers_and_consumers(program, 2, 1, 1); });
  all &= holds("queue, 2 to 2", [](Program& program) { producers_and_consumers(program, 2, 2, 1); });
  all &= holds("batches", batches_until_the_end);
  all &= holds("mailbox", [](Program& program) { messages(program, 2, false); });
  all &= holds("mailbox that closes", [](Program& program) { messages(program, 1, true); });
  return all ? 0 : 1;
}
