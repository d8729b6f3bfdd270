// The waits of all threads, and how a circle among them is found.
#include "request/wait_graph.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <utility>

#include "base/fork.hpp"
#include "request/execution_frame.hpp"
#include "base/mutex.hpp"

namespace hami {
namespace {

// All waits of the process: a circle may lead through several pipes. A thread that is woken ends its wait here before it does
// anything else. So while the mutex is held, an instance that stands in a wait does not come back.
struct WaitRegistry {
  explicit WaitRegistry(unsigned forks) noexcept : generation(forks) {}
  const unsigned generation;
  Mutex mutex;
  std::vector<const BlockedScope*> blocked_scopes HAMI_GUARDED_BY(mutex);
};

// The child of a fork begins anew: threads that are gone may have held the mutex.
WaitRegistry& waits() {
  static std::atomic<WaitRegistry*> current{new WaitRegistry(fork_generation())};
  WaitRegistry* found = current.load(std::memory_order_acquire);
  if (found->generation == fork_generation()) return *found;
  auto* fresh = new WaitRegistry(fork_generation());
  if (current.compare_exchange_strong(found, fresh)) return *fresh;
  delete fresh;
  return *found;
}

bool has(const std::vector<const WaitToken*>& sorted, const WaitToken* token) {
  return std::binary_search(sorted.begin(), sorted.end(), token, std::less<>());
}

// The largest set of waits of which none can end before a moment unless another one of them does: each is for a request that
// runs in an instance that is held by such a wait, or that is queued where all instances that could run it are.
class DeadlockSet {
 public:
  DeadlockSet(std::vector<const BlockedScope*> blocked_scopes, Nanoseconds moment) : waits_(std::move(blocked_scopes)), moment_(moment) {
    for (std::size_t before = 0; before != waits_.size();) {
      before = waits_.size();
      look();
      waits_.erase(std::remove_if(waits_.begin(), waits_.end(), [&](const BlockedScope* wait) { return !is_blocked(*wait); }),
                   waits_.end());
    }
  }

  // Throws if a wait for this is in a circle. One that is in the knot all the same waits for others, who have less time.
  void check_deadlock(const WaitToken* token) const {
    std::vector<std::string> names;
    for (const BlockedScope* wait : waits_)
      if (names.empty() && wait->token().get() == token) names = cycle_through(*wait);
    if (names.empty()) return;
    std::string path;
    for (const std::string& name : names) path += name + " -> ";
    throw Error(ErrorCode::kReentrantCall,
                "the call of node \"" + names.front() + "\" would never end: in " + path + names.front() +
                    " every instance waits for the next node; give one of them more instances (instance_num), the calls a "
                    "timeout, or call in another order");
  }

 private:
  // What would be stuck if none of these waits ever ended.
  void look() {
    by_frame_.clear();
    by_place_.clear();
    std::map<WaitLocation*, std::vector<std::size_t>> unavailable;
    for (const BlockedScope* wait : waits_)
      for (const ExecutionFrame* frame = wait->inside(); frame; frame = frame->outer()) {
        unavailable[&frame->location()].push_back(frame->instance());
        for (const Dependency& dependency : frame->dependencies())
          if (dependency.until >= moment_) by_frame_.push_back(dependency.token.get());
      }
    std::sort(by_frame_.begin(), by_frame_.end(), std::less<>());
    for (const auto& [place, instances] : unavailable) {
      std::vector<const WaitToken*>& blocked = by_place_[place];
      place->add_blocked(instances, moment_, blocked);
      std::sort(blocked.begin(), blocked.end(), std::less<>());
    }
  }

  bool is_blocked(const BlockedScope& wait) const {
    const WaitToken* token = wait.token().get();
    const auto queued = [&](const auto& entry) { return has(entry.second, token); };
    return token->open() && (has(by_frame_, token) || std::any_of(by_place_.begin(), by_place_.end(), queued));
  }

  // The outermost frame of `other` that holds up `wait`; null: none does.
  const ExecutionFrame* held_up(const BlockedScope& wait, const BlockedScope& other) const {
    const ExecutionFrame* outermost = nullptr;
    const WaitToken* const token = wait.token().get();
    const auto is_it = [&](const Dependency& dependency) { return dependency.token.get() == token && dependency.until >= moment_; };
    for (const ExecutionFrame* frame = other.inside(); frame; frame = frame->outer())
      if (has(by_place_.at(&frame->location()), token) || std::any_of(frame->dependencies().begin(), frame->dependencies().end(), is_it))
        outermost = frame;
    return outermost;
  }

  // The nodes on the shortest way from what the wait is for back to itself.
  std::vector<std::string> cycle_through(const BlockedScope& closing) const {
    std::map<const BlockedScope*, const BlockedScope*> before;  // on the way
    std::vector<const BlockedScope*> reached{&closing};
    for (std::size_t i = 0; i < reached.size() && !before.count(&closing); ++i)
      for (const BlockedScope* next : waits_)
        if (!before.count(next) && held_up(*reached[i], *next)) {
          before[next] = reached[i];
          reached.push_back(next);
        }
    if (!before.count(&closing)) return {};
    std::vector<std::string> backwards;
    const BlockedScope* here = &closing;
    do {
      const BlockedScope* const previous = before[here];
      const ExecutionFrame* const last = held_up(*previous, *here);
      for (const ExecutionFrame* frame = here->inside(); frame != last->outer(); frame = frame->outer())
        backwards.push_back(frame->location().location_name());
      here = previous;
    } while (here != &closing);
    return {backwards.rbegin(), backwards.rend()};
  }

  std::vector<const BlockedScope*> waits_;
  const Nanoseconds moment_;
  std::vector<const WaitToken*> by_frame_;                          // what needs something that runs where one of them stands
  std::map<const WaitLocation*, std::vector<const WaitToken*>> by_place_;  // what needs something that is queued and stuck
};

}  // namespace

Dependency dependency_of(const Request& request) noexcept {
  for (const Request* one = &request; one; one = one->parent.get()) {
    if (!one->wait_token) continue;
    WaitToken* const token = static_cast<WaitToken*>(one->wait_token.get());
    return {token, token->release() == WaitToken::Release::kEarly ? one->deadline : kNever};
  }
  return {};
}

BlockedScope::BlockedScope(WaitToken::Release leaves) : inside_(ExecutionFrame::on_this_thread()) {
  if (!inside_) return;
  token_ = make_counted<WaitToken>(leaves);
  inside_->record_dependencies();
  const MutexLock lock(waits().mutex);
  waits().blocked_scopes.push_back(this);
}

BlockedScope::BlockedScope(Dependency dependency) : token_(std::move(dependency.token)), inside_(token_ ? ExecutionFrame::on_this_thread() : nullptr) {
  if (!inside_) return;
  inside_->record_dependencies();
  const MutexLock lock(waits().mutex);
  std::vector<const BlockedScope*> all = waits().blocked_scopes;
  all.push_back(this);
  DeadlockSet(std::move(all), dependency.until).check_deadlock(token_.get());
  waits().blocked_scopes.push_back(this);
}

BlockedScope::~BlockedScope() {
  if (!inside_) return;
  const MutexLock lock(waits().mutex);
  std::vector<const BlockedScope*>& blocked_scopes = waits().blocked_scopes;
  blocked_scopes.erase(std::remove(blocked_scopes.begin(), blocked_scopes.end(), this), blocked_scopes.end());
}

WaitGraphLock::WaitGraphLock() : lock_(waits().mutex) {}

void WaitGraphLock::check_deadlock(const Request& arrived, const WaitLocation& at) const {
  const std::vector<const BlockedScope*>& blocked_scopes = waits().blocked_scopes;
  if (std::none_of(blocked_scopes.begin(), blocked_scopes.end(), [&](const BlockedScope* wait) { return ExecutionFrame::inside(at, wait->inside()); }))
    return;
  const Dependency dependency = dependency_of(arrived);
  DeadlockSet(blocked_scopes, dependency.until).check_deadlock(dependency.token.get());
}

}  // namespace hami
