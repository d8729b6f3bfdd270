// Queue: bounded, ordered, with an end that reaches every waiting thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/counted.hpp"
#include "sync/queue.hpp"
#include "value/error.hpp"

using namespace hami;

namespace {

template <class Function>
ErrorCode code_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

}  // namespace

TEST_CASE("values leave a queue in the order in which they came") {
  Queue queue(3);
  for (int i = 1; i <= 3; ++i) queue.push(i);
  CHECK_EQ(queue.size(), 3u);
  CHECK_EQ(queue.max(), 3u);
  for (int i = 1; i <= 3; ++i) CHECK_EQ(queue.pop().as_int(), i);
  CHECK_FALSE(queue.try_pop().has_value());
}

TEST_CASE("a look takes nothing") {
  Queue queue;
  CHECK_EQ(queue.max(), 1024u);
  CHECK_FALSE(queue.peek().has_value());
  queue.push("first");
  queue.push("second");
  CHECK(queue.peek()->as_text() == "first");
  CHECK(queue.peek()->as_text() == "first");
  CHECK_EQ(queue.size(), 2u);
}

TEST_CASE("a full queue takes nothing more") {
  Queue queue(1, "frames");
  CHECK(queue.try_push(1));
  CHECK_FALSE(queue.try_push(2));
  CHECK_THROWS_WITH(queue.push(2, kNoWait), "queue \"frames\" is full; it holds at most 1");
  CHECK(code_of([&] { queue.push(2, kNoWait); }) == ErrorCode::kQueueFull);
  CHECK_THROWS_WITH(queue.push(2, now()), "queue \"frames\" stayed full until the deadline; it holds at most 1");
  CHECK(code_of([&] { queue.push(2, now()); }) == ErrorCode::kDeadlineExceeded);
  CHECK_EQ(queue.size(), 1u);
}

TEST_CASE("an empty queue gives nothing") {
  Queue queue(1, "frames");
  CHECK_THROWS_WITH(queue.pop(kNoWait), "queue \"frames\" stayed empty until the deadline");
  CHECK(code_of([&] { queue.pop(kNoWait); }) == ErrorCode::kDeadlineExceeded);
  CHECK_THROWS_WITH(Queue(1).pop(now()), "the queue stayed empty until the deadline");
}

TEST_CASE("a queue without capacity is refused") {
  CHECK_THROWS_WITH(Queue(0, "frames"), "max of queue \"frames\" is 0; it must be at least 1");
  CHECK(code_of([] { Queue queue(0); }) == ErrorCode::kConfig);
}

TEST_CASE("a closed queue gives what is in it, then says so") {
  Queue queue(2, "frames");
  queue.push(1);
  queue.push(2);
  CHECK_FALSE(queue.closed());
  queue.close();
  queue.close();
  CHECK(queue.closed());
  CHECK_THROWS_WITH(queue.push(3), "queue \"frames\" is closed");
  CHECK(code_of([&] { queue.try_push(3); }) == ErrorCode::kPipeClosed);
  CHECK_EQ(queue.pop().as_int(), 1);
  CHECK_EQ(queue.next()->as_int(), 2);
  CHECK_FALSE(queue.next().has_value());
  CHECK(code_of([&] { queue.pop(); }) == ErrorCode::kPipeClosed);
  CHECK(code_of([&] { queue.try_pop(); }) == ErrorCode::kPipeClosed);
}

TEST_CASE("waiting threads learn of the end") {
  Queue full(1), empty(1);
  full.push(0);
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { told += code_of([&] { full.push(1); }) == ErrorCode::kPipeClosed; });
    threads.emplace_back([&] { told += code_of([&] { empty.pop(); }) == ErrorCode::kPipeClosed; });
    threads.emplace_back([&] { told += !empty.next().has_value(); });
  }
  full.close();
  empty.close();
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(told.load(), 6);
  CHECK_EQ(full.size(), 1u);  // nothing slipped in
}

TEST_CASE("many threads push and pop every value once, through a queue much smaller than the flow") {
  constexpr int kThreads = 3, kEach = 500;
  Queue queue(2);
  std::vector<std::vector<std::int64_t>> got(kThreads);
  std::vector<std::thread> consumers, producers;
  for (int t = 0; t < kThreads; ++t) {
    consumers.emplace_back([&, t] {
      while (std::optional<Value> value = queue.next()) got[t].push_back(value->as_int());
    });
    producers.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) queue.push(t * kEach + i);
    });
  }
  for (std::thread& thread : producers) thread.join();
  queue.close();
  for (std::thread& thread : consumers) thread.join();
  std::set<std::int64_t> all;
  std::size_t count = 0;
  for (const auto& mine : got) {
    all.insert(mine.begin(), mine.end());
    count += mine.size();
  }
  CHECK_EQ(count, static_cast<std::size_t>(kThreads * kEach));
  CHECK_EQ(all.size(), count);
}

TEST_CASE("one producer's values keep their order through a consumer") {
  Queue queue(1);
  std::vector<std::int64_t> got;
  std::thread consumer([&] {
    while (std::optional<Value> value = queue.next()) got.push_back(value->as_int());
  });
  for (int i = 0; i < 300; ++i) queue.push(i);
  queue.close();
  consumer.join();
  CHECK_EQ(got.size(), 300u);
  CHECK(std::is_sorted(got.begin(), got.end()));
}

TEST_CASE("a queue is a value that stays the same object") {
  const Ref<Queue> queue = make_object<Queue>(4, "frames");
  const Value value = Value::share(*queue);
  CHECK(value.kind() == Kind::kOpaque);
  CHECK(find_queue(value) == queue.get());
  CHECK_EQ(as_queue(value).name(), "frames");
  CHECK(find_queue(Value(1)) == nullptr);
  CHECK_THROWS_WITH_AS(as_queue(Value(1)), "expected Queue, got int", Error);
}

TEST_CASE("all values leave a queue together, and none after its end") {
  Queue queue(3);
  queue.push(1);
  queue.push(2);
  const std::vector<Value> both = queue.pop_all();
  REQUIRE_EQ(both.size(), 2u);
  CHECK_EQ(both[0].as_int(), 1);
  CHECK_EQ(both[1].as_int(), 2);
  CHECK(code_of([&] { queue.pop_all(kNoWait); }) == ErrorCode::kDeadlineExceeded);
  queue.push(3);
  queue.close();
  CHECK_EQ(queue.pop_all().size(), 1u);
  CHECK(queue.pop_all().empty());
}

TEST_CASE("a consumer that takes all lets every producer go on that waits") {
  Queue queue(1);
  queue.push(0);
  std::vector<std::thread> producers;
  for (int i = 1; i <= 4; ++i) producers.emplace_back([&, i] { queue.push(i); });
  std::multiset<std::int64_t> taken;
  while (taken.size() < 5)
    for (const Value& value : queue.pop_all()) taken.insert(value.as_int());
  for (std::thread& producer : producers) producer.join();
  CHECK_EQ(taken.size(), 5u);
  CHECK_EQ(*taken.rbegin(), 4);
}

TEST_CASE("the event of a queue completes with a value or with the end") {
  Queue queue(2);
  const Ref<Event> first = queue.readable();
  CHECK_EQ(queue.readable().get(), first.get());
  CHECK_FALSE(first->done());
  queue.push(1);
  CHECK(first->done());
  CHECK(queue.readable()->done());
  queue.pop();
  const Ref<Event> last = queue.readable();
  CHECK_FALSE(last->done());
  queue.close();
  CHECK(last->done());
  CHECK(queue.readable()->done());
}
