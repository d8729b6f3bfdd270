// What a backend gets when it is initialised: its parameters, its bracket items, and the means to make them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "backend/pipe_context.hpp"
#include "backend/plan.hpp"

namespace hami {

// Backends bound by the IoCs around, by number. One map for each root that is made.
using Bindings = std::map<std::size_t, BackendPtr>;

// The key in `options` of the event that is notified when the node is ready, or failed with the reason why it is not.
inline constexpr std::string_view kInitEvent = "init_event";
inline constexpr std::string_view kInstanceNumber = "instance";

class Init {
 public:
  Init(std::shared_ptr<PipeContext> context, std::string node, std::shared_ptr<Dict> options)
      : context_(std::move(context)), node_(std::move(node)), options_(std::move(options)) {}

  const Params& params() const noexcept { return plan_->params; }
  const std::vector<Arg>& args() const noexcept { return plan_->args; }
  const std::string& label() const noexcept { return plan_->label; }
  const Traits& traits() const noexcept { return plan_->traits; }
  // One dict for each instance, shared by its backends: `instance` is its number there, and all instances of a node have
  // the same `init_event`.
  Dict& options() const noexcept { return *options_; }
  const std::shared_ptr<Dict>& shared_options() const noexcept { return options_; }
  const std::string& node() const noexcept { return node_; }
  PipeContext& context() const noexcept { return *context_; }
  const std::shared_ptr<PipeContext>& shared_context() const noexcept { return context_; }

  bool has_brackets() const noexcept { return !plan_->phases.empty(); }
  const std::vector<PlanItem>& items(std::size_t phase = 0) const noexcept { return plan_->phases[phase]; }
  std::size_t phase_count() const noexcept { return plan_->phases.size(); }

  // Makes and initialises an item, on a thread of its own if its class wants one and we are not on it already.
  // An item that stands for an existing backend gives that; a named instance may be registered later than its user.
  BackendPtr make(const PlanItem& item) { return make(*item.plan); }
  BackendPtr make(const Plan& plan);
  // The same, on a dedicated thread that also runs and closes what is made.
  BackendPtr make_on_dedicated_thread(const Plan& plan) const;
  void bind(std::size_t binding, BackendPtr backend) { (*bindings_)[binding] = std::move(backend); }

  // The same surroundings, instance `number` of its node: fresh options.
  Init for_instance(std::size_t number) const;
  // Empty where it is not one of many.
  const std::optional<std::size_t>& instance() const noexcept { return instance_; }
  // The same, on a thread that belongs to what is made.
  Init on_own_thread() const;

 private:
  std::shared_ptr<PipeContext> context_;
  std::string node_;
  std::shared_ptr<Dict> options_;
  std::shared_ptr<Bindings> bindings_ = std::make_shared<Bindings>();
  const Plan* plan_ = nullptr;
  std::optional<std::size_t> instance_;
  bool on_own_thread_ = false;
  bool is_called_in_turn_ = false;  // never two calls at a time: what is made needs no lock of its own
};

}  // namespace hami
