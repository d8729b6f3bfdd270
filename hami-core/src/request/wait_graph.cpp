// The registry of waits, and the detection of deadlock cycles.
#include "request/wait_graph.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "request/execution_frame.hpp"
#include "sync/api.hpp"

namespace hami {
namespace {

// All waits of the process: a cycle may lead through several pipes. A woken thread removes its wait before it does anything
// else, so while the mutex is held, an instance whose thread is in a wait does not become available.
struct WaitRegistry {
  Mutex mutex;
  std::vector<BlockedScope*> blocked_scopes HAMI_GUARDED_BY(mutex);
};

PerProcess<WaitRegistry> registry_of_waits;

WaitRegistry& waits() { return registry_of_waits.get(); }

// The waits that have not been refused: the thread of such a wait continues.
std::vector<const BlockedScope*> pending_waits() HAMI_REQUIRES(waits().mutex) {
  std::vector<const BlockedScope*> pending;
  for (const BlockedScope* wait : waits().blocked_scopes)
    if (!wait->refused()) pending.push_back(wait);
  return pending;
}

bool has(const std::vector<const WaitToken*>& sorted, const WaitToken* token) {
  return std::binary_search(sorted.begin(), sorted.end(), token, std::less<>());
}

constexpr std::size_t kMaxPipeName = 200;  // columns; a path keeps its file name

// "a -> b -> a". If the nodes belong to several pipes, each name is followed by that of its pipe; pipes with the same name are
// numbered.
std::string path_of(const std::vector<const WaitLocation*>& cycle) {
  std::vector<const std::string*> pipes;  // each once
  for (const WaitLocation* node : cycle)
    if (std::find(pipes.begin(), pipes.end(), &node->pipe_name()) == pipes.end()) pipes.push_back(&node->pipe_name());
  const auto show = [&](const WaitLocation& node) {
    if (pipes.size() == 1) return node.location_name();
    std::size_t same = 0;
    std::size_t number = 0;
    for (const std::string* pipe : pipes) {
      same += *pipe == node.pipe_name();
      if (pipe == &node.pipe_name()) number = same;
    }
    return node.location_name() + " of pipe " + in_quotes(node.pipe_name(), kMaxPipeName) +
           (same > 1 ? " (" + std::to_string(number) + ")" : "");
  };
  std::string path;
  for (const WaitLocation* node : cycle) path += show(*node) + " -> ";
  return path + show(*cycle.front());
}

// The maximal deadlocked set: every wait in it is blocked only by others in it, at least until `moment`. A wait is blocked if
// its request runs in an instance whose thread is in such a wait, or is queued where all instances that could run it are.
class DeadlockSet {
 public:
  DeadlockSet(std::vector<const BlockedScope*> blocked_scopes, Nanoseconds moment)
      : waits_(std::move(blocked_scopes)), moment_(moment) {
    for (std::size_t before = 0; before != waits_.size();) {
      before = waits_.size();
      collect_blocked();
      waits_.erase(
          std::remove_if(waits_.begin(), waits_.end(), [&](const BlockedScope* wait) { return !is_blocked(*wait); }),
          waits_.end());
    }
  }

  // Throws if a wait for this token is part of a cycle. A wait can also be in the set without being part of a cycle.
  void check_deadlock(const WaitToken* token) const {
    std::vector<const WaitLocation*> cycle;
    for (const BlockedScope* wait : waits_)
      if (cycle.empty() && !wait->full() && wait->token().get() == token) cycle = cycle_through(*wait);
    if (cycle.empty()) return;
    throw Error(ErrorCode::kReentrantCall,
                "nested calls would deadlock: " + path_of(cycle) +
                    "; every instance of these nodes waits for the next one; give a "
                    "node more instances (instance_num), give the calls a timeout, or call in another order");
  }
  // The error of this wait for capacity if it is part of a cycle.
  std::optional<Error> deadlock_of(const BlockedScope& wait) const {
    if (std::find(waits_.begin(), waits_.end(), &wait) == waits_.end()) return std::nullopt;
    const std::vector<const WaitLocation*> cycle = cycle_through(wait);
    if (cycle.empty()) return std::nullopt;
    return Error(ErrorCode::kReentrantCall,
                 "waiting for capacity in the queue of node \"" + wait.full()->location_name() +
                     "\" would deadlock: " + path_of(cycle) +
                     "; every instance of these nodes waits for the next one; give a node a larger queue "
                     "(max_queue_size) or more instances (instance_num), or submit from a thread of your own");
  }
  bool empty() const noexcept { return waits_.empty(); }

 private:
  // Collects the tokens that are blocked if none of these waits ends.
  void collect_blocked() {
    by_frame_.clear();
    by_location_.clear();
    std::map<WaitLocation*, std::vector<std::size_t>> unavailable;
    for (const BlockedScope* wait : waits_)
      for (const ExecutionFrame* frame = wait->inside(); frame; frame = frame->outer()) {
        unavailable[&frame->location()].push_back(frame->instance());
        for (const Dependency& dependency : frame->dependencies())
          if (dependency.until >= moment_) by_frame_.push_back(dependency.token.get());
      }
    std::sort(by_frame_.begin(), by_frame_.end(), std::less<>());
    for (const auto& [place, instances] : unavailable) {
      WaitLocation::Blocked& blocked = by_location_[place] = place->blocked(instances, moment_);
      std::sort(blocked.tokens.begin(), blocked.tokens.end(), std::less<>());
    }
  }

  bool is_blocked(const BlockedScope& wait) const {
    if (wait.full()) return wait.until() >= moment_ && has_no_capacity(*wait.full());
    const WaitToken* token = wait.token().get();
    const auto queued = [&](const auto& entry) { return has(entry.second.tokens, token); };
    return token->open() && (has(by_frame_, token) || std::any_of(by_location_.begin(), by_location_.end(), queued));
  }

  bool has_no_capacity(const WaitLocation& location) const {
    const auto found = by_location_.find(&location);
    return found != by_location_.end() && found->second.capacity;
  }

  // The outermost frame of `other` that blocks `wait`; null: none.
  const ExecutionFrame* blocking_frame(const BlockedScope& wait, const BlockedScope& other) const {
    const ExecutionFrame* outermost = nullptr;
    const WaitToken* const token = wait.token().get();
    const auto matches = [&](const Dependency& dependency) {
      return dependency.token.get() == token && dependency.until >= moment_;
    };
    for (const ExecutionFrame* frame = other.inside(); frame; frame = frame->outer()) {
      const bool blocks = wait.full()
                              ? &frame->location() == wait.full()
                              : has(by_location_.at(&frame->location()).tokens, token) ||
                                    std::any_of(frame->dependencies().begin(), frame->dependencies().end(), matches);
      if (blocks) outermost = frame;
    }
    return outermost;
  }

  // The nodes on the shortest cycle through this wait, starting at the node that it waits for. Empty: it is not part of a cycle.
  std::vector<const WaitLocation*> cycle_through(const BlockedScope& closing) const {
    std::map<const BlockedScope*, const BlockedScope*> before;  // predecessors on the path
    std::vector<const BlockedScope*> reached{&closing};
    for (std::size_t i = 0; i < reached.size() && !before.count(&closing); ++i)
      for (const BlockedScope* next : waits_)
        if (!before.count(next) && blocking_frame(*reached[i], *next)) {
          before[next] = reached[i];
          reached.push_back(next);
        }
    if (!before.count(&closing)) return {};
    std::vector<const WaitLocation*> backwards;
    const BlockedScope* here = &closing;
    do {
      const BlockedScope* const previous = before[here];
      const ExecutionFrame* const last = blocking_frame(*previous, *here);
      for (const ExecutionFrame* frame = here->inside(); frame != last->outer(); frame = frame->outer())
        backwards.push_back(&frame->location());
      here = previous;
    } while (here != &closing);
    return {backwards.rbegin(), backwards.rend()};
  }

  std::vector<const BlockedScope*> waits_;
  const Nanoseconds moment_;
  std::vector<const WaitToken*> by_frame_;  // blocked by a request that runs in a frame of the set
  std::map<const WaitLocation*, WaitLocation::Blocked> by_location_;
};

bool any_inside(const WaitLocation& place, const std::vector<const BlockedScope*>& waits) {
  return std::any_of(waits.begin(), waits.end(),
                     [&](const BlockedScope* wait) { return ExecutionFrame::inside(place, wait->inside()); });
}

}  // namespace

// The choice of the wait for capacity that is refused when a deadlock cycle is complete. The mutex of the registry is held.
class CapacityWaits {
 public:
  // The last event was at `changed`: its queue became full, or `closing` (null: none) starts to wait for its capacity.
  CapacityWaits(const WaitLocation& changed, BlockedScope* closing) : changed_(changed), closing_(closing) {}

  // Refuses a wait of each cycle. Throws the error of `closing` if it is that wait.
  void refuse() HAMI_REQUIRES(waits().mutex) {
    while (refuse_one()) {
    }
  }

 private:
  bool refuse_one() HAMI_REQUIRES(waits().mutex) {
    std::vector<const BlockedScope*> all = pending_waits();
    if (closing_) all.push_back(closing_);
    if (!any_inside(changed_, all) || DeadlockSet(all, kAnyMoment).empty()) return false;
    for (BlockedScope* candidate : candidates())
      if (std::optional<Error> error = DeadlockSet(all, candidate->until()).deadlock_of(*candidate)) {
        if (candidate == closing_) throw Error(*std::move(error));
        candidate->refusal_ = std::move(error);
        candidate->refused_.store(true, std::memory_order_release);
        candidate->full()->wake_capacity_waits();
        return true;
      }
    return false;
  }

  // Those that give way first; of each kind the latest first.
  std::vector<BlockedScope*> candidates() const HAMI_REQUIRES(waits().mutex) {
    std::vector<BlockedScope*> found;
    for (BlockedScope* wait : waits().blocked_scopes)
      if (wait->full() && !wait->refused()) found.push_back(wait);
    if (closing_) found.push_back(closing_);
    std::reverse(found.begin(), found.end());
    std::stable_partition(found.begin(), found.end(), [](const BlockedScope* wait) { return wait->gives_way(); });
    return found;
  }

  static constexpr Nanoseconds kAnyMoment = 0;  // every deadline is later: all that is blocked now
  const WaitLocation& changed_;
  BlockedScope* const closing_;
};

Dependency dependency_of(const Request& request) noexcept {
  for (const Request* one = &request; one; one = one->parent.get()) {
    if (!one->wait_token) continue;
    WaitToken* const token = static_cast<WaitToken*>(one->wait_token.get());
    return {token, token->release_rule() == WaitToken::Release::kEarly ? one->deadline : kNever};
  }
  return {};
}

BlockedScope::BlockedScope(WaitToken::Release release) : inside_(ExecutionFrame::on_this_thread()) {
  if (!inside_) return;
  token_ = make_counted<WaitToken>(release);
  inside_->record_dependencies();
  const MutexLock lock(waits().mutex);
  waits().blocked_scopes.push_back(this);
}

BlockedScope::BlockedScope(Dependency dependency)
    : token_(std::move(dependency.token)), inside_(token_ ? ExecutionFrame::on_this_thread() : nullptr) {
  if (!inside_) return;
  inside_->record_dependencies();
  const MutexLock lock(waits().mutex);
  std::vector<const BlockedScope*> all = pending_waits();
  all.push_back(this);
  DeadlockSet(std::move(all), dependency.until).check_deadlock(token_.get());
  waits().blocked_scopes.push_back(this);
}

BlockedScope::BlockedScope(WaitLocation& full, Nanoseconds until, bool gives_way)
    : inside_(ExecutionFrame::on_this_thread()), full_(&full), until_(until), gives_way_(gives_way) {
  if (!inside_) return;
  inside_->record_dependencies();
  const MutexLock lock(waits().mutex);
  CapacityWaits(full, this).refuse();
  waits().blocked_scopes.push_back(this);
}

void BlockedScope::leave() {
  end();
  if (refused()) throw Error(*refusal_);
}

void BlockedScope::end() noexcept {
  if (!inside_ || std::exchange(ended_, true)) return;
  WaitRegistry* const registry = registry_of_waits.find();
  if (!registry) return;  // the child of a fork, where no wait has started
  const MutexLock lock(registry->mutex);
  std::vector<BlockedScope*>& blocked_scopes = registry->blocked_scopes;
  blocked_scopes.erase(std::remove(blocked_scopes.begin(), blocked_scopes.end(), this), blocked_scopes.end());
}

WaitGraphLock::WaitGraphLock() : lock_(waits().mutex) {}

// The constructor holds the mutex, which the analysis does not follow through a member.
void WaitGraphLock::check_deadlock(const Request& arrived,
                                   const WaitLocation& at) const HAMI_NO_THREAD_SAFETY_ANALYSIS {
  std::vector<const BlockedScope*> pending = pending_waits();
  if (!any_inside(at, pending)) return;
  const Dependency dependency = dependency_of(arrived);
  DeadlockSet(std::move(pending), dependency.until).check_deadlock(dependency.token.get());
}

void WaitGraphLock::check_full(const WaitLocation& at) const HAMI_NO_THREAD_SAFETY_ANALYSIS {
  CapacityWaits(at, nullptr).refuse();
}

}  // namespace hami
