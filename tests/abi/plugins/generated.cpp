// Names for expressions, beside a class that they use.
#define HAMI_ABI_USE_MINOR 1
#define HAMI_ABI_MIN_MINOR 1
#include <hami/backend.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

class AddStep : public hami::Backend {
  void init_(const hami::Params& params) override { step_ = params.get<std::int64_t>("step"); }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = item["data"].as_int() + step_;
  }
  std::int64_t step_ = 0;
};
HAMI_REGISTER(AddStep, TEXT(PREFIX) "AddStep", "step: int = 1", "Adds `step` to an integer.");
HAMI_GENERATE_BACKEND(TEXT(PREFIX) "AddTwice", "S[" TEXT(PREFIX) "AddStep," TEXT(PREFIX) "AddStep]", "");
HAMI_GENERATE_BACKEND(TEXT(PREFIX) "AddTens", TEXT(PREFIX) "AddTwice", "step: int = 10");
#ifdef BAD_EXPRESSION
HAMI_GENERATE_BACKEND("Bad", "S[Identity", "");
#endif
#ifdef BAD_PARAMETER
HAMI_GENERATE_BACKEND("Bad", "Identity", "step: int");
#endif
HAMI_PLUGIN("generated", "0.1")
