// Init: what a backend gets when it is initialised: its parameters, its bracket items, and the means to build them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "backend/pipe_context.hpp"
#include "backend/plan.hpp"

namespace hami {

// Backends that enclosing IoCs bound, by number. One map for each root expression.
using Bindings = std::map<std::size_t, BackendPtr>;

// The key in `options` of the event that completes when the node is ready, or fails with the error of its init.
inline constexpr std::string_view kInitEvent = "init_event";
inline constexpr std::string_view kInstanceNumber = "instance";

class Init {
 public:
  Init(std::shared_ptr<PipeContext> context, std::string node, std::shared_ptr<Dict> options)
      : context_(std::move(context)), node_(std::move(node)), options_(std::move(options)) {}

  const ClassPtr& cls() const noexcept { return plan_->cls; }
  const Params& params() const noexcept { return plan_->params; }
  const std::vector<Arg>& args() const noexcept { return plan_->args; }
  const std::string& label() const noexcept { return plan_->label; }
  const Traits& traits() const noexcept { return plan_->traits; }
  // One dict for each instance, shared by the backends of the instance: `instance` is its number, and `init_event` is the same
  // for all instances of a node.
  Dict& options() const noexcept { return *options_; }
  const std::shared_ptr<Dict>& shared_options() const noexcept { return options_; }
  const std::string& node() const noexcept { return node_; }
  PipeContext& context() const noexcept { return *context_; }
  const std::shared_ptr<PipeContext>& shared_context() const noexcept { return context_; }

  bool has_brackets() const noexcept { return !plan_->phases.empty(); }
  const std::vector<PlanItem>& items(std::size_t phase = 0) const noexcept { return plan_->phases[phase]; }

  // Builds and initialises an item, on a dedicated thread if its class asks for one and this is not such a thread already.
  // For an item that refers to an existing backend it returns that one; a named instance may be registered later.
  BackendPtr make(const PlanItem& item) { return make(*item.plan); }
  BackendPtr make(const Plan& plan);
  // The same on a temporary thread, for as long as `until`. Throws `expired` then; the init continues, detached.
  BackendPtr make_until(Nanoseconds until, const Error& expired, const PlanItem& item) const;
  // The same on a new dedicated thread, which also runs and closes the backend.
  BackendPtr make_on_dedicated_thread(const Plan& plan) const;
  void bind(std::size_t binding, BackendPtr backend) { (*bindings_)[binding] = std::move(backend); }

  // This context for instance `number` of the node, with options of its own.
  Init for_instance(std::size_t number) const;
  // Empty outside of InstancesRegister.
  const std::optional<std::size_t>& instance() const noexcept { return instance_; }
  // This context on a thread that is dedicated to the backend.
  Init on_own_thread() const;

 private:
  BackendTime* time_of(const Plan& plan) const;

  std::shared_ptr<PipeContext> context_;
  std::string node_;
  std::shared_ptr<Dict> options_;
  std::shared_ptr<Bindings> bindings_ = std::make_shared<Bindings>();
  const Plan* plan_ = nullptr;
  std::optional<std::size_t> instance_;
  bool is_measured_ =
      false;  // inside a backend of an instance, whose backends all have entries in the times of the node
  bool on_own_thread_ = false;
  bool is_serialized_ = false;  // one call at a time: backends inside need no lock of their own
};

}  // namespace hami
