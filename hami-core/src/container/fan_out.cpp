// FanOut[X]: each element of a request's list `data` becomes a request of its own; `result` is the list of their results.

#include <memory>

#include "container/forwarding.hpp"
#include "request/api.hpp"

namespace hami {
namespace {

// The parts of one request, one for each element. They share this sink, which completes the request with the last part.
class Parts final : public CompletionSink {
 public:
  Parts(Request& outer, const ListObject& elements) : outer_(&outer), remaining_(elements.size()) {
    requests_.reserve(elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
      Ref<Request> part = outer.branch({}, i);
      part->dict.erase(kRequestSize);
      part->items = 1;
      part->dict.set(kData, elements.at(i));
      requests_.push_back(std::move(part));
    }
  }

  // Once, before they are posted. From here on the parts and this sink keep each other alive until the last part completes.
  void start(RequestList& all) noexcept {
    for (const Ref<Request>& part : requests_) {
      part->sink = Ref<CompletionSink>(this);
      all.push(part);
    }
  }
  std::size_t count() const noexcept { return requests_.size(); }

  // The request ends when all parts have ended.
  LearnedTime time_after(const Request&, Nanoseconds moment) const noexcept override {
    return outer_->sink->time_after(*outer_, moment);
  }

  Parker* complete(Request* const* requests, std::size_t count) noexcept override {
    for (std::size_t i = 0; i < count; ++i)
      if (!requests[i]->alive() || !requests[i]->dict.contains(kResult)) abandon_parts();
    {
      MutexLock lock(mutex_);
      HAMI_ASSERT(remaining_ >= count);
      remaining_ -= count;
      if (remaining_ > 0) return nullptr;
    }
    try {
      set_outcome();
    } catch (...) {  // the nesting limit, no memory
      outer_->fail(current_error());
    }
    std::vector<Ref<Request>>().swap(requests_);  // breaks the reference cycle of parts and sink
    Request* outer = outer_.get();
    complete_requests(Batch(&outer, 1));
    return nullptr;
  }

 private:
  // After the first failure, parts that have not started do not run.
  void abandon_parts() noexcept {
    for (const Ref<Request>& part : requests_) part->abandon();
    NestedCall::give_up_cancelled();
  }

  // The results in order, or the error of the first part that failed.
  void set_outcome() {
    std::vector<Value> results;
    results.reserve(requests_.size());
    const Request* failed = nullptr;
    for (const Ref<Request>& part : requests_) {
      // Prefers an error to a cancellation, because parts are cancelled when another part fails.
      const bool is_cause = part->error && (!failed || failed->error->code() == ErrorCode::kCancelled);
      if (is_cause) failed = part.get();
      if (const Value* result = part->dict.find(kResult); result && !part->error) results.push_back(*result);
    }
    if (failed) {
      // A skipped element leaves a gap in the list: that is a failure of the whole request.
      const bool skipped = failed->error->code() == ErrorCode::kSkipped;
      const Error error = skipped ? Error(ErrorCode::kNoResult, failed->error->message()) : *failed->error;
      outer_->fail(
          error.with_note("element " + std::to_string(failed->index) + " of " + std::to_string(requests_.size())));
    } else if (results.size() < requests_.size()) {
      outer_->fail(Error(ErrorCode::kNoResult, "an element of the list has no `result`"));
    } else {
      outer_->dict.set(kResult, make_list(std::move(results)));
    }
  }

  Ref<Request> outer_;
  std::vector<Ref<Request>> requests_;
  Mutex mutex_;
  std::size_t remaining_ HAMI_GUARDED_BY(mutex_);
};

class FanOut final : public Forwarding {
 private:
  void init_(Init& init) override { target_ = init.make(init.items()[0]); }
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  Range range_() const override { return {}; }

  void post_(Batch batch, InlinePolicy how) override {
    std::vector<Request*> completed;
    std::vector<Ref<Parts>> all;
    std::size_t count = 0;
    for (Request* request : batch) {
      try {
        const ListObject& elements = list_of(*request);
        if (elements.size() > 0) {
          all.push_back(make_counted<Parts>(*request, elements));
          count += all.back()->count();
          continue;
        }
        request->dict.set(kResult, make_list({}));
      } catch (...) {
        request->fail(current_error());
      }
      completed.push_back(request);
    }
    RequestList parts;  // Parts drops its references when it completes
    parts.reserve(count);
    // Nothing throws from here on.
    for (const Ref<Parts>& each : all) each->start(parts);
    complete_requests(Batch(completed));
    if (count > 0) target_->post(parts.batch(), how);
  }

  const ListObject& list_of(const Request& request) const {
    const Value* data = request.dict.find(kData);
    if (!data) throw Error(ErrorCode::kRequest, "the request has no `data`; FanOut takes a list");
    if (data->kind() != Kind::kList)
      throw Error(ErrorCode::kDataType, std::string("FanOut takes a list in `data`, got ") + kind_name(data->kind()));
    return data->as_list();
  }
};

}  // namespace

[[gnu::cold]] void register_fan_out(Registry& registry) {
  BackendClass cls;
  cls.name = "FanOut";
  cls.doc =
      "Runs each element of the list in `data` as a request of its own; `result` is the list of their results, in order.\n"
      "The parts have the other keys of the request, its timeout and its priority, and are posted together: before\n"
      "`DI[Batching, InstanceDispatcher]` the parts of all requests share the batches of the node. The first part that\n"
      "fails is the error of the request, with a note that names the element; parts that have not started are abandoned.\n"
      "Other keys than `result` that parts write are dropped.";
  cls.brackets = {true, {Phase{}}};
  cls.create = [] { return std::make_shared<FanOut>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
