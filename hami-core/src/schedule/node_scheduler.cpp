// NodeScheduler: the queue of a node, and the choice of batches.
#include "schedule/node_scheduler.hpp"

#include <algorithm>
#include <cstdint>

namespace hami {
namespace {

constexpr double kSpreads = 0.95;             // spreading must promise to be done in this part of the time
constexpr std::size_t kBegins = 4;            // items of a batch while nothing is known
constexpr std::uint64_t kTriesOther = 128;    // every so many batches another size is tried, or the model would go stale
constexpr std::uint64_t kTriesAtFirst = 8;    // at first this often
constexpr Nanoseconds kWorthStaying = 50'000; // less is over before a thread has gone to sleep and come back
constexpr Nanoseconds kPauses = 8;            // a batch begins at most so many pauses between two batches after another
constexpr Nanoseconds kShort = 16;            // or after such a part of a batch's time, where there are no pauses
constexpr Nanoseconds kSmooths = 8;           // so many periods the mean one is of, about
constexpr Nanoseconds kBackWithin = 3;        // such a part of a batch's time callers need at most to come back
constexpr std::size_t kItsTurn = SIZE_MAX;    // so many never come: an instance waits for a moment, not for company
constexpr unsigned kMostMisses = 6;           // 2^6 batches between two attempts to wait for callers who do not come

std::size_t quotient(std::size_t items, std::size_t by) noexcept { return items / by + (items % by != 0); }

}  // namespace

void NodeScheduler::add_instance(const Range& range, bool any_thread) {
  if (!instances_.empty()) {
    const Range& first = instances_.front().range;
    alike_ = alike_ && range.min == first.min && range.max == first.max;
  }
  idle_.insert(idle_.begin(), instances_.size());  // the first is taken first
  instances_.push_back({range, any_thread});
}

void NodeScheduler::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) {
  items_ += request->items;
  due_ -= std::min(due_, request->items);
  queue_.push_back({std::move(request), moment, call});
}

bool NodeScheduler::begin_arrival(const Request& request) {
  asked_inside_ = true;
  arriving_.push_back(&request);
  const auto is_for_it = [&](Index instance) { return takes(instance, request); };
  return !queue_.empty() || std::none_of(idle_.begin(), idle_.end(), is_for_it);
}

void NodeScheduler::end_arrival(const Request& request) noexcept {
  arriving_.erase(std::remove(arriving_.begin(), arriving_.end(), &request), arriving_.end());
}

// What is behind a stuck request is stuck too, unless that leaves the queue: its time is up, or its caller has left.
void NodeScheduler::add_stuck(const std::vector<Index>& lost, Nanoseconds moment, std::vector<const Ask*>& stuck) const {
  if (!asked_inside_) return;
  std::vector<bool> comes(instances_.size(), true);
  for (Index instance : lost) comes[instance] = false;
  if (alike_ && std::find(comes.begin(), comes.end(), true) != comes.end()) return;
  bool closed = false;
  const auto look_at = [&](const Request& request) {
    bool taken = false;
    for (Index i = 0; i < instances_.size(); ++i) taken = taken || (comes[i] && takes(i, request));
    if (taken && !closed) return;
    if (const Need need = need_of(request); need.ask && need.until >= moment) stuck.push_back(need.ask.get());
    closed = closed || (request.deadline >= moment && !request.abandoned());
  };
  for (const Task& task : queue_) look_at(*task.request);
  for (const Request* request : arriving_) look_at(*request);
}

// True if nobody waits for this request any more: it has then failed and left the queue.
bool NodeScheduler::drop_if_dead(std::size_t index, Nanoseconds moment, Requests& dropped) {
  Request& request = *queue_[index].request;
  const bool late = request.deadline <= moment;
  if (!late && !request.abandoned()) return false;
  request.fail(late ? Error(ErrorCode::kDeadlineExceeded,
                            "the request's time ran out while it waited for node \"" + node_ + "\"")
                    : Error(ErrorCode::kCancelled, "its caller has left"));
  items_ -= request.items;
  dropped.push_back(std::move(queue_[index].request));
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(index));
  return true;
}

void NodeScheduler::drop_dead(Nanoseconds moment, Requests& dropped) {
  for (std::size_t i = 0; i < queue_.size();)
    if (!drop_if_dead(i, moment, dropped)) ++i;
}

NodeScheduler::Requests NodeScheduler::take_all() {
  Requests all;
  for (Task& task : queue_) all.push_back(std::move(task.request));
  queue_.clear();
  items_ = 0;
  return all;
}

std::size_t NodeScheduler::most(Index instance) const noexcept {
  return std::min(policy_.max, instances_[instance].range.max);
}

std::size_t NodeScheduler::least(Index instance) const noexcept {
  return std::max(policy_.min, instances_[instance].range.min);
}

// What a batch of at most so many items takes from the front of the queue; the first, whatever its size.
NodeScheduler::Fill NodeScheduler::fill(std::size_t most) const noexcept {
  Fill batch;
  while (batch.count < queue_.size()) {
    const Task& task = queue_[batch.count];
    if (batch.count > 0 && batch.items + task.request->items > most) break;
    if (batch.count > 0 && policy_.gather == Gather::kCalls && task.call != queue_.front().call) break;
    batch.items += task.request->items;
    ++batch.count;
  }
  return batch;
}

// Where ranges differ: whether the front of the queue is for this instance. It always is for one of them.
bool NodeScheduler::suits(Index instance) const noexcept {
  if (alike_) return true;
  const std::size_t front = queue_.front().request->items;
  if (front > most(instance)) return false;
  if (fill(most(instance)).items >= least(instance)) return true;
  for (Index other = 0; other < instances_.size(); ++other)
    if (front <= most(other) && least(other) < least(instance)) return false;
  return true;
}

std::optional<NodeScheduler::Index> NodeScheduler::claim(std::size_t items) {
  if (stopping_ || !queue_.empty() || gathering_) return std::nullopt;
  for (std::size_t i = idle_.size(); i-- > 0;) {
    const Index instance = idle_[i];
    if (!instances_[instance].any_thread || items < least(instance) || items > most(instance)) continue;
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    instances_[instance].shares = others_work();
    return instance;
  }
  return std::nullopt;
}

// The smallest that takes all that waits, else the largest; of equals the one that rests for the shortest time.
std::optional<NodeScheduler::Index> NodeScheduler::summon() {
  if (queue_.empty() || gathering_) return std::nullopt;
  std::size_t best = idle_.size();
  for (std::size_t i = idle_.size(); i-- > 0;) {
    if (!suits(idle_[i])) continue;
    if (best < idle_.size()) {
      const std::size_t here = most(idle_[i]), there = most(idle_[best]);
      if (there >= items_ ? here >= there || here < items_ : here <= there) continue;
    }
    best = i;
    if (alike_) break;
  }
  if (best == idle_.size()) return std::nullopt;
  const Index instance = idle_[best];
  idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(best));
  instances_[instance].summoned = true;
  ++summoned_;
  return instance;
}

// How many of `items` one of so many free hands should take.
std::size_t NodeScheduler::share(std::size_t items, std::size_t hands, std::size_t most) const noexcept {
  const std::size_t together = std::min(items, most), each = quotient(items, hands);
  if (policy_.gather != Gather::kLearn || each >= together) return most;
  const auto either = [](const std::optional<double>& one, const std::optional<double>& other) { return one ? one : other; };
  const std::optional<double> spread = either(shared_.of(each), alone_.of(each));
  const std::optional<double> whole = either(alone_.of(together), shared_.of(together));
  return spread && *spread < kSpreads * *whole ? each : most;
}

std::size_t NodeScheduler::hands_for(std::size_t items) const {
  if (idle_.empty() || items == 0) return 0;
  return std::min(idle_.size(), quotient(items, share(items, idle_.size(), policy_.max)));
}

// What the first that waits came with, by the same call.
std::size_t NodeScheduler::items_of_first_call() const noexcept {
  std::size_t items = 0;
  for (const Task& task : queue_) {
    if (task.call != queue_.front().call) break;
    items += task.request->items;
  }
  return items;
}

// What is worthwhile beside what the other instances do.
Aim NodeScheduler::aim_now(std::size_t cap) const noexcept {
  const Aim shared = shared_.worthwhile(smallest_, cap), alone = alone_.worthwhile(smallest_, cap);
  return shared.items > 0 && (others_work() || alone.items == 0) ? shared : alone;
}

// How many items the instance's next batch should have at most.
std::size_t NodeScheduler::choose(Index instance) noexcept {
  const std::size_t floor = least(instance), cap = most(instance);
  if (policy_.gather != Gather::kLearn) return cap;
  const std::size_t front = queue_.front().request->items;
  smallest_ = std::min(std::max(floor, front), cap);  // fewer cannot be run
  const Aim aim = aim_now(cap);
  const bool tries = batches_ >= try_again_;
  if (tries) {
    try_again_ = batches_ + std::clamp(batches_ / 4, kTriesAtFirst, kTriesOther);
    tries_more_ = !tries_more_;
  }
  std::size_t chosen = aim.items;
  if (aim.items == 0)
    // Large batches may gain nothing, and memory that was taken for them is not given back. But who is told to wait for
    // company is told that it pays.
    chosen = policy_.company > 0 ? cap : kBegins;
  else if (!idle_.empty())
    chosen = share(items_, idle_.size() + 1, chosen);
  else if (tries && aim.settled)
    chosen = tries_more_ ? 2 * chosen : quotient(chosen, 2);
  if (!aim.settled && !tries) chosen = std::max(chosen, items_of_first_call());  // what came together stays together
  chosen = quotient(chosen, front) * front;  // whole requests, or a size between two numbers of them would never be seen
  return std::clamp(chosen, std::min(floor, cap), cap);
}

// How long callers who were just released are worth waiting for; 0: they are not. They often come back together, and the
// first of them should not leave with an instance to itself.
Nanoseconds NodeScheduler::stays(Index instance, std::size_t released) noexcept {
  if (policy_.gather != Gather::kLearn || released == 0 || items_ + released < 2) return 0;
  if (stopping_ || gathering_ || !idle_.empty() || batches_ < stay_again_) return 0;
  const std::optional<Cost> known = cost();
  if (!known && batches_ % kTriesAtFirst != 0) return 0;
  const Nanoseconds patience = known ? static_cast<Nanoseconds>(known->fixed / 2) : last_took_ / 4;
  const std::size_t aims = aim_now(most(instance)).items;
  enough_ = std::min(aims > 0 ? std::min(aims, most(instance)) : most(instance), items_ + released);
  return patience >= kWorthStaying && items_ < enough_ ? patience : 0;
}

// The gathering instance is back.
void NodeScheduler::came_back() noexcept {
  gathering_.reset();
  if (!std::exchange(staying_, false)) return;
  missed_ = items_ >= enough_ ? 0 : std::min(missed_ + 1, kMostMisses);
  stay_again_ = batches_ + (missed_ == 0 ? 0 : std::uint64_t{1} << missed_);
}

NodeScheduler::Step NodeScheduler::wait(Index instance, std::size_t enough, Nanoseconds until) noexcept {
  gathering_ = instance;
  enough_ = enough;
  return {Step::kWait, until};
}

// Callers who were just released together are about to come back together.
void NodeScheduler::expect_back(Index instance, Nanoseconds moment, std::size_t released) noexcept {
  if (moment >= company_until_) due_ = 0;
  if (released == 0 || std::exchange(instances_[instance].requests, 0) < 2) return;
  due_ += released;
  company_until_ = moment + std::min(policy_.company, last_took_);
}

// Whether a batch is of those that may begin apart: of several requests; and full, where batches are to be.
bool NodeScheduler::takes_turns(const Fill& batch, std::size_t cap) const noexcept {
  if (instances_.size() < 2 || stopping_ || full() || batch.count < 2) return false;
  return policy_.gather == Gather::kLearn || (policy_.gather == Gather::kMost && batch.items >= cap);
}

// When such a batch begins. What begins together on one device ends together, and then the device has nothing to do until
// the callers are back. So batches begin apart: evenly over the time from one batch of an instance to its next, or by some
// times what callers need where that is less. The wait itself is no part of that time, or it would grow with each batch that
// is late; nor is a longer pause, after which others come, by chance. Where callers need none, since more of them wait than
// are run, the host still needs a moment for each batch: then a short wait goes towards the same.
//
// Instances that share nothing, or a device only after something that they pass one by one, lose by it. So it is tried.
Nanoseconds NodeScheduler::turn(Index instance, Nanoseconds moment) noexcept {
  const Nanoseconds ended = instances_[instance].ended, away = moment - ended;
  if (away >= last_took_) return moment;  // they did not come back, others came
  const Nanoseconds period = last_took_ + std::min(away, last_took_ / kBackWithin);
  period_ = period_ > 0 ? period_ + (period - period_) / kSmooths : period;
  const Nanoseconds evenly = period_ / static_cast<Nanoseconds>(instances_.size());
  const Nanoseconds longest = policy_.gather == Gather::kLearn ? last_took_ : policy_.company;
  const Nanoseconds apart = last_began_ + std::min({kPauses * away, evenly, longest});
  const Nanoseconds later = std::max(apart, std::min(last_began_ + evenly, ended + last_took_ / kShort));
  if (later <= moment) return moment;
  waits_.differ();
  return waits_.second() ? later : moment;
}

NodeScheduler::Step NodeScheduler::collect(Index instance, Nanoseconds moment, std::size_t released, Requests& taken,
                                           Requests& dropped) {
  has_come(instance);
  const bool waited = gathering_ == instance && items_ < enough_;
  const bool had_turn = gathering_ == instance && enough_ == kItsTurn;
  if (gathering_ == instance)
    came_back();
  else
    instances_[instance].free_since = moment;
  if (released > 0) {
    waits_.ran(std::min(moment - last_ended_, 2 * last_took_), released);  // a longer pause is none of its work
    instances_[instance].ended = last_ended_ = moment;
  }
  const std::size_t cap = most(instance);
  for (std::size_t i = 0, items = 0; i < queue_.size() && items < cap;)
    if (!drop_if_dead(i, moment, dropped)) items += queue_[i++].request->items;
  if (!dropped.empty()) return {Step::kAgain};
  if (policy_.gather == Gather::kMost) expect_back(instance, moment, released);
  if (const Nanoseconds patience = stays(instance, released)) {
    staying_ = true;
    return wait(instance, enough_, moment + patience);
  }
  if (queue_.empty() || !suits(instance)) {
    rest(instance);
    return {Step::kRest};
  }
  const std::size_t chosen = choose(instance);
  const Fill batch = fill(chosen);
  // Who would make the batch full may be waiting for room in the queue.
  const bool closed = batch.items >= chosen || batch.count < queue_.size() || full();
  const bool enough = batch.items >= least(instance);
  const bool alone = batch.count == 1 && enough && moment >= company_until_;
  Nanoseconds company = policy_.company;
  if (const std::optional<Cost> known = cost(); known && enough)
    company = std::min(company, static_cast<Nanoseconds>(known->fixed));
  Nanoseconds patience = queue_.front().arrived + company;
  if (batch.count == 1 && enough) patience = std::min(patience, company_until_);
  // Those who are about to come back are waited for also where the first has waited long, while all were busy.
  const Nanoseconds until = std::min(company_until_, instances_[instance].free_since + company);
  const bool returning = moment >= patience && moment < until && due_ > 0 && batches_ >= stay_again_;
  if (!closed && !alone && !stopping_ && (moment < patience || returning) && (policy_.gather != Gather::kCalls || !enough)) {
    if (!gathering_) {
      staying_ = returning;
      return returning ? wait(instance, std::min(chosen, items_ + due_), until) : wait(instance, chosen, patience);
    }
    if (!enough || !staying_ || policy_.gather == Gather::kMost) {  // another waits already, and takes these as well
      rest(instance);
      return {Step::kRest};
    }
  }
  if (!enough) return refuse(batch, least(instance), dropped);
  if (!had_turn && takes_turns(batch, cap)) {
    const Nanoseconds begins = turn(instance, moment);
    if (gathering_ && (policy_.gather == Gather::kMost || waits_.second())) {  // it begins first
      rest(instance);
      return {Step::kRest};
    }
    if (moment < begins) return wait(instance, kItsTurn, begins);
  }
  last_began_ = moment;
  const bool left = batch.count < queue_.size() && policy_.gather == Gather::kLearn;
  ++(batch.items >= cap || full() ? closed_.full : left ? closed_.chosen : waited ? closed_.patience : closed_.drained);
  return take(instance, batch, taken);
}

NodeScheduler::Step NodeScheduler::take(Index instance, const Fill& batch, Requests& taken) {
  for (std::size_t i = 0; i < batch.count; ++i) {
    taken.push_back(std::move(queue_.front().request));
    queue_.pop_front();
  }
  items_ -= batch.items;
  instances_[instance].shares = others_work();
  instances_[instance].requests = batch.count;
  return {Step::kRun};
}

NodeScheduler::Step NodeScheduler::refuse(const Fill& batch, std::size_t least, Requests& dropped) {
  for (std::size_t i = 0; i < batch.count; ++i) {
    queue_.front().request->fail(Error(ErrorCode::kRequest, "node \"" + node_ + "\" takes at least " + std::to_string(least) +
                                                                " items; only " + std::to_string(batch.items) +
                                                                " came in time"));
    dropped.push_back(std::move(queue_.front().request));
    queue_.pop_front();
  }
  items_ -= batch.items;
  return {Step::kAgain};
}

void NodeScheduler::ran(Index instance, std::size_t items, Nanoseconds took) noexcept {
  ++batches_;
  last_took_ = took;
  if (policy_.gather != Gather::kLearn || policy_.max < 2) return;
  (instances_[instance].shares || others_work() ? shared_ : alone_).add(items, took);
}

std::optional<Cost> NodeScheduler::cost() const noexcept {
  if (policy_.gather != Gather::kLearn) return std::nullopt;
  return alone_.cost() ? alone_.cost() : shared_.cost();
}

std::size_t NodeScheduler::aim() const noexcept {
  return policy_.gather == Gather::kLearn ? aim_now(policy_.max).items : policy_.max;
}

}  // namespace hami
