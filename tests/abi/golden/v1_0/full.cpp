// A plugin in C++ that uses every part of the SDK. Each backend's name begins with PREFIX.
#include <hami/backend.hpp>

#include <mutex>
#include <thread>

#define TEXT(token) #token
#define NAME(prefix, name) TEXT(prefix) name

namespace {

// Gives back what it got, taken apart and put together again.
class Rebuild : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_CONCURRENT;

 private:
  static hami::Value again(const hami::Value& value) {
    switch (value.kind()) {
      case HAMI_NONE: return nullptr;
      case HAMI_BOOL: return value.as_bool();
      case HAMI_INT: return value.as_int();
      case HAMI_FLOAT: return value.as_float();
      case HAMI_STR: return std::string(value.as_text());
      case HAMI_BYTES: return hami::Value::bytes(value.as_text());
      case HAMI_LIST: {
        std::vector<hami::Value> items;
        for (const hami::Value& item : value.as_list()) items.push_back(again(item));
        return hami::Value::list(items);
      }
      case HAMI_DICT: {
        std::vector<std::pair<std::string, hami::Value>> entries;
        for (const auto& [key, item] : value.as_dict()) entries.emplace_back(key, again(item));
        return hami::Value::dict(entries);
      }
      default: return value;
    }
  }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      item["result"] = again(item["data"]);
      std::vector<hami::Value> keys;
      for (const std::string& key : item.keys()) keys.emplace_back(key);
      item["keys"] = hami::Value::list(keys);
      item["told"] =
          hami::Value::list({item.request_size(), item.priority(), item.is_cancelled(), item.deadline() == INT64_MAX});
    }
  }
};
HAMI_REGISTER(Rebuild, NAME(PREFIX, "Rebuild"), "", "Gives back its data, made anew.");

// What it was configured with.
class Configured : public hami::Backend {
  void init_(const hami::Params& params) override {
    params_ = hami::Value::list({params.get<bool>("flag"), params.get<int>("count"), params.get<double>("ratio"),
                                 params.get<std::string>("text"), params.value("names"),
                                 params.get<std::optional<std::string>>("maybe").value_or("nothing")});
    options()["seen"] = "by init";
    names_ = params.get<std::vector<std::string>>("names").size();
  }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      item["result"] = params_;
      item["names"] = names_;
      item["node"] = node();
    }
  }
  hami::Value params_;
  std::size_t names_ = 0;
};
HAMI_REGISTER(Configured, NAME(PREFIX, "Configured"),
              "flag: bool; count: int = 3 {1..9}; ratio: float = 0.5; text: str = 'a b' {'a b',c}; names: list = "
              "'x,y'; maybe: str?",
              "Gives its parameters.");

// A new tensor: every float32 times `factor`.
class Scale : public hami::Backend {
  void init_(const hami::Params& params) override { factor_ = params.get<float>("factor"); }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      const hami::Tensor given = item["data"].as_tensor();
      const hami::Tensor made = hami::Tensor::make<float>(given.shape());
      const float* from = given.data<const float>();
      for (std::size_t i = 0; i < given.count(); ++i) made.data<float>()[i] = from[i] * factor_;
      item["result"] = made;
    }
  }
  float factor_ = 1;
};
HAMI_REGISTER(Scale, NAME(PREFIX, "Scale"), "factor: float", "Multiplies a tensor of float32.");

// The same memory as a tensor, for whoever comes next.
class Share : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = item["data"].as_tensor();
  }
};
HAMI_REGISTER(Share, NAME(PREFIX, "Share"), "", "Gives its data as a tensor.");

// Memory of its own, by DLPack: [0, 1, 2, …].
class Count : public hami::Backend {
  struct Memory {
    DLManagedTensorVersioned managed;
    std::vector<std::int32_t> numbers;
    std::int64_t size;
    std::int64_t stride = 1;
  };
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      auto memory = std::make_unique<Memory>();
      for (std::int32_t i = 0; i < item["data"].as_int(); ++i) memory->numbers.push_back(i);
      memory->size = static_cast<std::int64_t>(memory->numbers.size());
      memory->managed = {
          {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
          memory.get(),
          [](DLManagedTensorVersioned* self) { delete static_cast<Memory*>(self->manager_ctx); },
          0,
          {memory->numbers.data(), {kDLCPU, 0}, 1, hami::dtype_of<std::int32_t>(), &memory->size, &memory->stride, 0}};
      item["result"] = hami::Tensor::adopt(&memory.release()->managed);
    }
  }
};
HAMI_REGISTER(Count, NAME(PREFIX, "Count"), "", "Makes a tensor of its own memory.");

// An opaque value of one plugin is understood by another that knows its key.
struct Tag {
  std::int64_t number;
};

class MakeTag : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      item["tag"] = hami::Value::opaque("golden.tag", std::make_unique<Tag>(Tag{item["data"].as_int()}));
      item["result"] = item["tag"];
    }
  }
};
HAMI_REGISTER(MakeTag, NAME(PREFIX, "MakeTag"), "", "Wraps an integer.");

class ReadTag : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      const hami::Value tag = item["data"];
      item["result"] = tag.as_opaque<Tag>("golden.tag").number;
    }
  }
};
HAMI_REGISTER(ReadTag, NAME(PREFIX, "ReadTag"), "", "Unwraps an integer.");

// Runs its child twice; `result` of the first time is `data` of the second.
class Twice : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_CONCURRENT;
  static constexpr std::uint32_t kMinChildren = 1;
  static constexpr std::uint32_t kMaxChildren = 1;

 private:
  void forward_(hami::Batch batch) override {
    children()[0].forward(batch);
    for (hami::Dict& item : batch)
      if (const std::optional<hami::Value> result = item.find("result")) {
        item["data"] = *result;
        item.erase("result");
      }
    children()[0].forward(batch);
  }
};
HAMI_REGISTER(Twice, NAME(PREFIX, "Twice"), "", "Runs its child twice.");

// Runs its child on each item of a list, as one batch.
class Each : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_CONCURRENT;
  static constexpr std::uint32_t kMinChildren = 1;
  static constexpr std::uint32_t kMaxChildren = 1;

 private:
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      std::vector<hami::OwnItem> parts;
      for (const hami::Value& value : item["data"].value().as_list()) {
        parts.emplace_back(item);
        parts.back().dict()["data"] = value;
      }
      children()[0].forward(parts);
      std::vector<hami::Value> results;
      for (const hami::OwnItem& part : parts) {
        if (const std::optional<hami::Error> error = part.dict().error()) throw *error;
        results.push_back(part.dict().get("result"));
      }
      item["result"] = hami::Value::list(results);
    }
  }
  hami::Range range_() const override { return {1, 1}; }
};
HAMI_REGISTER(Each, NAME(PREFIX, "Each"), "", "Runs its child on each item of a list.");

// Takes two requests at a time.
class Pairs : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = batch.size();
  }
  hami::Range range_() const override { return {1, 2}; }
};
HAMI_REGISTER(Pairs, NAME(PREFIX, "Pairs"), "", "Gives the size of its batch.");

// Whether init and forward came on one thread.
class OwnThread : public hami::Backend {
  void init_(const hami::Params&) override { thread_ = std::this_thread::get_id(); }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = thread_ == std::this_thread::get_id();
  }
  std::thread::id thread_;
};
HAMI_REGISTER(OwnThread, NAME(PREFIX, "OwnThread"), "", "Says whether it runs on the thread that made it.");

// Fails if two calls of forward overlap.
class OneAtATime : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_ANY_THREAD;

 private:
  void forward_(hami::Batch batch) override {
    std::unique_lock lock(inside_, std::try_to_lock);
    if (!lock) throw hami::Error("two calls at a time");
    std::this_thread::yield();
    for (hami::Dict& item : batch) item["result"] = true;
  }
  std::mutex inside_;
};
HAMI_REGISTER(OneAtATime, NAME(PREFIX, "OneAtATime"), "", "Fails if two calls overlap.");

}  // namespace

HAMI_PLUGIN("golden-full", "1.0")
