// Memory ends: each allocation between a call and its completion fails once, and memory ends at each of them. Every request ends
// once, with its usual outcome or with "out of memory", and the pipe serves the next one.
#include <algorithm>
#include <optional>

#include "base/log.hpp"
#include "failing_allocations.hpp"
#include "pipes.hpp"
#include "sync/event.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// The errors with which a request may end.
using Codes = std::vector<ErrorCode>;
const Codes kOnlyMemory = {ErrorCode::kOutOfMemory};

// One call, or one submission, of several requests: the test's own memory is spared.
class Requests {
 public:
  explicit Requests(std::vector<Dict> dicts) : dicts_(std::move(dicts)), count_(dicts_.size()) {}

  void run(PipeState& pipe, Nanoseconds timeout = kNever) {
    attempt([&] { call_ = pipe.run(std::move(dicts_), timeout); });
    if (call_) done_->add();
  }

  // `then` runs when the requests are complete.
  void submit(PipeState& pipe, Nanoseconds timeout = kNever, InlinePolicy how = InlinePolicy::kNonBlocking,
              std::function<void()> then = {}) {
    std::optional<Spared> spared(std::in_place);
    Call::OnComplete on_complete = [done = done_, then = std::move(then)](Call&) {
      const Spared mine;
      if (then) then();
      done->add();
    };
    spared.reset();
    attempt([&] { call_ = pipe.start(std::move(dicts_), timeout, how, std::move(on_complete)); });
  }

  void wait() {
    if (!refused_) done_->wait_for(1);
  }
  Call* call() const { return call_.get(); }  // null: it was refused

  // After the pipe is closed. Whether all have a result.
  bool check(const Codes& allowed) const {
    CHECK_EQ(done_->count(), refused_ ? 0u : 1u);
    const auto may_be = [&](const Error& error) {
      INFO("the error is " << error.message());
      CHECK(std::count(allowed.begin(), allowed.end(), error.code()) == 1);
      if (error.code() == ErrorCode::kOutOfMemory) CHECK(error.is_final());
    };
    if (refused_) may_be(*refused_);
    bool all_good = !refused_;
    for (std::size_t i = 0; !refused_ && i < count_; ++i) {
      const CallResult one = outcome(*call_, i);
      all_good = all_good && one.good;
      if (const Error* error = call_->error(i)) may_be(*error);
    }
    return all_good;
  }

 private:
  template <class Start>
  void attempt(const Start& start) {
    try {
      start();
    } catch (...) {
      const Spared spared;
      refused_ = current_error();
    }
  }

  std::vector<Dict> dicts_;
  std::size_t count_;
  std::shared_ptr<Latch> done_ = std::make_shared<Latch>();
  Ref<Call> call_;
  std::optional<Error> refused_;
};

// A course of events in a pipe, made again for each failure.
struct Course {
  PipeConfig config;
  std::function<void(PipeState&)> run;  // returns when all requests are complete
  std::function<void()> check;          // after the pipe is closed
  Dict next = request_of(Value(1));
  std::optional<std::int64_t> next_result = 2;  // none: any
};

constexpr std::size_t kEndless = 5'000;  // more allocations than any course has

// Returns the number of allocations.
template <class Make>
std::size_t with_each_failure(const Make& make, Failing which) {
  for (std::size_t number = 1; number < kEndless; ++number) {
    CAPTURE(number);
    CAPTURE(which == Failing::kOne);
    std::optional<Spared> spared(std::in_place);
    const Course course = make();
    TestPipe pipe(course.config);
    bool failed = false;
    {
      const FailingAllocations failing(which, number);
      spared.reset();
      course.run(*pipe);
      spared.emplace();
      failed = FailingAllocations::failed();
    }
    if (!pipe->closed()) {
      const CallResult next = pipe.call(course.next);
      CHECK_EQ(next.message, "");
      if (course.next_result) CHECK_EQ(next.number(), *course.next_result);
    }
    pipe.close();
    course.check();
    if (!failed) return number - 1;
  }
  FAIL("the course does not end");
  return 0;
}

template <class Make>
void with_each_failure(const Make& make) {
  CHECK_EQ(with_each_failure(make, Failing::kOne) > 0, kAllocationsCanFail);
  with_each_failure(make, Failing::kAllFrom);
}

enum class How { kCall, kSubmit, kFromLoop };

// One call, or one submission.
Course simple(PipeConfig config, std::vector<Dict> dicts, How how, const Codes& allowed) {
  const auto requests = std::make_shared<Requests>(std::move(dicts));
  Course course;
  course.config = std::move(config);
  course.run = [requests, how](PipeState& pipe) {
    if (how == How::kCall)
      requests->run(pipe);
    else
      requests->submit(pipe, kNever, how == How::kSubmit ? InlinePolicy::kNonBlocking : InlinePolicy::kEventLoop);
    requests->wait();
  };
  course.check = [requests, allowed] { requests->check(allowed); };
  return course;
}

void each_way(const PipeConfig& config, const std::vector<Dict>& dicts, const Codes& allowed = kOnlyMemory) {
  for (const How how : {How::kCall, How::kSubmit, How::kFromLoop})
    with_each_failure([&] { return simple(config, dicts, how, allowed); });
}
void each_way_at_one_node(const Keys& keys, const std::vector<std::int64_t>& data, const Codes& allowed = kOnlyMemory) {
  each_way(one_node(keys), requests_of(data), allowed);
}

const Codes kMemoryOrRequest = {ErrorCode::kOutOfMemory, ErrorCode::kRequest};

Value numbers(std::initializer_list<int> list) { return make_list(std::vector<Value>(list.begin(), list.end())); }

void define_fallible() {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, 8}, ""});
  define("TestAnyThread", [](Batch batch, const Params&) { add(batch, 1); }, {any_thread(), {1, 8}, ""});
  define("TestInline", [](Batch batch, const Params&) { add(batch, 1); },
         {{ThreadMode::kConcurrent, true, true}, {}, ""});
  define("TestSum", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(number(*request) + request->dict.find("other")->as_int()));
  });
  define("TestPicky", [](Batch batch, const Params&) {
    for (const Request* request : batch)
      if (number(*request) == 2) throw Error(ErrorCode::kRequest, "a text that needs memory: the number is 2");
    add(batch, 1);
  }, {own_thread(), {1, 8}, ""});
}

}  // namespace

TEST_CASE("memory ends while a request runs on its caller's thread") {
  define_fallible();
  each_way_at_one_node({{"backend", "TestInline"}}, {1});
  each_way_at_one_node({{"backend", "S[TestInline,Identity]"}}, {1, 2, 3});
}

TEST_CASE("memory ends while requests are queued for an instance and run there") {
  define_fallible();
  each_way_at_one_node({{"backend", "TestAddOne"}, {"instance_num", 2}}, {1});
  each_way_at_one_node({{"backend", "TestAddOne"}}, {1, 2, 3, 4, 5});
  each_way_at_one_node({{"backend", "TestAnyThread"}, {"max", 2}}, {1, 2, 3, 4, 5});
}

TEST_CASE("memory ends while a request runs on a thread of the pipe, because its entrypoint blocks") {
  define_fallible();
  PipeConfig config = one_node({{"backend", "TestAddOne"}});
  config.entrypoint = "S[Forward[node.n],Identity]";
  each_way(config, requests_of({1, 2}));
}

TEST_CASE("memory ends while a failed batch runs again request by request") {
  define_fallible();
  each_way_at_one_node({{"backend", "TestPicky"}}, {1, 2, 3}, kMemoryOrRequest);
  each_way_at_one_node({{"backend", "TestPicky"}, {"on_batch_error", "fail"}}, {1, 2, 3}, kMemoryOrRequest);
}

TEST_CASE("memory ends while the parts of a request run") {
  define_fallible();
  const auto fan_out = [&](const Keys& keys, const char* entrypoint, Value data) {
    PipeConfig config = one_node(keys);
    if (entrypoint) config.entrypoint = entrypoint;
    for (const How how : {How::kCall, How::kSubmit})
      with_each_failure([&] {
        Course made = simple(config, {request_of(data), request_of(numbers({})), request_of(numbers({4}))}, how,
                             kMemoryOrRequest);
        made.next = request_of(numbers({7}));
        made.next_result = std::nullopt;
        return made;
      });
  };
  fan_out({{"backend", "TestAddOne"}}, "FanOut[Forward[node.n]]", numbers({1, 3}));
  fan_out({{"backend", "TestPicky"}}, "FanOut[Forward[node.n]]", numbers({1, 2, 3}));
  fan_out({{"backend", "FanOut[TestPicky]"}}, nullptr, numbers({1, 2, 3}));
}

TEST_CASE("memory ends while requests go through a graph") {
  define_fallible();
  PipeConfig diamond;
  diamond.nodes = {{"start", {{"backend", "TestAddOne"}, {"next", "left, right"}}},
                   {"left", {{"backend", "TestAddOne"}, {"next", "join"}}},
                   {"right", {{"backend", "TestPicky"}, {"next", "join"}}},
                   {"join", {{"backend", "TestSum"}, {"map", "left[result:data], right[result:other]"}}}};
  const auto course = [&](How how) {
    Course made = simple(diamond, requests_of({1, 5}), how, kMemoryOrRequest);
    made.next = request_of(Value(2));
    made.next_result = 8;
    return made;
  };
  with_each_failure([&] { return course(How::kCall); });
  with_each_failure([&] { return course(How::kSubmit); });
  PipeConfig ends;  // with several last nodes, and one that runs only if its predecessor left no result
  ends.nodes = {{"start", {{"backend", "S[TestAddOne,Identity]"}, {"next", "left, right"}}},
                {"left", {{"backend", "TestAddOne"}}},
                {"right", {{"backend", "Identity"}, {"next", "other"}}},
                {"other", {{"backend", "TestAddOne"}, {"or", true}}}};
  with_each_failure([&] {
    Course made = simple(ends, requests_of({1, 5}), How::kSubmit, kOnlyMemory);
    made.next_result = std::nullopt;
    return made;
  });
}

TEST_CASE("memory ends in the containers") {
  define_fallible();
  for (const char* backend :
       {"HasKey(absent)[Pass,TestAddOne]", "LoopCondition(count=1)[TestAddOne]", "Filter[TestIsOne,TestAddOne]",
        "CatSplit[TestCat,TestAddOne,TestSplit]", "S[Send(q),Observer(q),TestAddOne]",
        "S[Add(long_enough_to_need_memory='a value that is long enough to need memory'),TestAddOne]"}) {
    CAPTURE(backend);
    define("TestIsOne", [](Batch batch, const Params&) {
      for (Request* request : batch) answer(*request, Value(number(*request) == 1));
    });
    define("TestCat", [](Batch batch, const Params&) {
      for (Request* request : batch) answer(*request, *batch[0].dict.find(kData));
    });
    define("TestSplit", [](Batch batch, const Params&) {
      for (Request* request : batch) answer(*request, *request->dict.find(kData));
    });
    each_way_at_one_node({{"backend", backend}}, {1, 1});
  }
}

namespace {

constexpr Nanoseconds kMillisecond = 1'000'000;

// A node whose backend waits until the course opens it.
struct Held {
  std::shared_ptr<Latch> opened = std::make_shared<Latch>();
  std::vector<std::shared_ptr<Requests>> requests;

  explicit Held(std::size_t count) {
    define("TestHeld", [opened = opened](Batch batch, const Params&) {
      opened->wait_for(1);
      add(batch, 1);
    }, {own_thread(), {}, ""});
    for (std::size_t i = 0; i < count; ++i) requests.push_back(std::make_shared<Requests>(requests_of({1})));
  }
  void wait() const {
    for (const auto& each : requests) each->wait();
    opened->add();
  }
  void check(const Codes& allowed) const {
    for (const auto& each : requests) each->check(allowed);
  }
};

// `run` starts the requests, which end although the backend is held.
template <class Run>
void while_held(std::size_t count, Keys keys, Codes allowed, const Run& run) {
  keys.emplace_back("backend", "TestHeld");
  allowed.push_back(ErrorCode::kOutOfMemory);
  with_each_failure([&] {
    const auto held = std::make_shared<Held>(count);
    Course course;
    course.config = one_node(keys);
    course.run = [held, run](PipeState& pipe) {
      run(pipe, *held);
      held->wait();
    };
    course.check = [held, allowed] { held->check(allowed); };
    return course;
  });
}

}  // namespace

TEST_CASE("memory ends while requests time out, running and queued") {
  while_held(3, {}, {ErrorCode::kDeadlineExceeded}, [](PipeState& pipe, Held& held) {
    for (const auto& each : held.requests) each->submit(pipe, kMillisecond);
  });
  while_held(1, {}, {ErrorCode::kDeadlineExceeded},
             [](PipeState& pipe, Held& held) { held.requests[0]->run(pipe, kMillisecond); });
}

TEST_CASE("memory ends while requests are cancelled, running and queued") {
  while_held(3, {}, {ErrorCode::kCancelled}, [](PipeState& pipe, Held& held) {
    for (const auto& each : held.requests) each->submit(pipe);
    for (const auto& each : held.requests)
      if (Call* const call = each->call()) call->give_up(Error::cancelled());
  });
}

TEST_CASE("memory ends while the queue of a node is full") {
  while_held(4, {{"max_queue_size", 1}, {"on_full", "reject"}}, {ErrorCode::kQueueFull},
             [](PipeState& pipe, Held& held) {
    for (const auto& each : held.requests) each->submit(pipe);
    held.opened->add();
  });
  while_held(4, {{"max_queue_size", 1}}, {ErrorCode::kDeadlineExceeded}, [](PipeState& pipe, Held& held) {
    for (const auto& each : held.requests) each->submit(pipe, kMillisecond);
  });
}

TEST_CASE("memory ends while a pipe with open requests closes") {
  while_held(3, {}, {ErrorCode::kPipeClosed}, [](PipeState& pipe, Held& held) {
    std::optional<Spared> spared(std::in_place);
    const auto open = [&held] { held.opened->add(); };
    spared.reset();
    for (const auto& each : held.requests) each->submit(pipe, kNever, InlinePolicy::kNonBlocking, open);
    if (!held.requests[0]->call() && !held.requests[1]->call() && !held.requests[2]->call()) held.opened->add();
    CHECK(pipe.close(0).empty());
  });
}

TEST_CASE("memory ends while requests of one req_id pass their state on") {
  define("TestCounts", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      const Value* state = request->dict.find("state");
      const std::int64_t count = state->is_none() ? 1 : state->as_int() + 1;
      request->dict.set("state", Value(count));
      answer(*request, Value(count));
    }
  }, {own_thread(), {1, 8}, ""});
  const auto of_id = [](const char* id, bool finish) {
    Dict dict = request_of(Value(1));
    dict.enter("req_id", Value(id));
    if (finish) dict.enter("finish", Value(true));
    return dict;
  };
  const char* const one = "an id that is long enough to need memory";
  for (const char* backend : {"StateFul[TestCounts]", "StateFul(ttl=0ms)[TestCounts]"})
    for (const How how : {How::kCall, How::kSubmit})
      with_each_failure([&] {
        Course course =
            simple(one_node({{"backend", backend}}),
                   {of_id(one, false), of_id(one, false), of_id("2", false), of_id(one, true)}, how, kOnlyMemory);
        course.next = of_id("other", false);
        course.next_result = 1;
        return course;
      });
}

TEST_CASE("memory ends while requests are reposted and sent") {
  define_fallible();
  const auto for_replies = [](const Requests& requests, const auto& use) {
    for (std::size_t i = 0; requests.call() && i < requests.call()->size(); ++i)
      if (const Value* reply = requests.call()->dict(i).find("reply"); reply && !requests.call()->error(i))
        use(as_event(*reply));
  };
  set_log_sink([](const std::string&, const std::string&, int) {});  // errors of requests without a caller
  for (const std::string backend : {"Repost[node.z, reply]", "Send(z.queue)", "Send(z.queue.0)"}) {
    CAPTURE(backend);
    with_each_failure([&] {
      const auto requests = std::make_shared<Requests>(requests_of({1, 2}));
      Course course;
      course.config.nodes = {{"a", {{"backend", Value("S[" + backend + ",TestInline]")}, {"max", 8}}},
                             {"z", {{"backend", "TestAddOne"}, {"max", 8}}}};
      course.config.dag_entrypoint = "Forward[node.a]";
      course.run = [requests, for_replies](PipeState& pipe) {
        requests->run(pipe);
        for_replies(*requests, [](const Event& event) { event.wait(); });
      };
      course.check = [requests, for_replies] {
        requests->check(kOnlyMemory);
        for_replies(*requests, [](const Event& event) {
          if (event.error()) CHECK(event.error()->code() == ErrorCode::kOutOfMemory);
        });
      };
      return course;
    });
  }
  set_log_sink(log_to_standard_error);
}

TEST_CASE("memory ends while a backend calls its own pipe") {
  for (const int instances : {1, 2}) {
    CAPTURE(instances);
    with_each_failure([&] {
      const auto requests = std::make_shared<Requests>(requests_of({1}));
      const auto state = std::make_shared<std::atomic<PipeState*>>();
      define("TestCallsItself", [state](Batch batch, const Params&) {
        for (Request* request : batch) {
          if (number(*request) == 0) return add(batch, 1);
          const Ref<Call> inner = state->load()->run(requests_of({number(*request) - 1}), kNever);
          if (inner->error(0)) throw Error(*inner->error(0));
          answer(*request, *inner->dict(0).find(kResult));
        }
      }, {own_thread(), {}, ""});
      Course course;
      course.config = one_node({{"backend", "TestCallsItself"}, {"instance_num", instances}});
      course.run = [requests, state](PipeState& pipe) {
        *state = &pipe;
        requests->submit(pipe);
        requests->wait();
      };
      course.check = [requests, instances] {
        requests->check(instances == 1 ? Codes{ErrorCode::kOutOfMemory, ErrorCode::kReentrantCall} : kOnlyMemory);
      };
      course.next = request_of(Value(0));
      course.next_result = 1;
      return course;
    });
  }
}

TEST_CASE("memory ends while a backend submits to its own full queue") {
  with_each_failure([&] {
    const auto outer = std::make_shared<Requests>(requests_of({1}));
    const auto inner = std::make_shared<std::vector<std::shared_ptr<Requests>>>();
    for (int i = 0; i < 3; ++i) inner->push_back(std::make_shared<Requests>(requests_of({0})));
    const auto submitted = std::make_shared<std::atomic<std::size_t>>(0);
    const auto state = std::make_shared<std::atomic<PipeState*>>();
    define("TestSubmits", [=](Batch batch, const Params&) {
      for (Request* request : batch)
        if (number(*request) == 1)
          for (const auto& each : *inner) {
            ++*submitted;
            each->submit(*state->load());
          }
      add(batch, 1);
    }, {own_thread(), {}, ""});
    Course course;
    course.config = one_node({{"backend", "TestSubmits"}, {"max_queue_size", 1}});
    course.run = [=](PipeState& pipe) {
      *state = &pipe;
      outer->submit(pipe);
      outer->wait();
      for (std::size_t i = 0; i < *submitted; ++i) (*inner)[i]->wait();
    };
    course.check = [=] {
      outer->check(kOnlyMemory);
      for (std::size_t i = 0; i < *submitted; ++i)
        (*inner)[i]->check({ErrorCode::kOutOfMemory, ErrorCode::kReentrantCall});
    };
    course.next = request_of(Value(0));
    course.next_result = 1;
    return course;
  });
}

TEST_CASE("memory ends while a pipe closes that waits for a batch of the minimum size") {
  define_fallible();
  with_each_failure([&] {
    const auto requests = std::make_shared<Requests>(requests_of({1}));
    Course course;
    course.config =
        one_node({{"backend", "TestAddOne"}, {"min", 2}, {"batching", "greedy"}, {"batching_timeout", 3'600'000}});
    course.run = [requests](PipeState& pipe) {
      requests->submit(pipe);
      CHECK(pipe.close(kNever).empty());
      requests->wait();
    };
    course.check = [requests] { requests->check({ErrorCode::kOutOfMemory, ErrorCode::kPipeClosed}); };
    return course;
  });
}

TEST_CASE("memory ends in a native plugin") {
  load_built("golden.so");
  define_fallible();
  each_way_at_one_node({{"backend", "S[BuiltRebuild,TestAddOne]"}}, {1, 1, 1});
  Value text("a text that is long enough to need memory");
  PipeConfig config = one_node({{"backend", "BuiltEach[BuiltRebuild]"}});
  with_each_failure([&] {
    Course course = simple(config, {request_of(make_list({text, Value(1)}))}, How::kSubmit, kOnlyMemory);
    course.next = request_of(numbers({1}));
    course.next_result = std::nullopt;
    return course;
  });
}

TEST_CASE("memory ends while a pipe is built") {
  define_fallible();
  PipeConfig config;
  config.nodes = {{"a", {{"backend", "S[TestInline,TestAddOne]"}, {"max", 8}, {"next", "b"}, {"instance_num", 2}}},
                  {"b", {{"backend", "FanOut[StateFul[TestAnyThread]]"}, {"batching", "greedy"}}}};
  TestPipe first(config);
  for (const Failing which : {Failing::kOne, Failing::kAllFrom}) {
    bool failed = true;
    for (std::size_t number = 1; failed; ++number) {
      CAPTURE(number);
      REQUIRE_LT(number, kEndless);
      std::shared_ptr<PipeState> built;
      std::optional<Error> error;
      {
        const FailingAllocations failing(which, number);
        try {
          built = PipeState::build(config);
        } catch (...) {
          const Spared spared;
          error = current_error();
        }
        failed = FailingAllocations::failed();
      }
      CHECK_NE(built == nullptr, !error);
      if (error) CHECK_EQ(error->message(), "out of memory");
      if (built) built->close(kNever);
    }
  }
}
