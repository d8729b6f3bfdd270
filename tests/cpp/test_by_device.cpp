// Dispatch by device: a request goes to the implementation of the name for the device of its data, which is built once.
#include <atomic>

#include "pipes.hpp"
#include "registry/api.hpp"
#include "tensors.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// A tensor of another language on cuda:0, cuda:1, …
class OnDevice final : public OpaqueObject {
 public:
  explicit OnDevice(std::int32_t index) : OpaqueObject("test.device"), index_(index) {}
  DLDevice device() const override { return {kDLCUDA, index_}; }

 private:
  std::int32_t index_;
};

Value on_device(std::int32_t index = 0) { return Value::adopt(new OnDevice(index)); }

// `result` is the device, the parameter `axis`, and the number of requests.
class Where final : public Backend {
 public:
  explicit Where(std::shared_ptr<std::atomic<int>> built = nullptr) : built_(std::move(built)) {}

 private:
  void init_(Init& init) override {
    if (built_) ++*built_;
    const Value* device = init.params().find("device");
    where_ = (device ? std::string(device->as_text()) : "cpu") + " axis " +
             std::to_string(init.params().get<std::int64_t>("axis"));
  }
  void forward_(Batch batch) override {
    for (Request* request : batch) answer(*request, Value(where_ + " of " + std::to_string(batch.size())));
  }

  std::shared_ptr<std::atomic<int>> built_;
  std::string where_;
};

// Defines the backend Where, and serves "cuda" while it exists.
struct Served {
  std::shared_ptr<std::atomic<int>> built = std::make_shared<std::atomic<int>>(0);

  explicit Served(DeviceChoice choice = DeviceChoice::kEachRequest) {
    define("Where", "axis: int = 0", "", choice, {});
    define("Where", "device: str = 'cuda'; axis: int = 7", "cuda", DeviceChoice::kNone, built);
  }

 private:
  static void define(const char* name, const char* params, const char* device, DeviceChoice choice,
                     const std::shared_ptr<std::atomic<int>>& built) {
    BackendClass cls;
    cls.name = name;
    cls.owner = "test";
    cls.params = parse_param_specs(params);
    cls.device = device;
    cls.by_device = choice;
    cls.create = [choice, built] { return choose_by_device(choice, std::make_shared<Where>(built)); };
    Registry::instance().define(std::make_shared<const BackendClass>(std::move(cls)));
  }
};

}  // namespace

TEST_CASE("data on a device goes to the implementation for the device, which gets the parameters") {
  const Served served;
  TestPipe pipe(Keys{{"backend", text("Where(axis=1)")}});
  CHECK(pipe.call(to_value(tensor_of(kFloat32, {1, 1}, {3}))).result().as_text() == "cpu axis 1 of 1");
  CHECK(*served.built == 0);
  CHECK(pipe.call(on_device()).result().as_text() == "cuda:0 axis 1 of 1");
  CHECK(pipe.call(make_list({on_device(1)})).result().as_text() == "cuda:1 axis 1 of 1");
  CHECK(pipe.call(on_device()).result().as_text() == "cuda:0 axis 1 of 1");
  CHECK(*served.built == 2);
}

TEST_CASE("a device that nothing serves is an error of the request") {
  const Served served;
  TestPipe pipe(Keys{{"backend", text("Where")}});
  class Elsewhere final : public OpaqueObject {
   public:
    Elsewhere() : OpaqueObject("test.device") {}
    DLDevice device() const override { return {kDLMetal, 0}; }
  };
  const CallResult outcome = pipe.call(Value::adopt(new Elsewhere));
  CHECK(outcome.message == "Where cannot take data on metal:0: no plugin serves metal");
  CHECK(outcome.code == ErrorCode::kDataType);
}
