// Sequential: runs its children in order.
#include "container/sequential.hpp"

#include <algorithm>

namespace hami {

// Right to left, so that a stream guard at the end exists before the backends that use its stream.
void Sequential::init_(Init& init) {
  const std::vector<PlanItem>& items = init.items();
  steps_.resize(items.size());
  for (std::size_t i = items.size(); i-- > 0;) steps_[i] = {init.make(items[i]), items[i].says("or")};
  std::vector<Range> ranges;
  for (const Step& step : steps_) ranges.push_back(step.backend->range());
  range_of_ = narrowest(ranges);
}

void Sequential::forward_(Batch batch) {
  HAMI_ASSERT(!steps_.empty());  // the planner requires an item
  std::vector<Request*> alive(batch.begin(), batch.end());
  std::vector<Request*> without_result;
  steps_.front().backend->forward(batch);
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    alive.erase(std::remove_if(alive.begin(), alive.end(), [](Request* request) { return !request->alive(); }),
                alive.end());
    if (steps_[i].is_or) {
      without_result.clear();
      for (Request* request : alive)
        if (!request->dict.contains(kResult)) without_result.push_back(request);
      if (!without_result.empty()) steps_[i].backend->forward(Batch(without_result));
      continue;
    }
    const std::string& before = steps_[i - 1].backend->label();
    alive.erase(
        std::remove_if(alive.begin(), alive.end(), [&](Request* request) { return !result_to_data(*request, before); }),
        alive.end());
    if (alive.empty()) return;
    steps_[i].backend->forward(Batch(alive));
  }
}

}  // namespace hami
