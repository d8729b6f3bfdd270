// The instances of a pipe by name, and backends that stand for them.
#include "backend/instances.hpp"

#include "backend/pipe_context.hpp"

#include <optional>
#include <utility>

namespace hami {

// ---- InstanceTable: registration and look-up.

void InstanceTable::add(const std::string& name, BackendPtr backend) {
  MutexLock lock(mutex_);
  if (by_name_.count(name)) throw Error(ErrorCode::kAlreadyExists, "instance \"" + name + "\" exists already");
  by_name_[name] = backend.get();
  instances_.emplace_back(name, std::move(backend));
}

void InstanceTable::mark_auto(const std::string& node) {
  MutexLock lock(mutex_);
  auto_nodes_.insert(node);
}

bool InstanceTable::is_auto(const std::string& node) const noexcept {
  MutexLock lock(mutex_);
  return auto_nodes_.count(node) > 0;
}

Backend* InstanceTable::find(const std::string& name) const noexcept {
  MutexLock lock(mutex_);
  return find_locked(name);
}

Backend* InstanceTable::find_locked(const std::string& name) const noexcept {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) found = by_name_.find("node." + name);
  return found == by_name_.end() ? nullptr : found->second;
}

Backend& InstanceTable::get(const std::string& name) const {
  MutexLock lock(mutex_);
  if (Backend* backend = find_locked(name)) return *backend;
  std::vector<std::string> candidates;
  for (const auto& entry : instances_) candidates.push_back(entry.first);
  throw Error(ErrorCode::kNotFound, "instance \"" + name + "\" not found" + did_you_mean(near_names(name, candidates)));
}

bool InstanceTable::enter(Visitor& visitor) noexcept {
  MutexLock lock(mutex_);
  if (visits_ended_) return false;
  visitor.next = visitors_;
  if (visitors_) visitors_->previous = &visitor;
  visitors_ = &visitor;
  return true;
}

void InstanceTable::leave(Visitor& visitor) noexcept {
  MutexLock lock(mutex_);
  (visitor.previous ? visitor.previous->next : visitors_) = visitor.next;
  if (visitor.next) visitor.next->previous = visitor.previous;
  if (!visitors_) left_.notify_all();
}

std::vector<std::string> InstanceTable::end_visits(Nanoseconds until) {
  {
    MutexLock lock(mutex_);
    visits_ended_ = true;
    if (!visitors_) return {};
  }
  wait_for(mutex_, left_, until, [&] {
    mutex_.assert_held();
    return !visitors_;
  });
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const Visitor* visitor = visitors_; visitor; visitor = visitor->next) names.push_back(visitor->name);
  return names;
}

void InstanceTable::expect(const std::string& name, const std::string& node) {
  MutexLock lock(mutex_);
  expected_.emplace_back(name, node);
}

void InstanceTable::check_expected() const {
  std::vector<std::pair<std::string, std::string>> expected;
  {
    MutexLock lock(mutex_);
    expected = expected_;
  }
  for (const auto& [name, node] : expected) {
    try {
      get(name).range();  // throws if the instance names itself
    } catch (const Error& error) {
      throw node.empty() ? error : error.with_note("node \"" + node + "\"");
    }
  }
}

void InstanceTable::clear() noexcept {
  *is_alive_ = false;
  std::vector<std::pair<std::string, BackendPtr>> instances;  // destroyed without the mutex
  {
    MutexLock lock(mutex_);
    by_name_.clear();
    instances.swap(instances_);
  }
  while (!instances.empty()) instances.pop_back();
}

// ---- InstanceProxy: looks the instance up when it is first used, and detects recursion.

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
