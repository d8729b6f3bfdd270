// A class that declares what its requests cost: the key `size`, or what it throws.
#define HAMI_ABI_USE_MINOR 1
#include <hami/backend.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

class Sized final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT;
  static constexpr hami::Range kRange{1, 8};

 private:
  void init_(const hami::Params& params) override { times_ = params.get<double>("times"); }
  double request_cost_(const hami::Dict& item) const override {
    if (!item.contains("size")) throw hami::Error(HAMI_DATA_TYPE, "no size");
    return times_ * item.get("size").as_float();
  }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = static_cast<std::int64_t>(batch.size());
  }
  double times_ = 1;
};
HAMI_REGISTER(Sized, TEXT(PREFIX) "Sized", "times: float = 1", "Sets the number of requests of its batch.");

class Unsized final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT;
  static constexpr hami::Range kRange{1, 8};

 private:
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = static_cast<std::int64_t>(batch.size());
  }
};
HAMI_REGISTER(Unsized, TEXT(PREFIX) "Unsized", "", "The same without a cost.");
HAMI_PLUGIN("request-cost", "0.1")
