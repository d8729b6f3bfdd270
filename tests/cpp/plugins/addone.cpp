// The plugin of the guides: adds `step` to an integer.
#include <hami/backend.hpp>

class AddOne : public hami::Backend {
  void init_(const hami::Params& params) override { step_ = params.get<std::int64_t>("step"); }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = item["data"].as_int() + step_;
  }
  std::int64_t step_ = 0;
};
HAMI_REGISTER(AddOne, "AddOne", "step: int = 1", "Adds `step` to an integer.");
HAMI_PLUGIN("acme-addone", "0.1.0")
