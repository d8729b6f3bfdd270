// Register and InstancesRegister: register backends by name.
#include <memory>
#include <optional>

#include "backend/plan.hpp"
#include "base/cores.hpp"
#include "container/forwarding.hpp"

namespace hami {
namespace {

class Register final : public Forwarding {
 private:
  void init_(Init& init) override {
    target_ = init.make(init.items()[0]);
    init.context().instances.add("node." + init.node(), target_);
  }
};

class InstancesRegister final : public Backend {
 public:
  ~InstancesRegister() override {
    while (!instances_.empty()) instances_.pop_back();
  }

 private:
  void init_(Init& init) override {
    const Value& given = *init.params().find(kInstanceNum);
    const bool is_auto = given.kind() == Kind::kStr;
    const std::int64_t count = is_auto ? usable_cores() : given.as_int();
    if (is_auto) init.context().instances.mark_auto(init.node());
    const auto timeout = init.params().get<std::optional<double>>("init_timeout");
    const Nanoseconds until = timeout ? after(from_milliseconds(*timeout)) : kNever;
    for (std::int64_t i = 0; i < count; ++i) {
      Init instance = init.for_instance(static_cast<std::size_t>(i));
      const PlanItem& item = init.items()[0];
      instances_.push_back(timeout ? instance.make_until(until, expired(init.node(), *timeout), item)
                                   : instance.make(item));
      init.context().instances.add(init.node() + "." + std::to_string(i), instances_.back());
    }
  }

  static Error expired(const std::string& node, double timeout) {
    return Error(ErrorCode::kDeadlineExceeded, "the init of node \"" + node + "\" took longer than init_timeout = " +
                                                   show_value(ParamType::kDuration, Value(timeout)));
  }

  void forward_(Batch) override {
    throw Error(ErrorCode::kConfig, "InstancesRegister has no forward; call an instance");
  }

  std::vector<BackendPtr> instances_;
};

}  // namespace

void register_registers(Registry& registry) {
  BackendClass reg;
  reg.name = "Register";
  reg.doc = "Registers its item under the name `node.<node_name>`.";
  reg.range = "as its item";
  reg.brackets = {true, {Phase{}}};
  reg.schedules = true;
  reg.owns_threads = true;
  reg.declare_names = [](const Plan&, NameDeclarations& names) { names.register_node(); };
  reg.create = [] { return std::make_shared<Register>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(reg)));

  BackendClass instances;
  instances.name = "InstancesRegister";
  instances.doc = "Builds `instance_num` copies of its item and registers them as `<node_name>.<i>`; has no forward.";
  instances.params = parse_param_specs(
      "instance_num: int = auto {1..65536,auto} 'number of instances; auto: one for each core if the classes are `lightweight`, which are added while throughput improves, else 1';"
      "init_timeout: duration? 'time limit for the init of all instances together'");
  instances.brackets = {true, {Phase{}}};
  instances.schedules = true;
  instances.owns_threads = true;
  instances.makes_copies = true;
  instances.declare_names = [](const Plan& plan, NameDeclarations& names) {
    const Value* count = plan.params.find(kInstanceNum);
    const bool is_auto = count && count->kind() == Kind::kStr;  // only the first exists on every machine
    names.register_instances(names.node(), !count ? NameDeclarations::kAnyCount : is_auto ? 1 : count->as_int());
  };
  instances.create = [] { return std::make_shared<InstancesRegister>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(instances)));
}

}  // namespace hami
