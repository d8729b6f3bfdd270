// A plugin that misbehaves. The names of its backends begin with PREFIX.
#include <hami/backend.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#define TEXT(token) #token
#define NAME(prefix, name) TEXT(prefix) name

namespace {

class Throws : public hami::Backend {
  void init_(const hami::Params& params) override {
    what_ = params.get<std::string>("what");
    if (what_ == "init") throw std::runtime_error("no luck");
  }
  void forward_(hami::Batch batch) override {
    if (what_ == "int") throw 3;
    if (what_ == "bad_alloc") throw std::bad_alloc();
    if (what_ == "exception") throw std::runtime_error("no luck");
    if (what_ == "long") throw std::runtime_error(std::string(1 << 20, 'x'));
    if (what_ == "empty") throw hami::Error(HAMI_INTERNAL, "");
    if (what_ == "binary") throw hami::Error(HAMI_INTERNAL, "\xff");
    if (what_ == "code") throw hami::Error(-77, "a code of its own");
    if (what_ == "type") batch[0]["data"].as_tensor();
    if (what_ == "key") batch[0]["nothing"].as_int();
    if (what_ == "final") throw hami::Error(HAMI_NOT_FOUND, "gone").set_final();
  }
  std::string what_;
};
HAMI_REGISTER(Throws, NAME(PREFIX, "Throws"), "what: str", "Throws.");

// Returns a value that cannot be converted to Python.
class Odd : public hami::Backend {
  void init_(const hami::Params& params) override { what_ = params.get<std::string>("what"); }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      const hami_value later{9, 0, {5}};  // of a kind that a later minor version adds
      if (what_ == "kind") item["result"] = hami::Value::adopt(later);
      if (what_ == "inside") item["result"] = hami::Value::list({1, hami::Value::adopt(later)});
      if (what_ == "key") item["\xff"] = 1;
      if (what_ == "type key") item["result"] = hami::Value::opaque("\xff", std::make_unique<int>(1));
      if (what_ == "length") item["result"] = hami::Value::bytes(std::string_view("a", SIZE_MAX));
      if (what_ == "number") item["result"] = UINT64_MAX;
      if (what_ == "memory") item["result"] = hami::Tensor::make<float>({std::int64_t{1} << 50});
      if (what_ == "counter") {
        count("\xff", 2);
        item["result"] = true;
      }
    }
  }
  std::string what_;
};
HAMI_REGISTER(Odd, NAME(PREFIX, "Odd"), "what: str", "Returns values that Python cannot represent.");

// Copies `data` and nests the copy `times` levels deep in lists or dicts.
class Deep : public hami::Backend {
  void init_(const hami::Params& params) override {
    times_ = params.get<std::int64_t>("times");
    dicts_ = params.get<bool>("dicts");
  }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      hami::Value value = copy(item["data"].value());
      for (std::int64_t i = 0; i < times_; ++i)
        value = dicts_ ? hami::Value::dict({{"in", value}}) : hami::Value::list({value});
      item["result"] = value;
    }
  }
  static hami::Value copy(const hami::Value& value) {
    if (value.kind() == HAMI_LIST) {
      std::vector<hami::Value> items = value.as_list();
      for (hami::Value& item : items) item = copy(item);
      return hami::Value::list(items);
    }
    if (value.kind() == HAMI_DICT) {
      std::vector<std::pair<std::string, hami::Value>> entries = value.as_dict();
      for (auto& entry : entries) entry.second = copy(entry.second);
      return hami::Value::dict(entries);
    }
    return value;
  }
  std::int64_t times_ = 0;
  bool dicts_ = false;
};
HAMI_REGISTER(Deep, NAME(PREFIX, "Deep"), "times: int = 0; dicts: bool = false", "Nests values.");

// Leaves a Python exception set in `init`, and in `forward` with and without an error.
class LeavesException : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_SERIALIZED | HAMI_NEEDS_GIL;

 private:
  static void leave() {
    const auto set = reinterpret_cast<void (*)(void*, const char*)>(dlsym(RTLD_DEFAULT, "PyErr_SetString"));
    set(*static_cast<void**>(dlsym(RTLD_DEFAULT, "PyExc_KeyError")), "left");
  }
  void init_(const hami::Params&) override { leave(); }
  void forward_(hami::Batch batch) override {
    leave();
    if (batch[0]["data"].as_int() < 0) throw hami::Error("a negative number");
    for (hami::Dict& item : batch) item["result"] = item["data"];
  }
};
HAMI_REGISTER(LeavesException, NAME(PREFIX, "LeavesException"), "", "Leaves a Python exception set.");

// Fails the whole batch because of one bad request.
class FailsTogether : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      if (item["data"].as_int() < 0) throw hami::Error("a negative number");
      item["result"] = batch.size();
    }
  }
  hami::Range range_() const override { return {1, 8}; }
};
HAMI_REGISTER(FailsTogether, NAME(PREFIX, "FailsTogether"), "", "Fails as a whole for one bad request.");

// Releases its values on another thread, in the destructor.
class Keeps : public hami::Backend {
 public:
  ~Keeps() override {
    std::thread([held = std::move(held_)]() mutable { held.clear(); }).join();
  }

 private:
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      held_.push_back(item["data"]);
      item["result"] = held_.size();
    }
  }
  std::vector<hami::Value> held_;
};
HAMI_REGISTER(Keeps, NAME(PREFIX, "Keeps"), "", "Releases values on another thread.");

// Calls its child on another thread.
class Elsewhere : public hami::Backend {
 public:
  static constexpr std::uint32_t kMinChildren = 1;
  static constexpr std::uint32_t kMaxChildren = 1;

 private:
  void forward_(hami::Batch batch) override {
    hami_error* error = nullptr;
    std::thread([&] { error = hami::guard([&] { children()[0].forward(batch); }); }).join();
    hami::check(error);
  }
};
HAMI_REGISTER(Elsewhere, NAME(PREFIX, "Elsewhere"), "", "Calls its child on another thread.");

// Never returns from the function that `where` names.
class Stuck : public hami::Backend {
 public:
  ~Stuck() override {
    if (where_ == "close") block_forever();
  }

 private:
  static void block_forever() {
    for (;;) pause();
  }
  void init_(const hami::Params& params) override { where_ = params.get<std::string>("where"); }
  void forward_(hami::Batch batch) override {
    if (where_ == "forward") block_forever();
    for (hami::Dict& item : batch) item["result"] = where_;
  }
  std::string where_;
};
HAMI_REGISTER(Stuck, NAME(PREFIX, "Stuck"), "where: str = 'close' {close,forward}", "Never returns.");

// Starts a detached thread that keeps using the core.
class LeavesThreads : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      std::thread([held = item["data"].value()] {
        for (;;) {
          const hami::Value again = hami::Value::list({held, hami::Value("text")});
          std::this_thread::yield();
        }
      }).detach();
      item["result"] = true;
    }
  }
};
HAMI_REGISTER(LeavesThreads, NAME(PREFIX, "LeavesThreads"), "", "Leaves a running thread.");

}  // namespace

HAMI_PLUGIN("hostile", "0.1")
