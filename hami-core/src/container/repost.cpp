// Repost[instance, key]: posts a copy of the request to an instance; the request continues with an Event for the result.

#include <memory>

#include "backend/api.hpp"
#include "container/forwarding.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

Error no_result() noexcept {
  return error_from([] { return Error(ErrorCode::kNoResult, "the reposted request has no `result`"); });
}

// The sink of the copies. Completes the event of each, which it finds in the copy's `owner`.
class ReplySink final : public CompletionSink {
 public:
  struct ReplyEvent final : Counted {
    explicit ReplyEvent(Ref<Event> reply) : event(std::move(reply)) {}
    Ref<Event> event;
  };

  Parker* complete(Request* const* requests, std::size_t count) noexcept override {
    for (std::size_t i = 0; i < count; ++i) {
      Request& copy = *requests[i];
      Event& event = *static_cast<ReplyEvent&>(*copy.owner).event;
      const Value* result = copy.dict.find(kResult);
      if (copy.alive() && result)
        event.notify(*result);
      else
        event.fail(copy.error ? *copy.error : no_result());
    }
    return nullptr;
  }
};

class Repost final : public Backend {
 private:
  void init_(Init& init) override {
    Plan target;
    target.instance = init.items()[0].text;
    target_ = init.make(target);
    key_ = init.items()[1].text;
    context_ = init.shared_context();
  }

  void forward_(Batch batch) override {
    set_result_to_data(batch);
    std::vector<Ref<Request>> copies;
    std::vector<Request*> pointers;
    for (Request* request : batch) {
      if (!request->alive()) continue;
      const Ref<Event> event = make_object<Event>();
      Ref<Request> copy = make_counted<Request>();
      copy->dict = request->dict;
      copy->dict.erase(kResult);
      copy->parent = context_->shutdown.root_request();
      copy->deadline = request->deadline;
      copy->priority = request->priority;
      copy->items = request->items;
      copy->sink = Ref<CompletionSink>(replies_.get());
      copy->owner = Ref<Counted>(new ReplySink::ReplyEvent(event));
      request->dict.set(key_, Value::share(*event));
      pointers.push_back(copy.get());
      copies.push_back(std::move(copy));
    }
    if (!pointers.empty()) target_->post(Batch(pointers), InlinePolicy::kNonBlocking);
  }

  BackendPtr target_;
  std::string key_;
  std::shared_ptr<PipeContext> context_;
  Ref<ReplySink> replies_ = make_counted<ReplySink>();
};

}  // namespace

[[gnu::cold]] void register_repost(Registry& registry) {
  BackendClass cls;
  cls.name = "Repost";
  cls.doc =
      "`Repost[instance, key]` posts a copy of the request to the instance and does not wait; `result` is `data`.\n"
      "The key holds an `Event` that completes with the `result` of the copy, or fails with its error.";
  cls.brackets = {true, {Phase{2, 2, ItemKind::kInstance}}};
  cls.create = [] { return std::make_shared<Repost>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
