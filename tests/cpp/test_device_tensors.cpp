// Tensor backends of the core with data in device memory: the backend of a plugin is found, built once and called.
#include <atomic>
#include <thread>

#include "pipes.hpp"
#include "tensors.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// A tensor of another language on cuda:0, cuda:1, …
class OnDevice final : public OpaqueObject {
 public:
  explicit OnDevice(std::int32_t index) : OpaqueObject("test.device"), index_(index) {}
  Value to_tensor() const override { throw DeviceMemory({kDLCUDA, index_}, "it is on a device"); }

 private:
  std::int32_t index_;
};

Value on_device(std::int32_t index = 0) { return Value::adopt(new OnDevice(index)); }

// A backend for devices; `result` is its device.
class ForDevice final : public Backend {
 public:
  explicit ForDevice(std::shared_ptr<std::atomic<int>> built) : built_(std::move(built)) {}

 private:
  void init_(Init& init) override {
    ++*built_;
    device_ =
        init.params().get<std::string>("device") + " axis " + std::to_string(init.params().get<std::int64_t>("axis"));
  }
  void forward_(Batch batch) override {
    for (Request* request : batch) answer(*request, Value(device_));
  }

  std::shared_ptr<std::atomic<int>> built_;
  std::string device_;
};

// Serves "cuda" with ForDevice while it exists.
struct Served {
  std::shared_ptr<std::atomic<int>> built = std::make_shared<std::atomic<int>>(0);

  Served() {
    Registry::instance().set_device_finder([built = built](const std::string& name, const std::string& device) {
      if (device != "cuda") throw MissingBackend{ErrorCode::kBackendNotFound, "nothing serves " + device, "wait", ""};
      BackendClass cls;
      cls.name = name;
      cls.owner = "test";
      cls.params = parse_param_specs("device: str = 'cuda'; axis: int = 7");
      cls.create = [built] { return std::make_shared<ForDevice>(built); };
      return std::make_shared<const BackendClass>(std::move(cls));
    });
  }
  ~Served() { Registry::instance().set_device_finder({}); }
};

}  // namespace

TEST_CASE("data in device memory goes to the backend for the device, which gets the parameters") {
  const Served served;
  TestPipe pipe(Keys{{"backend", text("SoftmaxTensor(axis=1)")}});
  CHECK(pipe.call(to_value(tensor_of(kFloat32, {1, 1}, {3}))).result().kind() == Kind::kTensor);
  CHECK(*served.built == 0);
  CHECK(pipe.call(on_device()).result().as_text() == "cuda:0 axis 1");
  CHECK(pipe.call(make_list({on_device(1)})).result().as_text() == "cuda:1 axis 1");
  CHECK(pipe.call(on_device()).result().as_text() == "cuda:0 axis 1");
  CHECK(*served.built == 2);
}

TEST_CASE("a device that nothing serves is an error of the request") {
  TestPipe pipe(Keys{{"backend", text("SoftmaxTensor")}});
  const Outcome outcome = pipe.call(on_device());
  CHECK(outcome.message == "SoftmaxTensor cannot take data on cuda:0: the core computes in CPU memory only");
  CHECK(outcome.code == ErrorCode::kDataType);
}

TEST_CASE("a backend for a device without a parameter of the core's is an error that names the parameter") {
  const Served served;
  TestPipe pipe(Keys{{"backend", text("TopKTensor(2)")}});
  CHECK(pipe.call(on_device()).message ==
        "test::TopKTensor, which serves cuda:0, has no parameter \"k\", which TopKTensor has");
}

TEST_CASE("threads that bring the first data on a device all get its backend") {
  const Served served;
  TestPipe pipe(Keys{{"backend", text("SoftmaxTensor")}, {"instance_num", Value(1)}});
  constexpr int kThreads = 4;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int device = 0; device < 3; ++device)
        if (pipe.call(on_device(device)).result().as_text() == "cuda:" + std::to_string(device) + " axis -1") ++right;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 3 * kThreads);
}

TEST_CASE("devices are read as they are shown") {
  for (const char* device : {"cpu", "cuda:0", "cuda:3", "cuda_host:0", "rocm:1", "oneapi:0"})
    CHECK(show_device(read_device(device)) == device);
  CHECK(show_device(read_device("cuda")) == "cuda:0");
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cud"})
    CHECK_THROWS_AS(read_device(wrong), Error);
}
