// Small backends for pipelines and tests: Pass, Log, Add, Remove, Sleep, Raise.

#include <charconv>
#include <memory>
#include <thread>

#include "backend/api.hpp"
#include "container/forwarding.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

class Pass final : public Backend {
  void forward_(Batch) override { throw Error(ErrorCode::kRequest, "Pass fails every request"); }
};

class Log final : public Backend {
  void init_(Init& init) override {
    message_ = init.params().get<std::string>("message");
    node_ = init.node();
  }
  void forward_(Batch batch) override {
    for (std::size_t i = 0; i < batch.size(); ++i) log(node_, message_);
    set_result_to_data(batch);
  }
  std::string message_;
  std::string node_;
};

class Raise final : public Backend {
  void init_(Init& init) override { message_ = init.params().get<std::string>("message"); }
  void forward_(Batch) override { throw Error(ErrorCode::kRequest, message_); }
  std::string message_;
};

class Sleep final : public Backend {
  void init_(Init& init) override { time_ = from_milliseconds(init.params().get<double>("time")); }
  void forward_(Batch batch) override {
    std::this_thread::sleep_for(std::chrono::nanoseconds(time_));
    set_result_to_data(batch);
  }
  Nanoseconds time_ = 0;
};

// An unquoted number or boolean is converted; a quoted value is text.
Value value_of(const Arg& arg) {
  if (arg.quoted) return Value(arg.value);
  if (arg.value == "true" || arg.value == "false") return Value(arg.value == "true");
  std::int64_t number = 0;
  const char* end = arg.value.data() + arg.value.size();
  if (const auto read = std::from_chars(arg.value.data(), end, number); read.ec == std::errc() && read.ptr == end)
    return Value(number);
  if (const std::optional<double> real = read_number(arg.value)) return Value(*real);
  return Value(arg.value);
}

class Add final : public Backend {
  void init_(Init& init) override {
    for (const Arg& arg : init.args()) {
      if (arg.key.empty())
        throw Error(ErrorCode::kConfig, "Add takes key=value, got " + in_quotes(arg.value) + " without a key");
      entries_.emplace_back(arg.key, value_of(arg));
    }
  }
  void forward_(Batch batch) override {
    set_result_to_data(batch);
    for (Request* request : batch)
      for (const auto& [key, value] : entries_) request->dict.set(key, value);
  }
  std::vector<std::pair<std::string, Value>> entries_;
};

class Remove final : public Backend {
  void init_(Init& init) override {
    for (const Arg& arg : init.args()) {
      if (!arg.key.empty())
        throw Error(ErrorCode::kConfig, "Remove takes names of keys, got " + in_quotes(arg.key + "=" + arg.value));
      keys_.push_back(arg.value);
    }
  }
  void forward_(Batch batch) override {
    set_result_to_data(batch);
    for (Request* request : batch)
      for (const std::string& key : keys_) request->dict.erase(key);
  }
  std::vector<std::string> keys_;
};

template <class T>
void add(Registry& registry, const char* name, const char* params, bool non_blocking, const char* doc) {
  BackendClass cls;
  cls.name = name;
  cls.doc = doc;
  if (params)
    cls.params = parse_param_specs(params);
  else
    cls.free_args = true;
  cls.traits.non_blocking = cls.traits.lightweight = non_blocking;
  cls.create = [] { return std::make_shared<T>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace

[[gnu::cold]] void register_utilities(Registry& registry) {
  add<Pass>(registry, "Pass", "", true, "Fails every request.");
  add<Log>(registry, "Log", "message: str 'text to log'", false,
           "Logs the message for each request as a warning; `result` is `data`.");
  add<Raise>(registry, "Raise", "message: str 'text of the error'", true, "Fails each request with the message.");
  add<Sleep>(registry, "Sleep", "time: duration 'duration'", false, "Sleeps; `result` is `data`.");
  add<Add>(registry, "Add", nullptr, true,
           "Sets keys of the request, `Add(k=v, …)`; `result` is `data`.\n"
           "Unquoted numbers, `true` and `false` are converted; quoted values are text.");
  add<Remove>(registry, "Remove", nullptr, true,
              "Removes keys of the request, `Remove(k, …)`; `result` is `data`.\n"
              "Later backends do not see them; the caller's dict keeps them.");
}

}  // namespace hami
