// Init: builds backends from plans; InstanceProxy calls instances by name.
#include "backend/init.hpp"

#include <utility>

#include "backend/dedicated_thread.hpp"
#include "backend/serialized_backend.hpp"
#include "sync/blocking.hpp"

namespace hami {
namespace {

constexpr std::size_t kMaxNestedCalls = 1000;  // of instances on one thread; far below what the stack holds

class InstanceProxy final : public Backend {
 public:
  InstanceProxy(const std::shared_ptr<PipeContext>& context, std::string name)
      : context_(context), there_(context->instances.is_alive()), name_(std::move(name)) {}
  bool is_asynchronous() const noexcept override {
    const Inside inside(*this);
    const Backend* found = inside.again() ? nullptr : registered();
    return !found || found->is_asynchronous();
  }

 private:
  // The proxies that this thread queries, innermost first: detects an instance that refers to itself.
  class Inside {
   public:
    explicit Inside(const InstanceProxy& proxy) : proxy_(&proxy), outer_(std::exchange(innermost, this)) {}
    ~Inside() { innermost = outer_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    bool again() const noexcept {
      for (const Inside* each = outer_; each; each = each->outer_)
        if (each->proxy_ == proxy_) return true;
      return false;
    }

   private:
    static thread_local Inside* innermost;
    const InstanceProxy* proxy_;
    Inside* outer_;
  };

  // Limits the recursion of an instance that refers to itself and was not detected by its range.
  class Call {
   public:
    explicit Call(const InstanceProxy& proxy) {
      if (inside >= kMaxNestedCalls) proxy.throw_recursion(ErrorCode::kReentrantCall);
      ++inside;
    }
    ~Call() { --inside; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    static thread_local std::size_t inside;
  };

  [[noreturn]] void throw_recursion(ErrorCode code) const {
    throw Error(code, "instance \"" + name_ + "\" calls itself, directly or through other instances");
  }
  void forward_(Batch batch) override {
    const Call call(*this);
    target().forward(batch);
  }
  void forward_with_dep_(Batch batch, Backend& dependency) override {
    const Call call(*this);
    target().forward_with_dep(batch, dependency);
  }
  void inject_dependency_(const BackendPtr& dependency) override { target().inject_dependency(dependency); }
  void post_(Batch batch, InlinePolicy how) override {
    const Call call(*this);
    target().post(batch, how);
  }
  // While the pipe is built the instance may not be registered yet: then no range is declared.
  Range range_() const override {
    const Inside inside(*this);
    if (inside.again()) throw_recursion(ErrorCode::kConfig);
    const Backend* found = registered();
    return found ? found->range() : Range{};
  }
  const Backend* registered() const noexcept {
    if (!*there_) return nullptr;
    if (const Backend* found = target_.load(std::memory_order_acquire)) return found;
    const std::shared_ptr<PipeContext> context = context_.lock();
    return context ? context->instances.find(name_) : nullptr;
  }

  // A backend may call it in its `close`, after the instance was destroyed.
  Backend& target() const {
    if (!*there_) throw Error::pipe_closed();
    Backend* found = target_.load(std::memory_order_acquire);
    if (found) return *found;
    const std::shared_ptr<PipeContext> context = context_.lock();
    if (!context) throw Error::pipe_closed();
    found = &context->instances.get(name_);
    target_.store(found, std::memory_order_release);
    return *found;
  }

  std::weak_ptr<PipeContext> context_;
  std::shared_ptr<const std::atomic<bool>> there_;
  std::string name_;
  mutable std::atomic<Backend*> target_{nullptr};
};

thread_local InstanceProxy::Inside* InstanceProxy::Inside::innermost = nullptr;
thread_local std::size_t InstanceProxy::Call::inside = 0;

}  // namespace

BackendPtr Init::make(const Plan& plan) {
  if (plan.binding) return bindings_->at(plan.binding);
  if (!plan.instance.empty()) {
    context_->instances.expect(plan.instance, node_);
    return std::make_shared<InstanceProxy>(context_, plan.instance);
  }
  if (!plan.cls) throw Error(ErrorCode::kInternal, "\"" + plan.label + "\" has a plan without a class");
  check_interrupt();  // before each backend, so that Ctrl-C does not wait for all of them
  if (plan.traits.thread == ThreadMode::kDedicated && !on_own_thread_) return make_on_dedicated_thread(plan);
  BackendPtr backend = plan.cls->create();
  const bool needs_lock = plan.cls->traits.thread == ThreadMode::kSerialized && !is_serialized_;
  Init init = *this;
  init.plan_ = &plan;
  init.is_serialized_ = is_serialized_ || needs_lock;
  try {
    backend->describe(plan.label, plan.traits);
    backend->init(init);
  } catch (...) {
    Error error = current_error();
    // The event will hold this error, whose traceback may hold the options, which hold the event: a reference cycle that
    // Python's garbage collector cannot see.
    if (on_own_thread_ || !context_->shutdown.has_detached_init()) options_->erase(kInitEvent);
    if (error.notes().empty()) error = error.with_note("init of " + plan.label);
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
