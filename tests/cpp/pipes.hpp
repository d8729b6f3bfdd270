// What the tests of running pipes share: doors that backends wait at, backends made of a function, short configurations.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/init.hpp"
#include "built.hpp"
#include "pipe/pipe_state.hpp"
#include "pipe/planner.hpp"
#include "plugin/library.hpp"
#include "registry/api.hpp"

namespace hami::testing {

// Far more than any step of a test takes. A test that would hang ends here instead.
inline constexpr std::chrono::seconds kPatience{30};

class Latch {
 public:
  void add(std::size_t count = 1) {
    std::lock_guard lock(mutex_);
    count_ += count;
    changed_.notify_all();
  }
  void wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kPatience, [&] { return count_ >= count; })) return;
    INFO("a test waited in vain for " << count << " events; " << count_ << " came");
    CHECK(count_ >= count);  // names the test
    std::fflush(stdout);
    std::_Exit(3);
  }
  std::size_t count() {
    std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
};

// A backend comes in and waits; the test sees who is inside and opens.
struct Gate {
  Latch arrived;
  Latch opened;
  void pass() {
    arrived.add();
    opened.wait_for(1);
  }
  void open() { opened.add(); }
};

// What a backend saw: the `data` of each batch, in the order in which batches began.
class Seen {
 public:
  void add(Batch batch) {
    std::vector<std::int64_t> row;
    for (const Request* request : batch) {
      const Value* data = request->dict.find(kData);
      row.push_back(data && data->kind() == Kind::kInt ? data->as_int() : -1);
    }
    std::lock_guard lock(mutex_);
    batches_.push_back(std::move(row));
  }
  std::vector<std::vector<std::int64_t>> batches() {
    std::lock_guard lock(mutex_);
    return batches_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::int64_t>> batches_;
};

using Rows = std::vector<std::vector<std::int64_t>>;

inline void answer(Request& request, Value value) { request.dict.set(kResult, std::move(value)); }
inline std::int64_t number(const Request& request) { return request.dict.find(kData)->as_int(); }

// For each request: result = data + step.
inline void add(Batch batch, std::int64_t step) {
  for (Request* request : batch) answer(*request, Value(number(*request) + step));
}

class FunctionBackend final : public Backend {
 public:
  using Function = std::function<void(Batch, const Params&)>;
  FunctionBackend(Function function, Range range) : function_(std::move(function)), range_of_(range) {}

 private:
  void init_(Init& init) override { params_ = init.params(); }
  void forward_(Batch batch) override { function_(batch, params_); }
  Range range_() const override { return range_of_; }

  Function function_;
  Range range_of_;
  Params params_;
};

struct ClassOptions {
  Traits traits = {};
  Range range = {};
  std::string params = "";
};

// Defines (or replaces) a backend class in this process.
inline void define(const std::string& name, FunctionBackend::Function function, const ClassOptions& options = {}) {
  register_core();
  BackendClass cls;
  cls.name = name;
  cls.owner = "";
  cls.traits = options.traits;
  if (!options.params.empty()) cls.params = parse_param_specs(options.params);
  cls.create = [function = std::move(function), range = options.range] {
    return std::make_shared<FunctionBackend>(function, range);
  };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
}

// Defines the classes of a plugin that was built.
inline void load_built(const char* library) {
  register_core();
  for (const ClassPtr& cls : load_library(built(library), "").classes) Registry::instance().define(cls);
}

inline Traits own_thread() { return Traits{ThreadMode::kDedicated, false, true}; }
inline Traits any_thread() { return Traits{ThreadMode::kSerialized, false, true}; }

using Keys = std::vector<std::pair<std::string, Value>>;

inline PipeConfig one_node(Keys keys) {
  PipeConfig config;
  config.nodes.push_back({"n", std::move(keys)});
  return config;
}

inline PipeConfig graph(std::vector<PipeConfig::Section> nodes) {
  PipeConfig config;
  config.nodes = std::move(nodes);
  return config;
}

inline std::string problems_of(const PipeConfig& config) {
  std::string text;
  for (const Error& problem : plan_pipe(config).second) text += problem.message() + "\n";
  return text;
}

inline Dict request_of(Value data) {
  Dict dict;
  dict.enter("data", std::move(data));
  return dict;
}

// What became of a request.
struct CallResult {
  bool good = false;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::vector<std::string> notes;
  Dict dict;

  Value result() const {
    const Value* found = dict.find(kResult);
    return found ? *found : Value();
  }
  std::int64_t number() const { return result().kind() == Kind::kInt ? result().as_int() : -1; }
};

inline CallResult outcome(const Call& call, std::size_t index = 0) {
  CallResult made;
  if (const Error* error = call.error(index)) {
    made.code = error->code();
    made.message = error->message();
    made.notes = error->notes();
  } else {
    made.good = true;
    made.dict = call.dict(index);
  }
  return made;
}

class TestPipe {
 public:
  // A template, so that braces mean the keys of one node.
  template <class Config, class = std::enable_if_t<std::is_same_v<Config, PipeConfig>>>
  explicit TestPipe(const Config& config) {
    register_core();
    state_ = PipeState::build(config);
  }
  explicit TestPipe(Keys keys) : TestPipe(one_node(std::move(keys))) {}
  // For g++, to which a single key in braces would be a TestPipe as well.
  explicit TestPipe(std::initializer_list<Keys::value_type> keys) : TestPipe(Keys(keys)) {}
  ~TestPipe() { CHECK(close().empty()); }
  TestPipe(const TestPipe&) = delete;
  TestPipe& operator=(const TestPipe&) = delete;

  PipeState& operator*() const { return *state_; }
  PipeState* operator->() const { return state_.get(); }

  CallResult call(Dict dict) {
    std::vector<Dict> dicts;
    dicts.push_back(std::move(dict));
    return outcome(*state_->run(std::move(dicts), kNever));
  }
  CallResult call(Value data) { return call(request_of(std::move(data))); }

  std::vector<CallResult> call_many(std::vector<Dict> dicts) {
    const Ref<Call> call = state_->run(std::move(dicts), kNever);
    std::vector<CallResult> outcomes;
    for (std::size_t i = 0; i < call->size(); ++i) outcomes.push_back(outcome(*call, i));
    return outcomes;
  }

  // A submitted request; `done` counts the calls of its callback.
  struct Pending {
    std::shared_ptr<Latch> done = std::make_shared<Latch>();
    Ref<Call> call;
    CallResult wait() {
      done->wait_for(1);
      return outcome(*call);
    }
  };
  Pending submit_many(std::vector<Dict> dicts, Nanoseconds timeout = kNever) {
    Pending pending;
    pending.call = state_->start(std::move(dicts), timeout, InlinePolicy::kNonBlocking,
                                 [done = pending.done](Call&) { done->add(); });
    return pending;
  }
  Pending submit(Dict dict, Nanoseconds timeout = kNever) {
    std::vector<Dict> dicts;
    dicts.push_back(std::move(dict));
    return submit_many(std::move(dicts), timeout);
  }
  Pending submit(Value data) { return submit(request_of(std::move(data))); }

  std::vector<std::string> close(Nanoseconds timeout = 60'000'000'000) { return state_->close(timeout); }

 private:
  std::shared_ptr<PipeState> state_;
};

inline std::vector<Dict> requests_of(const std::vector<std::int64_t>& numbers) {
  std::vector<Dict> dicts;
  for (std::int64_t one : numbers) dicts.push_back(request_of(Value(one)));
  return dicts;
}

// A class whose forward notes its batch, waits at the gate, then awaitables data + 100.
struct Gated {
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  explicit Gated(const std::string& name, ClassOptions options = {own_thread(), {}, ""}) {
    define(name, [gate = gate, seen = seen](Batch batch, const Params&) {
      seen->add(batch);
      gate->pass();
      add(batch, 100);
    }, options);
  }
};

// The results, or the messages of requests that failed.
inline std::string outcomes_of(const std::vector<CallResult>& outcomes) {
  std::string text;
  for (const CallResult& made : outcomes)
    text += (text.empty() ? "" : ", ") + (made.good ? std::to_string(made.number()) : made.message);
  return text;
}

inline Value text(const char* value) { return Value(std::string(value)); }

}  // namespace hami::testing
