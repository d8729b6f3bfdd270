// The waits of all threads, and how a circle among them is found.
#include "request/wait_graph.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <utility>

#include "base/fork.hpp"
#include "request/execution_frame.hpp"

namespace hami {
namespace {

// All waits of the process: a circle may lead through several pipes. A thread that is woken ends its wait here before it does
// anything else. So while the mutex is held, an instance that stands in a wait does not come back.
struct Waits {
  explicit Waits(unsigned forks) noexcept : generation(forks) {}
  const unsigned generation;
  std::mutex mutex;  // guards `standing`
  std::vector<const Wait*> standing;
};

// The child of a fork begins anew: threads that are gone may have held the mutex.
Waits& waits() {
  static std::atomic<Waits*> current{new Waits(fork_generation())};
  Waits* found = current.load(std::memory_order_acquire);
  if (found->generation == fork_generation()) return *found;
  auto* fresh = new Waits(fork_generation());
  if (current.compare_exchange_strong(found, fresh)) return *fresh;
  delete fresh;
  return *found;
}

bool has(const std::vector<const Ask*>& sorted, const Ask* ask) {
  return std::binary_search(sorted.begin(), sorted.end(), ask, std::less<>());
}

// The largest set of waits of which none can end before a moment unless another one of them does: each is for a request that
// runs in an instance that is held by such a wait, or that is queued where all instances that could run it are.
class Knot {
 public:
  Knot(std::vector<const Wait*> standing, Nanoseconds moment) : waits_(std::move(standing)), moment_(moment) {
    for (std::size_t before = 0; before != waits_.size();) {
      before = waits_.size();
      look();
      waits_.erase(std::remove_if(waits_.begin(), waits_.end(), [&](const Wait* wait) { return !is_stuck(*wait); }),
                   waits_.end());
    }
  }

  // Throws if a wait for this is in a circle. One that is in the knot all the same waits for others, who have less time.
  void check_circle(const Ask* ask) const {
    std::vector<std::string> names;
    for (const Wait* wait : waits_)
      if (names.empty() && wait->ask().get() == ask) names = way_back_to(*wait);
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
    std::map<Place*, std::vector<std::size_t>> lost;
    for (const Wait* wait : waits_)
      for (const Running* frame = wait->inside(); frame; frame = frame->outer()) {
        lost[&frame->place()].push_back(frame->instance());
        for (const Need& need : frame->needs())
          if (need.until >= moment_) by_frame_.push_back(need.ask.get());
      }
    std::sort(by_frame_.begin(), by_frame_.end(), std::less<>());
    for (const auto& [place, instances] : lost) {
      std::vector<const Ask*>& stuck = by_place_[place];
      place->add_stuck(instances, moment_, stuck);
      std::sort(stuck.begin(), stuck.end(), std::less<>());
    }
  }

  bool is_stuck(const Wait& wait) const {
    const Ask* ask = wait.ask().get();
    const auto queued = [&](const auto& entry) { return has(entry.second, ask); };
    return ask->open() && (has(by_frame_, ask) || std::any_of(by_place_.begin(), by_place_.end(), queued));
  }

  // The outermost frame of `other` that holds up `wait`; null: none does.
  const Running* held_up(const Wait& wait, const Wait& other) const {
    const Running* outermost = nullptr;
    const Ask* const ask = wait.ask().get();
    const auto is_it = [&](const Need& need) { return need.ask.get() == ask && need.until >= moment_; };
    for (const Running* frame = other.inside(); frame; frame = frame->outer())
      if (has(by_place_.at(&frame->place()), ask) || std::any_of(frame->needs().begin(), frame->needs().end(), is_it))
        outermost = frame;
    return outermost;
  }

  // The nodes on the shortest way from what the wait is for back to itself.
  std::vector<std::string> way_back_to(const Wait& closing) const {
    std::map<const Wait*, const Wait*> before;  // on the way
    std::vector<const Wait*> reached{&closing};
    for (std::size_t i = 0; i < reached.size() && !before.count(&closing); ++i)
      for (const Wait* next : waits_)
        if (!before.count(next) && held_up(*reached[i], *next)) {
          before[next] = reached[i];
          reached.push_back(next);
        }
    if (!before.count(&closing)) return {};
    std::vector<std::string> backwards;
    const Wait* here = &closing;
    do {
      const Wait* const previous = before[here];
      const Running* const last = held_up(*previous, *here);
      for (const Running* frame = here->inside(); frame != last->outer(); frame = frame->outer())
        backwards.push_back(frame->place().place_name());
      here = previous;
    } while (here != &closing);
    return {backwards.rbegin(), backwards.rend()};
  }

  std::vector<const Wait*> waits_;
  const Nanoseconds moment_;
  std::vector<const Ask*> by_frame_;                          // what needs something that runs where one of them stands
  std::map<const Place*, std::vector<const Ask*>> by_place_;  // what needs something that is queued and stuck
};

}  // namespace

Need need_of(const Request& request) noexcept {
  for (const Request* one = &request; one; one = one->parent.get()) {
    if (!one->held_by) continue;
    Ask* const ask = static_cast<Ask*>(one->held_by.get());
    return {ask, ask->leaves() == Ask::Leaves::kEarly ? one->deadline : kNever};
  }
  return {};
}

Wait::Wait(Ask::Leaves leaves) : inside_(Running::on_this_thread()) {
  if (!inside_) return;
  ask_ = make_counted<Ask>(leaves);
  inside_->note_needs();
  const std::lock_guard lock(waits().mutex);
  waits().standing.push_back(this);
}

Wait::Wait(Need need) : ask_(std::move(need.ask)), inside_(ask_ ? Running::on_this_thread() : nullptr) {
  if (!inside_) return;
  inside_->note_needs();
  const std::lock_guard lock(waits().mutex);
  std::vector<const Wait*> all = waits().standing;
  all.push_back(this);
  Knot(std::move(all), need.until).check_circle(ask_.get());
  waits().standing.push_back(this);
}

Wait::~Wait() {
  if (!inside_) return;
  const std::lock_guard lock(waits().mutex);
  std::vector<const Wait*>& standing = waits().standing;
  standing.erase(std::remove(standing.begin(), standing.end(), this), standing.end());
}

WaitsStandStill::WaitsStandStill() : lock_(waits().mutex) {}

void WaitsStandStill::check_circle(const Request& arrived, const Place& at) const {
  const std::vector<const Wait*>& standing = waits().standing;
  if (std::none_of(standing.begin(), standing.end(), [&](const Wait* wait) { return Running::inside(at, wait->inside()); }))
    return;
  const Need need = need_of(arrived);
  Knot(standing, need.until).check_circle(need.ask.get());
}

}  // namespace hami
