// Measures a call through the plugin ABI, compared with the same work in the core: one request, one get, one set.
//
//   native_call_overhead PLUGIN.so NAME            prints times; core and plugin alternate
//   native_call_overhead PLUGIN.so NAME CALLS core|native    for an instruction counter: only calls
//
// NAME is a backend that adds `step` to `data`; the same backend of the core is compiled into this program. Both are
// called through Backend::forward, as a node does, with a batch of one request that already has a `result`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "backend/init.hpp"
#include "pipe/pipe_state.hpp"
#include "plugin/library.hpp"

using namespace hami;

namespace {

class Add final : public Backend {
  void init_(Init& init) override { step_ = init.params().get<std::int64_t>("step"); }
  void forward_(Batch batch) override {
    for (Request* request : batch) {
      const std::int64_t data = request->dict.find(kData)->as_int();
      request->dict.set(kResult, Value(data + step_));
    }
  }
  std::int64_t step_ = 0;
};

BackendPtr make(BackendClass cls) {
  cls.traits = {};  // on this thread
  Plan plan;
  plan.params.set("step", Value(1));
  plan.label = cls.name;
  plan.cls = std::make_shared<BackendClass>(std::move(cls));
  static const auto context = std::make_shared<PipeContext>();
  return Init(context, "bench", std::make_shared<Dict>()).make(plan);
}

struct Contender {
  BackendPtr backend;
  Ref<Request> request = make_counted<Request>();

  explicit Contender(BackendPtr made) : backend(std::move(made)) {
    request->dict.set(kData, Value(41));
    run(1);
    if (request->dict.find(kResult)->as_int() != 42) std::abort();
  }
  void run(int calls) {
    Request* one = request.get();
    for (int i = 0; i < calls; ++i) backend->forward(Batch(&one, 1));
  }
  double nanoseconds(int calls) {
    const auto start = std::chrono::steady_clock::now();
    run(calls);
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count() / calls;
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) return std::fprintf(stderr, "usage: see the header comment of this file\n"), 2;
  register_core();
  BackendClass own;
  own.name = "Add";
  own.create = [] { return std::make_shared<Add>(); };
  Contender core(make(own));
  Contender* native = nullptr;
  for (const ClassPtr& cls : load_library(argv[1], "").classes)
    if (cls->name == argv[2]) native = new Contender(make(*cls));
  if (!native) return std::fprintf(stderr, "%s has no backend %s\n", argv[1], argv[2]), 2;

  if (argc == 5) {
    (std::strcmp(argv[4], "core") == 0 ? core : *native).run(std::atoi(argv[3]));
    return 0;
  }
  constexpr int kRounds = 201, kCalls = 20000;
  std::vector<double> core_ns, native_ns, over;
  for (int round = 0; round < kRounds; ++round) {
    core_ns.push_back(core.nanoseconds(kCalls));
    native_ns.push_back(native->nanoseconds(kCalls));
    over.push_back(native_ns.back() - core_ns.back());
  }
  std::printf("core %.1f ns, %s %.1f ns, difference in a round %.1f ns (medians of %d rounds of %d calls)\n",
              median(core_ns), argv[2], median(native_ns), median(over), kRounds, kCalls);
}
