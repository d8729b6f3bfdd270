// Init: builds backends from plans.
#include "backend/init.hpp"

#include <utility>

#include "backend/instances.hpp"
#include "backend/thread_modes.hpp"
#include "request/api.hpp"

namespace hami {
namespace {

// Whether a backend has an entry of its own in the times of its node. Containers of the core only pass requests on.
bool has_time(const Plan& plan) { return plan.cls && (plan.phases.empty() || plan.cls->owner != "hami-core"); }

// Adds an entry for each backend of an instance, in written order.
void add_times(const Plan& plan, BackendTimes& times) {
  if (has_time(plan)) times.add(&plan, plan.label);
  if (plan.cls && plan.cls->outlines_items) return;
  for (const std::vector<PlanItem>& phase : plan.phases)
    for (const PlanItem& item : phase)
      if (item.plan) add_times(*item.plan, times);
}

}  // namespace

// Null if the backend is the only one of its instance: its time is that of the node.
BackendTime* Init::time_of(const Plan& plan) const {
  if (!instance_) return nullptr;
  BackendTimes& times = context_->resources.times(node_).backends;
  if (!is_measured_) add_times(plan, times);
  return times.size() > 1 ? times.of(&plan) : nullptr;
}

BackendPtr Init::make(const Plan& plan) {
  if (plan.binding) return bindings_->at(plan.binding);
  if (!plan.instance.empty()) {
    context_->instances.expect(plan.instance, node_);
    return make_instance_proxy(context_, plan.instance);
  }
  if (!plan.cls) throw Error(ErrorCode::kInternal, "\"" + plan.label + "\" has a plan without a class");
  check_interrupt();  // before each backend, so that Ctrl-C does not wait for all of them
  if (plan.traits.thread == ThreadMode::kDedicated && !on_own_thread_) return make_on_dedicated_thread(plan);
  BackendPtr backend = plan.cls->create();
  const bool needs_lock = plan.cls->traits.thread == ThreadMode::kSerialized && !is_serialized_;
  Init init = *this;
  init.plan_ = &plan;
  init.is_measured_ = instance_.has_value();
  init.is_serialized_ = is_serialized_ || needs_lock;
  try {
    backend->describe(plan.label, plan.traits);
    backend->measure(time_of(plan));
    backend->init(init);
    for (const Plan& next : plan.absorbed) backend->absorb(init.make(next));
  } catch (...) {
    Error error = current_error();
    // The event will hold this error, whose traceback may hold the options, which hold the event: a reference cycle that
    // Python's garbage collector cannot see.
    if (on_own_thread_ || !context_->shutdown.has_detached_init()) options_->erase(kInitEvent);
    if (error.notes().empty()) {
      const bool whole = plan.absent_child.empty();
      error = error.with_note("init of " + plan.label +
                              (whole ? "" : " without its default child (" + plan.absent_child + ")"));
    }
    throw error;
  }
  return needs_lock ? std::make_shared<SerializedBackend>(std::move(backend)) : backend;
}

BackendPtr Init::make_until(Nanoseconds until, const Error& expired, const PlanItem& item) const {
  return build_until(until, expired, item.plan->label, *context_,
                     [init = *this, &plan = *item.plan]() mutable { return init.make(plan); });
}

BackendPtr Init::make_on_dedicated_thread(const Plan& plan) const {
  auto thread = std::make_shared<DedicatedThread>(
      plan.label, node_, context_, [init = on_own_thread(), &plan]() mutable { return init.make(plan); });
  thread->describe(plan.label, plan.traits);
  return thread;
}

Init Init::for_instance(std::size_t number) const {
  Init init = *this;
  init.instance_ = number;
  init.options_ = std::make_shared<Dict>();
  init.options_->set(kInstanceNumber, static_cast<std::int64_t>(number));
  if (const Value* ready = options_->find(kInitEvent)) init.options_->set(kInitEvent, *ready);
  return init;
}

Init Init::on_own_thread() const {
  Init init = *this;
  init.on_own_thread_ = true;
  init.is_serialized_ = true;
  return init;
}

}  // namespace hami
