// Event: one outcome, told once to everyone.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "sync/event.hpp"
#include "sync/waiting.hpp"

using namespace hami;

namespace {

Error bad() { return Error(ErrorCode::kRequest, "bad page"); }

}  // namespace

TEST_CASE("an event is waiting until it is notified") {
  const Ref<Event> event = make_object<Event>();
  CHECK_FALSE(event->done());
  CHECK_FALSE(event->wait_until(kNoWait));
  CHECK(event->notify());
  CHECK(event->done());
  CHECK(event->wait_until(kNoWait));
  CHECK_FALSE(event->error().has_value());
}

TEST_CASE("a failed event is done and keeps its error") {
  const Ref<Event> event = make_object<Event>();
  CHECK(event->fail(bad()));
  event->wait();
  REQUIRE(event->error().has_value());
  CHECK(event->error()->code() == ErrorCode::kRequest);
  CHECK_EQ(event->error()->message(), "bad page");
}

TEST_CASE("the first outcome wins") {
  const Ref<Event> notified = make_object<Event>();
  CHECK(notified->notify());
  CHECK_FALSE(notified->fail(bad()));
  CHECK_FALSE(notified->error().has_value());
  const Ref<Event> failed = make_object<Event>();
  CHECK(failed->fail(bad()));
  CHECK_FALSE(failed->notify());
  CHECK(failed->error().has_value());
}

TEST_CASE("an event of several completions is done after the last and keeps the first error") {
  const Ref<Event> event = make_object<Event>(std::size_t{3});
  int called = 0;
  event->on_done([&](const Event&) { ++called; });
  CHECK(event->claim());
  CHECK(event->notify(Value(1)));
  CHECK(event->fail(bad()));
  CHECK_FALSE(event->done());
  CHECK_FALSE(event->error().has_value());
  CHECK_EQ(called, 0);
  CHECK(event->fail(Error(ErrorCode::kRequest, "worse page")));
  CHECK(event->done());
  CHECK_EQ(called, 1);
  CHECK_EQ(event->error()->message(), "bad page");
  CHECK(event->value().is_none());
  CHECK_FALSE(event->notify());
  CHECK_FALSE(event->claim());
}

TEST_CASE("of many threads that bring an outcome one succeeds, and each callback runs once") {
  for (int round = 0; round < 50; ++round) {
    const Ref<Event> event = make_object<Event>();
    std::atomic<int> winners{0}, told{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] { winners += i % 2 ? event->notify() : event->fail(bad()); });
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] { event->on_done([&](const Event& done) { told += done.done(); }); });
    for (std::thread& thread : threads) thread.join();
    CHECK_EQ(winners.load(), 1);
    CHECK_EQ(told.load(), 4);
  }
}

TEST_CASE("every waiting thread wakes up") {
  const Ref<Event> event = make_object<Event>();
  std::atomic<int> awake{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      event->wait();
      awake += event->done();
    });
  event->notify();
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(awake.load(), 4);
}

TEST_CASE("callbacks run in their order before notify returns, and at once on an event that is done") {
  const Ref<Event> event = make_object<Event>();
  std::string order;
  CHECK(event->on_done([&](const Event&) { order += 'a'; }) != 0);
  CHECK(event->on_done([&](const Event&) { order += 'b'; }) != 0);
  event->notify();
  CHECK_EQ(order, "ab");
  CHECK(event->on_done([&](const Event& done) { order += done.error() ? 'x' : 'c'; }) == 0);
  CHECK_EQ(order, "abc");
}

TEST_CASE("a callback may use the event, for no lock is held") {
  const Ref<Event> event = make_object<Event>();
  int inner = 0;
  event->on_done([&](const Event& done) {
    CHECK(done.wait_until(kNoWait));
    CHECK_FALSE(event->notify());
    event->on_done([&](const Event&) { ++inner; });
  });
  event->fail(bad());
  CHECK_EQ(inner, 1);
}

TEST_CASE("a forgotten callback does not run and releases its captures") {
  const Ref<Event> event = make_object<Event>();
  const auto held = std::make_shared<int>(0);
  const std::uint64_t number = event->on_done([held](const Event&) { ++*held; });
  CHECK_EQ(held.use_count(), 2);
  CHECK(event->forget(number));
  CHECK_EQ(held.use_count(), 1);
  CHECK_FALSE(event->forget(number));
  event->notify();
  CHECK_EQ(*held, 0);
}

TEST_CASE("a callback that holds the last reference to its event is released with it") {
  Ref<Event> event = make_object<Event>();
  const auto held = std::make_shared<int>(0);
  event->on_done([event, held](const Event&) { ++*held; });
  Event* raw = event.get();
  event = {};
  raw->notify();  // the event goes at the end of it
  CHECK_EQ(*held, 1);
  CHECK_EQ(held.use_count(), 1);
}

TEST_CASE("one party promises the outcome") {
  const Ref<Event> event = make_object<Event>();
  CHECK(event->claim());
  CHECK_FALSE(event->claim());
  const Ref<Event> done = make_object<Event>();
  done->notify();
  CHECK_FALSE(done->claim());
}

TEST_CASE("an event is a value that stays the same object") {
  const Ref<Event> event = make_object<Event>();
  const Value value = Value::share(*event);
  CHECK(value.kind() == Kind::kEvent);
  CHECK(&as_event(Value(value)) == event.get());
  CHECK_THROWS_WITH_AS(as_event(Value("text")), "expected Event, got str", Error);
}
