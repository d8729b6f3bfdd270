// Sequential: what goes on to the next child, and what does not.
#include "container/sequential.hpp"

#include <algorithm>
#include <optional>

#include "base/blocking.hpp"

namespace hami {

// Right to left, so that a stream guard at the end is there before those who use its stream.
void Sequential::init_(Init& init) {
  const std::vector<PlanItem>& items = init.items();
  steps_.resize(items.size());
  for (std::size_t i = items.size(); i-- > 0;) steps_[i] = {init.make(items[i]), items[i].says("or")};
  std::vector<Range> ranges;
  for (const Step& step : steps_) ranges.push_back(step.backend->range());
  range_of_ = narrowest(ranges);
  for (std::size_t i = 1; i < steps_.size(); ++i)
    if (steps_[i - 1].backend->runs_locked() && steps_[i].backend->runs_locked())
      steps_[i - 1].stays_locked = steps_[i].stays_locked = true;
}

bool Sequential::runs_locked() const noexcept {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.backend->runs_locked(); });
}

void Sequential::forward_(Batch batch) {
  std::vector<Request*> alive(batch.begin(), batch.end());
  std::vector<Request*> unanswered;
  // Between two steps that both run locked the lock is not let go: every thread that wants it would come first.
  std::optional<GlobalLock> lock;
  const auto run = [&](const Step& step, Batch part) {
    if (!step.stays_locked) lock.reset();
    if (step.stays_locked && !lock) lock.emplace(label(), true);
    step.backend->forward(part);
  };
  run(steps_.front(), batch);
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    alive.erase(std::remove_if(alive.begin(), alive.end(), [](Request* request) { return !request->alive(); }), alive.end());
    if (steps_[i].is_or) {
      unanswered.clear();
      for (Request* request : alive)
        if (!request->dict.contains(kResult)) unanswered.push_back(request);
      if (!unanswered.empty()) run(steps_[i], Batch(unanswered));
      continue;
    }
    const std::string& before = steps_[i - 1].backend->label();
    alive.erase(std::remove_if(alive.begin(), alive.end(),
                               [&](Request* request) { return !promote_result(*request, before); }),
                alive.end());
    if (alive.empty()) return;
    run(steps_[i], Batch(alive));
  }
}

}  // namespace hami
