// explore: threads as coroutines, and the search through their orders.
#include "explore.hpp"

#include <ucontext.h>

#include <memory>

namespace model {

namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxSteps = 10'000;  // of one run: more is a loop that never ends

using Mask = std::uint64_t;

// A choice of the current run: of a thread, or of a number.
struct Choice {
  bool of_thread = true;
  Mask open = 0;    // alternatives that are not tried yet
  Mask asleep = 0;  // threads whose next step was tried before, and is independent of all since
  Mask tried = 0;
  std::size_t chosen = 0;
};

struct Thread {
  std::function<void()> body;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  ucontext_t context{};
  Step next;
  std::function<bool()> enabled;
  bool ended = false;
};

bool dependent(const Step& a, const Step& b) {
  const auto same = [](const void* x, const void* y) { return x && x == y; };
  if (a.reads && b.reads) return false;
  return a.all || b.all || same(a.one, b.one) || same(a.one, b.other) || same(a.other, b.one) || same(a.other, b.other);
}

}  // namespace

struct Run {
  explicit Run(std::vector<Choice>& made) : choices(made) {}

  std::vector<Choice>& choices;  // of the run before, up to the last open one
  std::size_t depth = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  ucontext_t scheduler{};
  Thread* current = nullptr;
  Mask asleep = 0;
  std::int64_t time = 0;
  std::string failure, order;
  bool repeated = false;  // every order of what is left was tried in an earlier run

  static Run*& active() {
    static Run* run = nullptr;
    return run;
  }

  void start(const Program& program) {
    for (const auto& body : program.bodies_) {
      auto thread = std::make_unique<Thread>();
      thread->body = body;
      getcontext(&thread->context);
      thread->context.uc_stack.ss_sp = thread->stack.get();
      thread->context.uc_stack.ss_size = kStackBytes;
      thread->context.uc_link = &scheduler;
      makecontext(&thread->context, [] {
        Thread& self = *active()->current;
        self.body();
        self.ended = true;
      }, 0);
      threads.push_back(std::move(thread));
    }
    for (const auto& thread : threads) resume(*thread);  // up to its first step
    while (failure.empty() && run_next()) {
    }
    current = nullptr;
    if (failure.empty() && !repeated && program.check_) program.check_();
  }

  bool run_next() {
    Mask enabled = 0;
    bool any = false;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      const Thread& thread = *threads[i];
      any = any || !thread.ended;
      if (!thread.ended && (!thread.enabled || thread.enabled())) enabled |= Mask{1} << i;
    }
    if (!any) return false;
    if (!enabled) return fail("a deadlock"), false;
    if (depth >= kMaxSteps) return fail("a loop without an end"), false;
    if (depth == choices.size()) choices.push_back({true, enabled & ~asleep, asleep, 0, 0});
    Choice& choice = choices[depth++];
    if (choice.tried == 0 && choice.open == 0) return repeated = true, false;
    if (choice.tried == 0) pick(choice);
    order += std::to_string(choice.chosen);
    Thread& next = *threads[choice.chosen];
    const Mask before = choice.asleep | (choice.tried & ~(Mask{1} << choice.chosen));
    asleep = 0;
    for (std::size_t i = 0; i < threads.size(); ++i)
      if ((before >> i & 1) && !dependent(threads[i]->next, next.next)) asleep |= Mask{1} << i;
    resume(next);
    return true;
  }

  void resume(Thread& thread) {
    current = &thread;
    swapcontext(&scheduler, &thread.context);
  }

  static void pick(Choice& choice) {
    choice.chosen = static_cast<std::size_t>(__builtin_ctzll(choice.open));
    choice.open &= choice.open - 1;
    choice.tried |= Mask{1} << choice.chosen;
  }

  void fail(const std::string& what) {
    if (failure.empty()) failure = what + "; the threads ran in the order " + order;
  }
};

void step(Step next, std::function<bool()> enabled) {
  Run* const run = Run::active();
  if (!run || !run->current) return;
  Thread& self = *run->current;
  self.next = next;
  self.enabled = std::move(enabled);
  swapcontext(&self.context, &run->scheduler);
}

std::size_t choose(std::size_t count) {
  Run* const run = Run::active();
  if (!run || !run->current || count < 2) return 0;
  if (run->depth == run->choices.size()) run->choices.push_back({false, (Mask{1} << count) - 1, 0, 0, 0});
  Choice& choice = run->choices[run->depth++];
  if (choice.tried == 0) Run::pick(choice);
  return choice.chosen;
}

void fail(const std::string& what) {
  if (Run* const run = Run::active()) run->fail(what);
}

std::int64_t& time() {
  static std::int64_t outside = 0;
  return Run::active() ? Run::active()->time : outside;
}

Result explore(const std::function<void(Program&)>& make) {
  Result result;
  std::vector<Choice> choices;
  for (;;) {
    {  // a run that is left in the middle leaves what its threads have made
      Program program;
      make(program);
      Run run(choices);
      Run::active() = &run;
      run.start(program);
      ++result.runs;
      result.failure = run.failure;
      Run::active() = nullptr;
    }
    if (!result.failure.empty()) return result;
    while (!choices.empty() && choices.back().open == 0) choices.pop_back();
    if (choices.empty()) return result;
    Run::pick(choices.back());
  }
}

}  // namespace model
