// BatchRunner: what happens around the forward of an instance.
#include "schedule/batch_runner.hpp"

#include <vector>

#include "base/blocking.hpp"

namespace hami {
namespace {

// A hook's `result` is the `data` of what follows; a hook that leaves none has changed the request in place.
void run_hook(Backend& hook, Batch batch) {
  hook.forward(batch);
  for (Request* request : batch)
    if (request->alive() && request->dict.contains(kResult)) promote_result(*request, hook.label());
}

}  // namespace

void BatchRunner::set_hooks(Init& init) {
  if (!init.has_brackets()) return;
  before_gathering_ = init.make(init.items()[0]);
  if (init.items().size() > 1) before_instance_ = init.make(init.items()[1]);
}

bool BatchRunner::admit(Request& request, std::size_t most) noexcept {
  try {
    request.items = declared_items(request.dict);
    if (request.items > most)
      throw Error(ErrorCode::kRequest, "request_size is " + std::to_string(request.items) + "; node \"" + node_ +
                                           "\" takes at most " + std::to_string(most));
    if (before_gathering_) {
      const BlockingScope blocking;  // its work may take long, or wait
      Request* one = &request;
      run_hook(*before_gathering_, Batch(&one, 1));
    }
  } catch (...) {
    request.fail(current_error());
  }
  return request.alive();
}

void BatchRunner::forward(Backend& instance, Batch batch) {
  if (before_instance_) run_hook(*before_instance_, batch);
  instance.forward(batch);
}

Nanoseconds BatchRunner::run(Backend& instance, Batch batch) noexcept {
  const bool may_isolate = batch.size() > 1 && isolate_;
  std::vector<Dict> as_it_came;
  if (may_isolate)
    for (Request* request : batch) as_it_came.push_back(request->dict);
  const Nanoseconds start = now();
  try {
    forward(instance, batch);
  } catch (...) {
    const Error failure = current_error();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!may_isolate || failure.is_final()) {
        batch[i].fail(failure);
      } else if (batch[i].alive()) {
        batch[i].dict = std::move(as_it_came[i]);
        retry_alone(instance, batch[i]);
      }
    }
  }
  const Nanoseconds took = now() - start;
  stats_.busy_ns += static_cast<std::uint64_t>(took);
  ++stats_.batches;
  stats_.items += batch.items();
  stats_.requests += batch.size();
  for (Request* request : batch) {
    if (request->alive()) continue;
    *request->error = request->error->with_note("node \"" + node_ + "\"");
    ++stats_.failed;
  }
  return took;
}

void BatchRunner::retry_alone(Backend& instance, Request& request) noexcept {
  ++stats_.retried;
  Request* one = &request;
  try {
    forward(instance, Batch(&one, 1));
  } catch (...) {
    request.fail(current_error());
  }
}

void BatchRunner::finish_unrun(Batch batch) noexcept {
  if (batch.empty()) return;
  stats_.requests += batch.size();
  stats_.failed += batch.size();
  finish(batch);
}

}  // namespace hami
