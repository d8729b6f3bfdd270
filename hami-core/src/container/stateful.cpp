// StateFul[X,…]: DI[X,…] with a state for each `req_id`, which X reads and writes under the key `state`.

#include <any>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "container/forwarding.hpp"
#include "hami/sdk/request_store.hpp"
#include "request/api.hpp"

namespace hami {
namespace {

constexpr std::string_view kReqId = "req_id";
constexpr std::string_view kState = "state";

StoreId id_of(const Dict& dict) {
  const Value* id = dict.find(kReqId);
  if (!id) throw Error(ErrorCode::kRequest, "the request has no `req_id`, which selects its state");
  if (id->kind() == Kind::kInt) return StoreId(id->as_int());
  if (id->kind() == Kind::kStr) return StoreId(id->as_text());
  throw Error(ErrorCode::kDataType, std::string("req_id must be a str or an int, got ") + kind_name(id->kind()));
}

bool is_finished(const Dict& dict) {
  const Value* finish = dict.find("finish");
  return finish && finish->kind() == Kind::kBool && finish->as_bool();
}

// Attached to a request as its `owner` while it waits and runs. Keeps the request's own sink and owner.
struct Visit final : Counted {
  explicit Visit(StoreId req_id) : id(std::move(req_id)) {}
  static Visit& of(const Request& request) noexcept { return static_cast<Visit&>(*request.owner); }

  const StoreId id;
  Ref<CompletionSink> sink;
  Ref<Counted> owner;
};

// Runs the requests of one req_id one at a time, in order of arrival, so that each reads the state that the previous one wrote.
// The states are in the pipe's store. Other nodes keep states of the same ids there, and a plugin may remove an id at any time.
class StateSequencer final : public CompletionSink {
 public:
  StateSequencer(PipeContext& context, const std::string& node, BackendPtr target, Nanoseconds ttl)
      : store_(context.resources.store()),
        store_ids_(context.resources.store_ids()),
        key_(context.resources.unique("state of node \"" + node + "\"")),
        target_(std::move(target)),
        ttl_(ttl) {}

  void post(Batch batch, InlinePolicy how) {
    remove_expired();
    RequestChain ready;
    RequestChain failed;
    for (Request* request : batch) {
      try {
        enqueue(*request, ready);
      } catch (...) {
        request->fail(current_error());
        failed.push(Ref<Request>(request));
      }
    }
    use_all(failed, complete_requests);
    start(std::move(ready), how);
  }

  Parker* complete(Request* const* requests, std::size_t count) noexcept override {
    RequestChain next;
    for (std::size_t i = 0; i < count; ++i) finish(*requests[i], next);
    complete_requests(Batch(requests, count));
    if (StartLoop* loop = StartLoop::innermost; loop && loop->sequencer == this)
      loop->next.append(std::move(next));
    else
      start(std::move(next), InlinePolicy::kNonBlocking);
    return nullptr;
  }

 private:
  struct StoredState {
    Value state;
    Nanoseconds written_at;
  };

  // On the stack of a thread that starts requests. If the target runs them inline, their successors become ready on this thread.
  // `complete` adds these to `next`, and the loop starts them: recursion would need a stack as deep as the queue is long.
  struct StartLoop {
    explicit StartLoop(const StateSequencer* owner) noexcept
        : sequencer(owner), outer(std::exchange(innermost, this)) {}
    ~StartLoop() { innermost = outer; }
    StartLoop(const StartLoop&) = delete;
    StartLoop& operator=(const StartLoop&) = delete;

    const StateSequencer* const sequencer;
    StartLoop* const outer;
    RequestChain next;
    static thread_local StartLoop* innermost;
  };

  void enqueue(Request& request, RequestChain& ready) {
    const Ref<Visit> visit = make_counted<Visit>(id_of(request.dict));
    MutexLock lock(mutex_);
    const auto [entry, is_first] = waiting_.try_emplace(visit->id);
    visit->sink = std::exchange(request.sink, Ref<CompletionSink>(this));
    visit->owner = std::exchange(request.owner, Ref<Counted>(visit.get()));
    (is_first ? ready : entry->second).push(Ref<Request>(&request));
  }

  void start(RequestChain ready, InlinePolicy how) noexcept {
    StartLoop loop(this);
    for (; !ready.empty(); ready = std::move(loop.next), how = InlinePolicy::kNonBlocking) {
      RequestChain loaded;
      while (Ref<Request> request = ready.pop()) {
        try {
          request->dict.set(kState, load_state(Visit::of(*request).id));
          loaded.push(std::move(request));
        } catch (...) {
          request->fail(current_error());
          Request* one = request.get();
          complete(&one, 1);
        }
      }
      use_all(loaded, [&](Batch batch) { target_->post(batch, how); });
    }
  }

  // Saves the state of a completed request, which fails if memory runs out. Appends the next request of its req_id to
  // `next`.
  void finish(Request& request, RequestChain& next) noexcept {
    const Ref<Counted> held = request.owner;
    Visit& visit = Visit::of(request);
    try {
      if (is_finished(request.dict))
        remove_state(visit.id);
      else if (request.alive())
        save_state(visit.id, request.dict);
    } catch (...) {
      request.fail(current_error());
    }
    request.dict.erase(kState);  // only backends of the node see it
    request.sink = std::move(visit.sink);
    request.owner = std::move(visit.owner);
    MutexLock lock(mutex_);
    const auto entry = waiting_.find(visit.id);
    HAMI_ASSERT(entry != waiting_.end());
    if (entry->second.empty()) {
      waiting_.erase(entry);
      return;
    }
    next.push(entry->second.pop());
  }

  std::optional<StoredState> find(const StoreId& id) const {
    try {
      const std::optional<std::any> stored = store_.contains(id) ? store_.get(id, key_) : std::nullopt;
      return stored ? std::optional(std::any_cast<StoredState>(*stored)) : std::nullopt;
    } catch (const RequestStore::NotFound&) {
      return std::nullopt;
    }
  }

  // None without a state, or if it has expired.
  Value load_state(const StoreId& id) const {
    const std::optional<StoredState> stored = find(id);
    return !stored || (ttl_ != kNever && now() - stored->written_at > ttl_) ? Value() : stored->state;
  }

  void save_state(const StoreId& id, const Dict& dict) {
    const Value* state = dict.find(kState);
    if (!state || state->is_none()) {
      remove_state(id);
      return;
    }
    const StoredState stored{*state, now()};
    if (ttl_ != kNever) {
      MutexLock lock(mutex_);
      expiry_order_.emplace_back(stored.written_at, id);
    }
    const std::optional<StoredState> previous =
        find(id);  // destroyed without a lock: its destructor may call this class
    try {
      const MutexLock lock(store_ids_);
      create_request(id);
      store_.insert_or_assign(id, key_, stored);
    } catch (const RequestStore::NotFound&) {  // a plugin removed the id meanwhile
    }
  }

  void create_request(const StoreId& id) const {
    try {
      if (!store_.contains(id)) store_.create(id);
    } catch (const RequestStore::AlreadyExists&) {  // a plugin created the id meanwhile
    }
  }

  std::any take(const StoreId& id) const {
    try {
      return store_.contains(id, key_) ? store_.take(id, key_) : std::any();
    } catch (const RequestStore::NotFound&) {
      return {};
    }
  }

  // Removes the state and returns it, so that the caller destroys it without a lock.
  std::any remove_state(const StoreId& id) {
    std::any state = take(id);
    try {
      const MutexLock lock(store_ids_);
      if (store_.contains(id) && store_.size(id) == 0) store_.remove(id);
    } catch (const RequestStore::NotFound&) {  // a plugin removed the id meanwhile
    }
    return state;
  }

  // Removes the states that no request has used for `ttl`.
  void remove_expired() {
    if (ttl_ == kNever) return;
    const Nanoseconds moment = now();
    std::vector<std::any> expired;  // destroyed after the lock: their destructors may call this class
    MutexLock lock(mutex_);
    while (!expiry_order_.empty() && moment - expiry_order_.front().first > ttl_) {
      const auto& [written_at, id] = expiry_order_.front();
      const bool runs = waiting_.count(id) != 0;
      if (const auto stored = runs ? std::nullopt : find(id); stored && stored->written_at == written_at) {
        expired.emplace_back();
        expired.back() = remove_state(id);
      }
      expiry_order_.pop_front();
    }
  }

  RequestStore& store_;
  Mutex& store_ids_;
  const std::string key_;
  const BackendPtr target_;
  const Nanoseconds ttl_;
  Mutex mutex_;
  // An entry for each id that has a running request; the requests that wait for it.
  std::unordered_map<StoreId, RequestChain, StoreId::Hash> waiting_ HAMI_GUARDED_BY(mutex_);
  // When states were written, oldest first. Has outdated entries, of states that were written again or not at all.
  std::deque<std::pair<Nanoseconds, StoreId>> expiry_order_ HAMI_GUARDED_BY(mutex_);
};

thread_local StateSequencer::StartLoop* StateSequencer::StartLoop::innermost = nullptr;

constexpr const char* kRefusesCopies =
    "they would run requests of one req_id concurrently. Move it out of the backend, before all instances: "
    "node_entrypoint = \"List[InstancesRegister[Reflect[backend]], Register[StateFul[Batching, InstanceDispatcher]]]\"; "
    "or set instance_num = 1";

class StateFul final : public Forwarding {
 public:
  ~StateFul() override {
    sequencer_ = {};
    target_ = nullptr;
    while (!parts_.empty()) parts_.pop_back();
  }

 private:
  void init_(Init& init) override {
    check_single_instance(init);
    parts_ = make_injected(init);
    target_ = parts_.front();
    const auto ttl = init.params().get<std::optional<double>>("ttl");
    context_ = init.shared_context();
    sequencer_ = make_counted<StateSequencer>(*context_, init.node(), target_, ttl ? from_milliseconds(*ttl) : kNever);
  }
  // Each instance would order its own requests, although all instances share the states. The planner checks `refuses_copies`;
  // further instances that serve the node's queue (Recv) are known only here.
  static void check_single_instance(const Init& init) {
    if (init.instance().value_or(0) == 0) return;
    throw Error(ErrorCode::kConfig, "StateFul is part of the backend of node \"" + init.node() +
                                        "\", which has several instances; " + kRefusesCopies);
  }
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  void post_(Batch batch, InlinePolicy how) override { sequencer_->post(batch, how); }

  std::shared_ptr<PipeContext> context_;
  std::vector<BackendPtr> parts_;
  Ref<StateSequencer> sequencer_;
};

}  // namespace

[[gnu::cold]] void register_stateful(Registry& registry) {
  BackendClass cls;
  cls.name = "StateFul";
  cls.doc =
      "`DI[…]` whose first item reads `state` as written by the previous request with the same `req_id`.\n"
      "`req_id` is required; requests of one `req_id` run one at a time. The state ends with a request whose `finish` is true,\n"
      "after `ttl` without a request, or when the pipe closes. It cannot be part of a backend with several instances; put it\n"
      "before the dispatcher: `Register[StateFul[Batching, InstanceDispatcher]]`.";
  cls.range = "as its first item";
  cls.params =
      parse_param_specs("ttl: duration? 'how long a state is kept without a request; None: until the pipe closes'");
  cls.brackets = {true, {Phase{1, Phase::kMany}}};
  cls.refuses_copies = kRefusesCopies;
  cls.create = [] { return std::make_shared<StateFul>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
