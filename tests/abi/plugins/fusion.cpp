// Classes that absorb each other: Scale and Shift, in this order, then Show, which reports how often each forward was called.
#define HAMI_ABI_USE_MINOR 1
#include <hami/backend.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

class Step : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_SERIALIZED;

  virtual std::int64_t apply(std::int64_t value) const = 0;

 private:
  void absorb_(hami::Backend& next) override { steps_.push_back(&dynamic_cast<Step&>(next)); }
  void forward_(hami::Batch batch) override {
    count("runs");
    for (hami::Dict& item : batch) try {
        std::int64_t value = item["data"].as_int();
        for (const Step* step : steps_) value = step->apply(value);
        item["result"] = value;
      } catch (const hami::Error& error) {
        item.fail(error);
      }
  }

  std::vector<const Step*> steps_{this};
};

class Scale final : public Step {
 public:
  static constexpr const char* kAbsorbs = TEXT(PREFIX) "Shift," TEXT(PREFIX) "Halve";

  std::int64_t apply(std::int64_t value) const override { return value * 10; }
};
HAMI_REGISTER(Scale, TEXT(PREFIX) "Scale", "device: str = 'cpu'; fuse: bool = true", "Multiplies by 10.");

class Shift final : public Step {
 public:
  static constexpr const char* kAbsorbs = TEXT(PREFIX) "Halve";

  std::int64_t apply(std::int64_t value) const override { return value + 1; }
};
HAMI_REGISTER(Shift, TEXT(PREFIX) "Shift", "device: str = 'cpu'; fuse: bool = true", "Adds 1.");

class Halve final : public Step {
 public:
  static constexpr hami::Range kRange{1, 2};

  std::int64_t apply(std::int64_t value) const override {
    if (value % 2 != 0) throw hami::Error(HAMI_REQUEST, "Halve takes even numbers, got " + std::to_string(value));
    return value / 2;
  }
};
HAMI_REGISTER(Halve, TEXT(PREFIX) "Halve", "device: str = 'cpu'", "Divides by 2.");

#ifdef WITHOUT_FUSE
class Bad final : public hami::Backend {
 public:
  static constexpr const char* kAbsorbs = TEXT(PREFIX) "Halve";
  void forward_(hami::Batch) override {}
};
HAMI_REGISTER(Bad, "Bad", "", "");
#endif
#ifdef UNKNOWN_NAME
class Bad final : public hami::Backend {
 public:
  static constexpr const char* kAbsorbs = "Identity";
  void forward_(hami::Batch) override {}
};
HAMI_REGISTER(Bad, "Bad", "fuse: bool = true", "");
#endif
HAMI_PLUGIN("fusion", "0.1")
