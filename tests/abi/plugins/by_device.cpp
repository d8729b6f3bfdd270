// A plugin that implements names for CPU memory and for a toy device. The host chooses by where `data` lies.
#define HAMI_ABI_USE_MINOR 1
#define HAMI_ABI_MIN_MINOR 1
#include <hami/backend.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

namespace {

// Sets `result` to the place, the parameter `step` and the number of requests.
class Where : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT;

 private:
  void init_(const hami::Params& params) override {
    step_ = params.get<std::int64_t>("step");
    place_ = is_for_device() ? params.get<std::string>("device") : "cpu";
  }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch)
      item["result"] = hami::Value::list({place_, step_, static_cast<std::int64_t>(batch.size())});
  }

  virtual bool is_for_device() const { return false; }

  std::string place_;
  std::int64_t step_ = 0;
};

struct EachOnHost : Where {
  static constexpr std::uint32_t kByDevice = HAMI_EACH_REQUEST_BY_DEVICE;
};
struct BatchOnHost : Where {
  static constexpr std::uint32_t kByDevice = HAMI_WHOLE_BATCH_BY_DEVICE;
};
struct EngineOnHost : Where {
  static constexpr std::uint32_t kByDevice = HAMI_EACH_REQUEST_BY_ENGINE;
};
struct OnDevice : Where {
  bool is_for_device() const override { return true; }
};
struct OnToy : OnDevice {
  static constexpr const char* kForDevice = "ext_dev";
};
struct OnCuda : OnDevice {
  static constexpr const char* kForDevice = "cuda";
};

}  // namespace

HAMI_REGISTER(EachOnHost, TEXT(PREFIX) "Each", "step: int = 1", "Tell where each request runs.");
HAMI_REGISTER(BatchOnHost, TEXT(PREFIX) "Batch", "step: int = 1", "Tell where a batch runs.");
HAMI_REGISTER(EngineOnHost, TEXT(PREFIX) "Engine", "step: int = 1", "Tell where requests for an engine run.");
HAMI_REGISTER(OnToy, TEXT(PREFIX) "Each", "device: str = 'ext_dev'; step: int = 9", "Each, for a toy device.");
HAMI_REGISTER(OnCuda, TEXT(PREFIX) "Each", "device: str = 'cuda'; step: int = 9", "Each, for CUDA.");
HAMI_REGISTER(OnToy, TEXT(PREFIX) "Batch", "device: str = 'ext_dev'; step: int = 9", "Batch, for a toy device.");
HAMI_REGISTER(OnToy, TEXT(PREFIX) "Engine", "device: str = 'ext_dev'; step: int = 9", "Engine, for a toy device.");
HAMI_PLUGIN("acme-by-device", "1")
