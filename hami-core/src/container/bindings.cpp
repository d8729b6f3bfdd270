// IoC, DI and List: order of construction, and dependencies between backends.
#include <memory>

#include "container/forwarding.hpp"

namespace hami {
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

void register_bindings(Registry& registry) {
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

}  // namespace hami
