// The backend HamiExampleCpp, which adds `step` to an integer.
#include <hami/backend.hpp>

class HamiExampleCpp : public hami::Backend {
  void init_(const hami::Params& params) override { step_ = params.get<std::int64_t>("step"); }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      try {
        item["result"] = item["data"].as_int() + step_;
      } catch (const hami::Error& error) {  // fails this request; the others continue
        item.fail(error);
      }
    }
  }

  std::int64_t step_ = 0;
};
HAMI_REGISTER(HamiExampleCpp, "HamiExampleCpp", "step: int = 1", "Adds `step` to an integer.");
HAMI_PLUGIN("hami-example-cpp", "0.1.0")
