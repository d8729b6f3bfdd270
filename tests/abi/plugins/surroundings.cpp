// A plugin that uses the services of the core: events, queues, the store, counters, instances, the log, the GIL.
#include <hami/backend.hpp>

#include <dlfcn.h>

#include <stdexcept>
#include <thread>

#define TEXT(token) #token
#define NAME(prefix, name) TEXT(prefix) name

namespace {

// Base class of backends that handle one request at a time.
class PerItem : public hami::Backend {
  virtual void handle(hami::Dict& item) = 0;
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) handle(item);
  }
};

// Notifies the event in `data` on another thread, or fails it with the text in `why`.
class Notify : public PerItem {
  void handle(hami::Dict& item) override {
    const hami::Event event(item["data"].value());
    const std::optional<hami::Value> why = item.find("why");
    bool first = false;
    hami_error* wrong = nullptr;
    std::thread([&] {
      wrong = hami::guard(
          [&] { first = why ? event.fail(hami::Error(HAMI_NOT_FOUND, why->as_text())) : event.notify("done"); });
    }).join();
    hami::check(wrong);
    item["result"] = first;
    item["again"] = event.notify(1);
    item["done"] = event.is_done();
  }
};
HAMI_REGISTER(Notify, NAME(PREFIX, "Notify"), "", "Completes an event.");

// Waits for an event that another thread notifies, and registers callbacks.
class Await : public PerItem {
  void handle(hami::Dict& item) override {
    const hami::Event event;
    hami::Value called;
    event.on_done([&](const hami::Event& done) { called = done.wait(0); });
    event.on_done([](const hami::Event&) { throw std::runtime_error("lost"); });
    std::thread notifier([&, data = item["data"].value()] { event.notify(data); });
    item["result"] = event.wait();
    notifier.join();
    item["called"] = called;
    try {
      hami::Event().wait(host_now());
    } catch (const hami::Error& error) {
      item["late"] = error.code();
    }
  }
  static std::int64_t host_now() { return hami::host().clock_now(); }
};
HAMI_REGISTER(Await, NAME(PREFIX, "Await"), "", "Waits for an event.");

// Passes `data` through a queue of the pipe.
class Through : public PerItem {
  void init_(const hami::Params& params) override { queue_.emplace(queue(params.get<std::string>("name"))); }
  void handle(hami::Dict& item) override {
    queue_->push(item["data"], 0);
    item["result"] = queue_->pop(0);
    item["queue"] = *queue_;
    try {
      queue_->pop(hami::host().clock_now());
    } catch (const hami::Error& error) {
      item["empty"] = error.code();
    }
  }
  std::optional<hami::Queue> queue_;
};
HAMI_REGISTER(Through, NAME(PREFIX, "Through"), "name: str = 'frames'", "Passes data through a queue.");

// Stores `data` under `key` of `request`, and returns the previous value.
class Keep : public PerItem {
  void handle(hami::Dict& item) override {
    const hami::Value request = item["request"], key = item["key"];
    try {
      store().create(request);
    } catch (const hami::Error& error) {
      if (error.code() != HAMI_ALREADY_EXISTS) throw;
    }
    item["result"] = nullptr;
    try {
      item["result"] = store().take(request, key);
    } catch (const hami::Error& error) {
      if (error.code() != HAMI_NOT_FOUND) throw;
    }
    if (item.contains("end")) return store().remove(request);
    store().insert(request, key, item["data"]);
    item["kept"] = store().get(request, key);
  }
};
HAMI_REGISTER(Keep, NAME(PREFIX, "Keep"), "", "Stores a value in the store of the pipe.");

// Returns its instance number and counts calls, in counters and in the options.
class Which : public PerItem {
 public:
  static constexpr hami::Range kRange{1, 6};

 private:
  void init_(const hami::Params&) override { options()["calls"] = 0; }
  void handle(hami::Dict& item) override {
    options()["calls"] = options()["calls"].as_int() + 1;
    count("calls");
    count("sum", item["data"].as_int());
    item["result"] = instance();
    item["calls"] = options()["calls"];
  }
};
HAMI_REGISTER(Which, NAME(PREFIX, "Which"), "", "Returns its instance number.");

// Passes requests on to a named instance.
class Elsewhere : public hami::Backend {
  void init_(const hami::Params& params) override { children_.push_back(find(params.get<std::string>("name"))); }
  void forward_(hami::Batch batch) override { children_[0].forward(batch); }
  std::vector<hami::Child> children_;
};
HAMI_REGISTER(Elsewhere, NAME(PREFIX, "Find"), "name: str", "Passes requests on to a named instance.");

// Takes at least four requests per batch.
class Fours : public hami::Backend {
 public:
  static constexpr hami::Range kRange{4, 0};

 private:
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = batch.size();
  }
};
HAMI_REGISTER(Fours, NAME(PREFIX, "Fours"), "", "Returns the size of its batch.");

// Injects its second child into its first.
class Inject : public hami::Backend {
 public:
  static constexpr std::uint32_t kMinChildren = 2;
  static constexpr std::uint32_t kMaxChildren = 2;

 private:
  void init_(const hami::Params&) override { children()[0].inject(children()[1]); }
  void forward_(hami::Batch batch) override { children()[0].forward(batch); }
};
HAMI_REGISTER(Inject, NAME(PREFIX, "Inject"), "", "Runs its first child, which uses the second.");

// Writes to the log at every level.
class Log : public PerItem {
  void handle(hami::Dict& item) override {
    log("a detail", HAMI_LOG_DEBUG);
    log("news", HAMI_LOG_INFO);
    log("beware");
    log("broken", HAMI_LOG_ERROR);
    item["result"] = log_enabled(HAMI_LOG_INFO);
  }
};
HAMI_REGISTER(Log, NAME(PREFIX, "Log"), "", "Writes to the log.");

// Whether the thread holds the GIL.
bool holds_gil() {
  const auto check = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  return check && check() == 1;
}

class Free : public PerItem {
  void handle(hami::Dict& item) override { item["result"] = holds_gil(); }
};
HAMI_REGISTER(Free, NAME(PREFIX, "Free"), "", "Returns whether it holds the GIL.");

class Locked : public PerItem {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_SERIALIZED | HAMI_NEEDS_GIL;

 private:
  void init_(const hami::Params&) override { made_with_gil_ = holds_gil(); }
  void handle(hami::Dict& item) override { item["result"] = made_with_gil_ && holds_gil(); }
  bool made_with_gil_ = false;
};
HAMI_REGISTER(Locked, NAME(PREFIX, "Locked"), "", "Requests the GIL, and returns whether it holds it.");

// Fails with a code, or returns the exception that its child raises.
class Fail : public hami::Backend {
 public:
  static constexpr std::uint32_t kMaxChildren = 1;

 private:
  void init_(const hami::Params& params) override { code_ = params.get<std::int32_t>("code"); }
  void forward_(hami::Batch batch) override {
    if (children().empty()) throw hami::Error(code_, "as requested");
    try {
      children()[0].forward(batch);
    } catch (const hami::Error& error) {
      for (hami::Dict& item : batch) item["result"] = hami::Value::adopt(error.payload());
    }
  }
  std::int32_t code_ = 0;
};
HAMI_REGISTER(Fail, NAME(PREFIX, "Fail"), "code: int = 2", "Fails.");

}  // namespace

HAMI_PLUGIN("surroundings", "0.1")
