// ThreadMode: the worker, the pool, and an end that never hangs.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "pipes.hpp"
#include "sync/blocking.hpp"
#include "sync/worker.hpp"
#include "value/error.hpp"

using namespace hami;
using hami::testing::Gate;
using hami::testing::Latch;

TEST_CASE("a worker runs its jobs in order and finishes all of them before it ends") {
  std::vector<int> ran;
  {
    Worker worker("test");
    for (int i = 0; i < 100; ++i) worker.post([&ran, i] { ran.push_back(i); });
  }
  REQUIRE_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) CHECK_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST_CASE("run waits for the job and throws what it threw") {
  Worker worker("test");
  bool on_worker = false;
  worker.run([&] { on_worker = worker.is_current(); });
  CHECK(on_worker);
  CHECK_FALSE(worker.is_current());
  CHECK_THROWS_WITH_AS(worker.run([] { throw Error(ErrorCode::kRequest, "no"); }), "no", Error);
  CHECK_THROWS_WITH_AS(worker.run([] { throw 1; }), "an exception that does not derive from std::exception", Error);
  int depth = 0;
  worker.run([&] { worker.run([&] { ++depth; }); });  // on its own thread a job runs at once
  CHECK_EQ(depth, 1);
}

TEST_CASE("a worker whose job does not come back is left behind") {
  static Latch detached;
  BlockingHooks hooks;
  hooks.detach_thread = []() noexcept { detached.add(); };
  const BlockingHooks before = set_blocking_hooks(hooks);
  const auto gate = std::make_shared<Gate>();
  Latch ended;
  Worker worker("test");
  worker.post([gate, &ended] {
    gate->pass();
    ended.add();
  });
  gate->arrived.wait_for(1);
  CHECK_FALSE(worker.stop(now()));
  CHECK(worker.stop(now()));  // there is nothing more to stop
  gate->open();
  ended.wait_for(1);
  detached.wait_for(1);
  set_blocking_hooks(before);
}

TEST_CASE("a job knows its worker, also while another thread waits for its end") {
  static Latch waits;
  static std::thread::id stopping;
  BlockingHooks hooks;
  hooks.leave = []() noexcept -> void* {
    if (std::this_thread::get_id() == stopping) waits.add();
    return nullptr;
  };
  const BlockingHooks before = set_blocking_hooks(hooks);
  stopping = std::this_thread::get_id();
  Worker worker("test");
  bool is_current = false;
  worker.post([&] {
    waits.wait_for(1);
    is_current = worker.is_current();
  });
  CHECK(worker.stop(kNever));
  set_blocking_hooks(before);
  CHECK(is_current);
}

TEST_CASE("a thread works for the owner of its worker, and for those who wait for its job") {
  const int mine = 0, other = 0;
  Worker worker("test", &mine);
  const WorkScope outside(&other);
  CHECK_FALSE(WorkScope::inside(&mine));
  worker.run([&] {
    CHECK(WorkScope::inside(&mine));
    CHECK(WorkScope::inside(&other));
  });
  worker.post([&] { CHECK_FALSE(WorkScope::inside(&other)); });
  worker.run([] {});
}

TEST_CASE("a worker may be ended by its own job") {
  Latch ended;
  auto worker = std::make_shared<Worker>("test");
  Worker& handle = *worker;
  handle.post([&ended, worker = std::move(worker)]() mutable {
    worker = nullptr;
    ended.add();
  });
  ended.wait_for(1);
}

TEST_CASE("a pool starts a worker for each job that waits, up to its limit, and queues the rest") {
  WorkerPool pool("test", 2);
  Gate gate;
  Latch done;
  for (int i = 0; i < 5; ++i)
    pool.post([&] {
      gate.pass();
      done.add();
    });
  gate.arrived.wait_for(2);
  CHECK_EQ(gate.arrived.count(), 2u);
  gate.open();
  done.wait_for(5);
  CHECK(pool.stop(kNever));
}

TEST_CASE("a pool that is stopped takes no more jobs") {
  WorkerPool pool("test", 2);
  Latch ran;
  pool.post([&ran] { ran.add(); });
  ran.wait_for(1);
  CHECK(pool.stop(kNever));
  CHECK_THROWS_WITH_AS(pool.post([] {}), "the pipe is closed", Error);
}
