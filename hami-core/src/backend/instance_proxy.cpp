// InstanceProxy: looks the instance up when it is first used, and detects recursion.
#include "backend/instance_proxy.hpp"

#include <optional>
#include <utility>

#include "sync/worker.hpp"

namespace hami {
namespace {

constexpr std::size_t kMaxNestedCalls = 1000;  // of instances on one thread; far below what the stack holds

class InstanceProxy final : public Backend {
 public:
  InstanceProxy(const std::shared_ptr<PipeContext>& context, std::string name)
      : context_(context), pipe_(context.get()), there_(context->instances.is_alive()), name_(std::move(name)) {}
  bool is_asynchronous() const noexcept override {
    const Inside inside(*this);
    if (inside.again()) return true;
    const Visit visit(*this);
    const Backend* found = visit.entered() ? registered() : nullptr;
    return !found || found->is_asynchronous();
  }

 private:
  // On the stack of a thread while it uses the instance. A thread that does not work for the pipe delays its close until then.
  class Visit {
   public:
    explicit Visit(const InstanceProxy& proxy) noexcept : visitor_{proxy.name_} {
      if (WorkScope::inside(proxy.pipe_)) return;
      context_ = proxy.context_.lock();
      entered_ = context_ && context_->instances.enter(visitor_);
      if (entered_) work_.emplace(proxy.pipe_);
    }
    ~Visit() {
      work_.reset();
      if (entered_ && context_) context_->instances.leave(visitor_);
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    bool entered() const noexcept { return entered_; }
    void check() const {
      if (!entered_) throw Error::pipe_closed();
    }

   private:
    InstanceTable::Visitor visitor_;
    std::shared_ptr<PipeContext> context_;
    bool entered_ = true;
    std::optional<WorkScope> work_;
  };

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
    explicit Call(const InstanceProxy& proxy) : visit_(proxy) {
      visit_.check();
      if (inside >= kMaxNestedCalls) proxy.throw_recursion(ErrorCode::kReentrantCall);
      ++inside;
    }
    ~Call() { --inside; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    static thread_local std::size_t inside;
    const Visit visit_;
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
  void inject_dependency_(const BackendPtr& dependency) override {
    const Call call(*this);
    target().inject_dependency(dependency);
  }
  void post_(Batch batch, InlinePolicy how) override {
    const Call call(*this);
    target().post(batch, how);
  }
  // While the pipe is built the instance may not be registered yet: then no range is declared.
  Range range_() const override {
    const Inside inside(*this);
    if (inside.again()) throw_recursion(ErrorCode::kConfig);
    const Visit visit(*this);
    const Backend* found = visit.entered() ? registered() : nullptr;
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
  const PipeContext* const pipe_;  // only its identity
  std::shared_ptr<const std::atomic<bool>> there_;
  std::string name_;
  mutable std::atomic<Backend*> target_{nullptr};
};

thread_local InstanceProxy::Inside* InstanceProxy::Inside::innermost = nullptr;
thread_local std::size_t InstanceProxy::Call::inside = 0;

}  // namespace

BackendPtr make_instance_proxy(const std::shared_ptr<PipeContext>& context, std::string name) {
  return std::make_shared<InstanceProxy>(context, std::move(name));
}

}  // namespace hami
