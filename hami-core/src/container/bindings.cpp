// IoC, DI, List, Register, InstancesRegister: how backends are bound to names and to each other.

#include <memory>
#include <optional>

#include "backend/api.hpp"
#include "container/forwarding.hpp"

namespace hami {

// ---- IoC, DI and List: order of construction, and dependencies between backends.

namespace {

class InversionOfControl final : public Forwarding {
 public:
  ~InversionOfControl() override {
    target_ = nullptr;
    while (!parts_.empty()) parts_.pop_back();
  }

 private:
  void init_(Init& init) override {
    for (const PlanItem& item : init.items(0)) {
      parts_.push_back(init.make(item));
      if (item.binding) init.bind(item.binding, parts_.back());
    }
    target_ = init.make(init.items(1)[0]);
  }

  std::vector<BackendPtr> parts_;
};

class DependencyInjection final : public Forwarding {
 public:
  ~DependencyInjection() override {
    target_ = nullptr;
    while (!parts_.empty()) parts_.pop_back();
  }

 private:
  void init_(Init& init) override {
    parts_ = make_injected(init);
    target_ = parts_.front();
  }

  std::vector<BackendPtr> parts_;
};

class List final : public Backend {
 public:
  ~List() override {
    while (!parts_.empty()) parts_.pop_back();
  }

 private:
  void init_(Init& init) override {
    for (const PlanItem& item : init.items()) parts_.push_back(init.make(item));
  }
  void forward_(Batch) override {
    throw Error(ErrorCode::kConfig, "List has no forward; it only initialises its items");
  }

  std::vector<BackendPtr> parts_;
};

}  // namespace

std::vector<BackendPtr> make_injected(Init& init) {
  std::vector<BackendPtr> parts;
  for (const PlanItem& item : init.items()) parts.push_back(init.make(item));
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) parts[i]->inject_dependency(parts[i + 1]);
  return parts;
}

[[gnu::cold]] void register_bindings(Registry& registry) {
  const Phase many{1, Phase::kMany};

  BackendClass ioc;
  ioc.name = "IoC";
  ioc.doc =
      "Builds the items before `;` in order and runs the item after it.\n"
      "The name or alias of each refers to that one instance in all later items. Bound names are lexical: the bodies of\n"
      "generated backends and expressions of `Reflect` do not see them. Destroyed in reverse order.";
  ioc.range = "as the item after `;`";
  ioc.brackets = {true, {many, Phase{}}};
  ioc.binds_names = true;
  ioc.traits.lightweight = true;
  ioc.create = [] { return std::make_shared<InversionOfControl>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(ioc)));

  BackendClass di;
  di.name = "DI";
  di.aliases = {"Aspect", "Block"};
  di.doc = "Injects each item into the one before it and runs the first.";
  di.range = "as its first item";
  di.brackets = {true, {many}};
  di.traits.lightweight = true;
  di.create = [] { return std::make_shared<DependencyInjection>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(di)));

  BackendClass list;
  list.name = "List";
  list.doc = "Initialises its items in order; has no forward.";
  list.brackets = {true, {many}};
  list.create = [] { return std::make_shared<List>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(list)));
}

// ---- Register and InstancesRegister: register backends by name.

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
    const PlanItem& item = init.items()[0];
    const std::int64_t count =
        is_auto ? std::min<std::int64_t>(usable_cores(), item.plan->traits.most_instances) : given.as_int();
    if (is_auto) init.context().instances.mark_auto(init.node());
    const auto timeout = init.params().get<std::optional<double>>("init_timeout");
    const Nanoseconds until = timeout ? after(from_milliseconds(*timeout)) : kNever;
    for (std::int64_t i = 0; i < count; ++i) {
      Init instance = init.for_instance(static_cast<std::size_t>(i));
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

[[gnu::cold]] void register_registers(Registry& registry) {
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
      "instance_num: int = auto {0..65536,auto} 'number of instances; auto: one for each core if the classes are `lightweight`, which are added while throughput improves, else 1; 0: one for each core';"
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
