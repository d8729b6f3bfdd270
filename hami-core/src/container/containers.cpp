// Registers the containers, and defines those that are too small for a file.

#include "container/api.hpp"
#include "container/forwarding.hpp"
#include "container/sequential.hpp"

namespace hami {

[[gnu::cold]] void register_bindings(Registry& registry);
[[gnu::cold]] void register_cat_split(Registry& registry);
[[gnu::cold]] void register_decisions(Registry& registry);
[[gnu::cold]] void register_fan_out(Registry& registry);
[[gnu::cold]] void register_loop_condition(Registry& registry);
[[gnu::cold]] void register_model_loader(Registry& registry);
[[gnu::cold]] void register_queues(Registry& registry);
[[gnu::cold]] void register_references(Registry& registry);
[[gnu::cold]] void register_registers(Registry& registry);
[[gnu::cold]] void register_repost(Registry& registry);
[[gnu::cold]] void register_stateful(Registry& registry);
[[gnu::cold]] void register_utilities(Registry& registry);

namespace {

class Identity final : public Backend {
 private:
  void forward_(Batch batch) override { set_result_to_data(batch); }
};

class BackgroundThread final : public Forwarding {
 public:
  Worker* own_worker() noexcept override { return target_ ? target_->own_worker() : nullptr; }
  Backend& on_own_thread() noexcept override { return target_->on_own_thread(); }

 private:
  void init_(Init& init) override { target_ = init.make_on_dedicated_thread(*init.items()[0].plan); }
};

}  // namespace

[[gnu::cold]] void register_containers(Registry& registry) {
  BackendClass identity;
  identity.name = "Identity";
  identity.doc = "Sets `result` to `data`. Without `data` the request fails.";
  identity.traits.non_blocking = true;
  identity.traits.lightweight = true;
  identity.create = [] { return std::make_shared<Identity>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(identity)));

  BackendClass sequential;
  sequential.name = "Sequential";
  sequential.aliases = {"S"};
  sequential.doc =
      "Runs its items in order; `result` of one is `data` of the next.\n"
      "A request without `result` after an item fails (`NoResult`); the others continue. `(or)X` runs X only on requests that\n"
      "have neither result nor error. Initialised from right to left.";
  sequential.range = kNarrowest;
  sequential.brackets = {true, {Phase{1, Phase::kMany, ItemKind::kBackend, {"or"}}}};
  sequential.traits.non_blocking = true;
  sequential.traits.lightweight = true;
  sequential.runs_in_order = true;
  sequential.create = [] { return std::make_shared<Sequential>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(sequential)));

  BackendClass thread;
  thread.name = "BackgroundThread";
  thread.doc = "Initialises, runs and closes its backend on a dedicated thread.";
  thread.range = "as its item";
  thread.brackets = {true, {Phase{}}};
  thread.owns_threads = true;
  thread.create = [] { return std::make_shared<BackgroundThread>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(thread)));

  register_bindings(registry);
  register_cat_split(registry);
  register_decisions(registry);
  register_fan_out(registry);
  register_loop_condition(registry);
  register_model_loader(registry);
  register_queues(registry);
  register_references(registry);
  register_registers(registry);
  register_repost(registry);
  register_stateful(registry);
  register_utilities(registry);
}

}  // namespace hami
