// A backend that delivers parts of its result.
#define HAMI_ABI_USE_MINOR 1
#define HAMI_ABI_MIN_MINOR 1
#include <hami/backend.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

// Emits the numbers below `data`; its result is whether the caller takes them.
class EmitNumbers : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      bool heard = true;
      for (std::int64_t number = 0; number < item["data"].as_int(); ++number) heard = item.emit(number) && heard;
      item["result"] = heard;
    }
  }
};
HAMI_REGISTER(EmitNumbers, TEXT(PREFIX) "EmitNumbers", "", "Emits the numbers below an integer.");
HAMI_PLUGIN("parts", "0.1")
