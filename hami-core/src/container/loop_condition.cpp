// LoopCondition[X]: repeats X on its own result until a key, the time or a free instance ends the loop.

#include <algorithm>
#include <memory>

#include "backend/api.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

class LoopCondition final : public Backend {
 private:
  void init_(Init& init) override {
    const Params& params = init.params();
    until_ = params.get<std::string>("until");
    key_ = params.get<std::string>("key");
    count_ = params.get<std::int64_t>("count");
    time_ = from_milliseconds(params.get<double>("time"));
    node_ = init.node();
    context_ = &init.context();
    body_ = init.make(init.items()[0]);
  }

  // Every loop ends, because `count` and `time` limit it. The `result` of the last round remains.
  void forward_(Batch batch) override {
    const Nanoseconds end = after(time_);
    std::vector<Request*> active(batch.begin(), batch.end());
    for (std::int64_t round = 1;; ++round) {
      body_->forward(Batch(active));
      if (round >= count_ || now() >= end || (until_ == "instance" && context_->resources.has_free_instance(node_)))
        return;
      active.erase(std::remove_if(active.begin(), active.end(), [&](Request* request) { return !continues(*request); }),
                   active.end());
      if (active.empty()) return;
      for (Request* request : active) result_to_data(*request, body_->label());
    }
  }

  // A request without `result` cannot continue; the caller reports NoResult.
  bool continues(const Request& request) const {
    if (!request.alive() || request.abandoned() || !request.dict.contains(kResult)) return false;
    if (until_ != "key") return true;
    const Value* again = request.dict.find(key_);
    return again && again->kind() == Kind::kBool && again->as_bool();
  }

  Range range_() const override { return body_->range(); }

  std::string until_;
  std::string key_;
  std::int64_t count_ = 1;
  Nanoseconds time_ = 0;
  std::string node_;
  PipeContext* context_ = nullptr;  // outlives all backends of its pipe
  BackendPtr body_;
};

}  // namespace

[[gnu::cold]] void register_loop_condition(Registry& registry) {
  BackendClass cls;
  cls.name = "LoopCondition";
  cls.doc =
      "Runs its item repeatedly, each time on the last result.\n"
      "`until=key`: while the request's key is true; `until=time`: until the time is over; `until=instance`: while no instance\n"
      "of the node is free. It always ends: `count` and `time` both apply.";
  cls.range = "as its item";
  cls.params = parse_param_specs(
      "until: str = key {key,time,instance} 'what ends the loop'; key: str = again 'the key that continues the loop';"
      "count: int = 1000 {1..} 'maximum number of rounds'; time: duration = 10s 'no round starts after this time'");
  cls.brackets = {true, {Phase{}}};
  cls.create = [] { return std::make_shared<LoopCondition>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
