// Classes with a default child, which they run; without a child, the result says so.
#define HAMI_ABI_USE_MINOR 1
#include <hami/backend.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

class WithChild : public hami::Backend {
 public:
  static constexpr std::uint32_t kMaxChildren = 1;

 private:
  void forward_(hami::Batch batch) override {
    if (!children().empty()) return children().front().forward(batch);
    for (hami::Dict& item : batch) item["result"] = hami::Value("no child");
  }
};

class Outer final : public WithChild {
 public:
  static constexpr const char* kDefaultChild = TEXT(PREFIX) "Inner";
};
HAMI_REGISTER(Outer, TEXT(PREFIX) "Outer", "limit: int = 7; wait: duration = 5ms; title: str?", "Runs its child.");

class Needs final : public WithChild {
 public:
  static constexpr const char* kDefaultChild = TEXT(PREFIX) "Inner";

 private:
  void init_(const hami::Params&) override {
    if (children().empty()) throw hami::Error(HAMI_FAILED_PRECONDITION, "it has no child");
  }
};
HAMI_REGISTER(Needs, TEXT(PREFIX) "Needs", "", "Runs its child.");

class Alone final : public WithChild {
 public:
  static constexpr const char* kDefaultChild = TEXT(PREFIX) "Absent";
};
HAMI_REGISTER(Alone, TEXT(PREFIX) "Alone", "", "Runs its child.");

#ifdef WITHOUT_BRACKETS
class Bad final : public hami::Backend {
 public:
  static constexpr const char* kDefaultChild = "Identity";

 private:
  void forward_(hami::Batch) override {}
};
HAMI_REGISTER(Bad, "Bad", "", "");
#endif
#ifdef NO_NAME
class Bad final : public WithChild {
 public:
  static constexpr const char* kDefaultChild = "Identity,Log";
};
HAMI_REGISTER(Bad, "Bad", "", "");
#endif
HAMI_PLUGIN("default-child", "0.1")
