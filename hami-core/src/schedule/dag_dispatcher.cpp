// DagDispatcher: runs requests through the graph of nodes.

#include <algorithm>
#include <memory>
#include <new>

#include "backend/api.hpp"
#include "observe/api.hpp"
#include "request/api.hpp"
#include "schedule/api.hpp"
#include "schedule/time_after.hpp"

namespace hami {
namespace {

// RAII: the inline policy of the current thread's hops: on the thread of a caller that waits, the next node may run inline too.
thread_local InlinePolicy hop_inline = InlinePolicy::kNonBlocking;

class HopScope {
 public:
  explicit HopScope(InlinePolicy how) noexcept : outer_(std::exchange(hop_inline, how)) {}
  ~HopScope() { hop_inline = outer_; }
  HopScope(const HopScope&) = delete;
  HopScope& operator=(const HopScope&) = delete;

 private:
  InlinePolicy outer_;
};

// One request on its way: the results of nodes, and the predecessors that are still missing.
class Run final : public Counted {
 public:
  Run(Request& request, std::size_t nodes) : outer(&request), outcomes(nodes), missing(nodes), skipped(nodes) {}

  Ref<Request> outer;
  Mutex mutex;
  std::vector<std::optional<Dict>> outcomes
      HAMI_GUARDED_BY(mutex);                               // of nodes that a `map` names, and of the last nodes
  std::vector<std::size_t> missing HAMI_GUARDED_BY(mutex);  // predecessors that have not finished
  std::vector<bool> skipped HAMI_GUARDED_BY(mutex);         // nodes that do not run, or skipped the request
  std::optional<Error> first_skip HAMI_GUARDED_BY(mutex);
  std::size_t branches HAMI_GUARDED_BY(mutex) = 0;  // branches that are at a node now
};

// What one batch of results leads to: requests for nodes, whose `index` is the node, and completed requests of the pipe.
class Hops {
 public:
  void add(Ref<Request> request) noexcept { started_.push(std::move(request)); }
  void complete(Ref<Request> outer) noexcept { completed_.push(std::move(outer)); }

  void go(const std::vector<Backend*>& targets, const std::vector<trace::Name>& names) noexcept {
    while (const Request* first = started_.first()) {
      RequestChain together;  // the requests for one node
      started_.move_to(together, [node = first->index](const Request& request) {
        return request.index == node ? RequestChain::Verdict::kTake : RequestChain::Verdict::kKeep;
      });
      Backend& target = *targets[first->index];
      const trace::Name name = names[first->index];
      use_all(together, [&](Batch batch) {
        if (trace::active()) trace_hop(batch, name);
        target.post(batch, hop_inline);
      });
    }
    use_all(completed_, complete_requests);
  }

 private:
  static void trace_hop(Batch batch, trace::Name node) noexcept {
    static const trace::Name name = trace::intern("hop");
    trace::Event event;
    event.category = trace::Category::kHop;
    event.name = name;
    event.node = node;
    for (const Request* request : batch)
      request->for_each_trace_id([&](std::uint64_t id) {
        if (event.time == 0) event.time = now();
        event.request = id;
        trace::record(event);
      });
  }

  RequestChain started_;
  RequestChain completed_;
};

class Router final : public CompletionSink {
 public:
  Router(const GraphSpec& spec, std::vector<Backend*> targets, std::vector<const SharedTime*> times)
      : graph_(spec), times_(graph_, std::move(times)), targets_(std::move(targets)) {
    for (const Graph::Node& node : graph_.nodes()) names_.push_back(trace::intern(node.name));
  }

  void start(Batch batch) noexcept {
    Hops hops;
    for (Request* request : batch) {
      try {
        start_one(*request, hops);
      } catch (...) {
        request->fail(current_error());
        hops.complete(Ref<Request>(request));
      }
    }
    hops.go(targets_, names_);
  }

  Parker* complete(Request* const* requests, std::size_t count) noexcept override {
    Hops hops;
    for (std::size_t i = 0; i < count; ++i) {
      Run& run = *static_cast<Run*>(requests[i]->owner.get());
      MutexLock lock(run.mutex);
      try {
        arrive(run, *requests[i], requests[i]->index, hops);
      } catch (...) {  // no memory for the next requests; those that exist run, and the last one completes the run
        fail(run, current_error());
      }
      leave(run, hops);
    }
    hops.go(targets_, names_);
    return nullptr;
  }

  LearnedTime time_after(const Request& request, Nanoseconds moment) const noexcept override {
    return times_.after(request.index, moment);
  }

 private:
  void start_one(Request& request, Hops& hops) {
    const std::size_t start = start_of(request.dict);
    std::string problem;
    const std::vector<bool> seen = graph_.reachable(start, &problem);
    if (seen.empty()) throw Error(ErrorCode::kRequest, problem);
    const Ref<Run> owned = make_counted<Run>(request, graph_.nodes().size());
    Run& run = *owned;
    MutexLock lock(run.mutex);
    for (std::size_t node = 0; node < seen.size(); ++node) run.missing[node] = graph_.nodes()[node].before.size();
    enter(run, request, start, request.dict, hops);
  }

  std::size_t start_of(const Dict& dict) const {
    const Value* given = dict.find(kNodeName);
    if (!given) {
      if (graph_.roots().size() == 1) return graph_.roots().front();
      throw Error(ErrorCode::kRequest,
                  "the pipe has several entry nodes; choose one by the key `node_name`: " + names_of_roots());
    }
    if (given->kind() != Kind::kStr)
      throw Error(ErrorCode::kDataType, std::string("node_name must be a str, got ") + kind_name(given->kind()));
    const std::size_t start = graph_.find(given->as_text());
    if (start == Graph::kNone)
      throw Error(ErrorCode::kRequest, "node_name is \"" + std::string(given->as_text()) +
                                           "\", which does not exist; the entry nodes are " + names_of_roots());
    return start;
  }

  std::string names_of_roots() const {
    std::string names;
    for (std::size_t root : graph_.roots()) names += (names.empty() ? "" : ", ") + graph_.nodes()[root].name;
    return names;
  }

  // A new request for this node, with these keys.
  void enter(Run& run, const Request& from, std::size_t node, Dict dict, Hops& hops) HAMI_REQUIRES(run.mutex) {
    Ref<Request> request = make_counted<Request>();
    request->dict = std::move(dict);
    request->sink = Ref<CompletionSink>(this);
    request->owner = Ref<Counted>(&run);
    request->parent = run.outer;
    request->index = node;
    request->deadline = from.deadline;
    request->priority = from.priority;
    ++run.branches;
    hops.add(std::move(request));
  }

  // `request` has completed at `node`.
  void arrive(Run& run, Request& request, std::size_t node, Hops& hops) HAMI_REQUIRES(run.mutex) {
    const bool skips = request.error && request.error->code() == ErrorCode::kSkipped;
    if (request.error && !skips) return fail(run, *request.error);
    if (!run.outer->alive()) return;  // another branch has failed: start nothing more
    if (skips) {
      if (!run.first_skip) run.first_skip = *request.error;
      times_.note_skip(node);
      return skip(run, request, node, hops);
    }
    const Graph::Node& here = graph_.nodes()[node];
    const bool answered = request.dict.contains(kResult);
    const bool all_or = !here.next.empty() && std::all_of(here.next.begin(), here.next.end(),
                                                          [&](std::size_t next) { return graph_.nodes()[next].is_or; });
    if (!answered && !all_or)
      return fail(run, Error(ErrorCode::kNoResult, "node \"" + here.name + "\" left no `result`"));
    if (here.is_source || here.next.empty()) run.outcomes[node] = request.dict;
    for (std::size_t next : here.next) {
      const Graph::Node& there = graph_.nodes()[next];
      if (there.is_or && answered) {
        arrive(run, request, next, hops);  // an `or` node is skipped: the result exists already
      } else if (there.is_or) {
        enter(run, request, next, request.dict, hops);
      } else if (there.map.empty()) {
        enter(run, request, next, promoted(request.dict), hops);
      } else if (--run.missing[next] == 0) {
        if (may_merge(run, next))
          gather(run, request, next, hops);
        else
          skip(run, request, next, hops);
      }
    }
  }

  // This node delivers nothing: neither it nor the nodes after it run, up to a merge that accepts that.
  void skip(Run& run, const Request& request, std::size_t node, Hops& hops) HAMI_REQUIRES(run.mutex) {
    std::vector<std::size_t> open{node};
    while (!open.empty()) {
      const std::size_t here = open.back();
      open.pop_back();
      run.skipped[here] = true;
      for (std::size_t next : graph_.nodes()[here].next) {
        const bool merges = !graph_.nodes()[next].map.empty();
        if (merges && --run.missing[next] > 0) continue;
        if (merges && may_merge(run, next))
          gather(run, request, next, hops);
        else
          open.push_back(next);
      }
    }
  }

  // Whether a node with a `map` runs, once all nodes before it have run or were skipped.
  bool may_merge(const Run& run, std::size_t node) const HAMI_REQUIRES(run.mutex) {
    const Graph::Node& here = graph_.nodes()[node];
    const auto skipped = [&](std::size_t before) {
      run.mutex.assert_held();
      return run.skipped[before];
    };
    const auto source_skipped = [&](const Graph::Node::Source& source) { return skipped(source.node); };
    if (here.accepts_skipped) return !std::all_of(here.map.begin(), here.map.end(), source_skipped);
    return std::none_of(here.before.begin(), here.before.end(), skipped) &&
           std::none_of(here.map.begin(), here.map.end(), source_skipped);
  }

  static Dict promoted(Dict dict) {
    Value* result = dict.find(kResult);
    dict.set(kData, std::move(*result));
    dict.erase(kResult);
    return dict;
  }

  // A new dict with the keys that the node's `map` names, and the reserved keys.
  void gather(Run& run, const Request& from, std::size_t node, Hops& hops) HAMI_REQUIRES(run.mutex) {
    static constexpr std::string_view kReserved[] = {kNodeName, kRequestSize, "req_id",   "context",
                                                     "state",   kPriority,    "deadline", "timeout"};
    Dict dict;
    for (std::string_view key : kReserved)
      if (const Value* value = run.outer->dict.find(key)) dict.enter(std::string(key), *value);
    for (const Graph::Node::Source& source : graph_.nodes()[node].map) {
      if (run.skipped[source.node]) continue;
      const Value* value = run.outcomes[source.node]->find(source.from);
      if (!value)
        return fail(
            run, Error(ErrorCode::kRequest, "map of node \"" + graph_.nodes()[node].name + "\": node \"" +
                                                graph_.nodes()[source.node].name + "\" left no `" + source.from + "`"));
      dict.set(source.to, *value);
    }
    enter(run, from, node, std::move(dict), hops);
  }

  // The first error is the outcome; later errors become notes.
  void fail(Run& run, const Error& error) noexcept {
    Request& outer = *run.outer;
    if (outer.alive()) return outer.fail(error);
    try {
      *outer.error = outer.error->with_note("also failed: " + error.message());
    } catch (const std::bad_alloc&) {  // without the note
    }
  }

  void leave(Run& run, Hops& hops) noexcept HAMI_REQUIRES(run.mutex) {
    if (--run.branches > 0) return;
    Request& outer = *run.outer;
    try {
      if (outer.alive()) answer(run);
    } catch (...) {  // the nesting limit, no memory
      outer.fail(current_error());
    }
    hops.complete(run.outer);
  }

  // One last node: its keys are the request's; several: `result` is a dict by node name, without those that were skipped.
  void answer(Run& run) HAMI_REQUIRES(run.mutex) {
    std::vector<std::pair<std::string, Value>> results;
    const Dict* only = nullptr;
    bool any_skipped = false;
    for (std::size_t node = 0; node < run.outcomes.size(); ++node) {
      const Graph::Node& here = graph_.nodes()[node];
      if (!here.next.empty()) continue;
      any_skipped = any_skipped || run.skipped[node];
      if (!run.outcomes[node]) continue;
      only = &*run.outcomes[node];
      results.emplace_back(here.name, *only->find(kResult));
    }
    if (results.empty()) return run.outer->fail(*run.first_skip);
    Dict& dict = run.outer->dict;
    if (results.size() > 1 || any_skipped) return dict.set(kResult, make_dict(std::move(results)));
    for (const Dict::Entry& entry : *only)
      if (entry.written && entry.key != kData) dict.set(entry.key, entry.value);
  }

  Graph graph_;
  GraphTimes times_;
  std::vector<Backend*> targets_;
  std::vector<trace::Name> names_;  // of the nodes, in the timeline
};

class DagDispatcher final : public Backend {
 public:
  bool is_asynchronous() const noexcept override { return asynchronous_; }

 private:
  void init_(Init& init) override {
    const GraphSpec& spec = init.context().graph;
    InstanceTable& instances = init.context().instances;
    std::vector<Backend*> targets;
    std::vector<const SharedTime*> times;
    for (const GraphNode& node : spec) {
      const bool runs_each = node.is_plain && !node.is_or;
      times.push_back(runs_each ? &init.context().resources.times(node.name).learned : nullptr);
      const std::string name = "node." + node.name;
      Backend* target = instances.find(name);
      if (!target) {  // this dispatcher is part of a node, and that one is built later
        instances.expect(name, init.node());
        target = later_.emplace_back(make_instance_proxy(init.shared_context(), name)).get();
      }
      targets.push_back(target);
    }
    asynchronous_ = std::all_of(targets.begin(), targets.end(), [](Backend* node) { return node->is_asynchronous(); });
    router_ = make_counted<Router>(spec, std::move(targets), std::move(times));
  }
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  void post_(Batch batch, InlinePolicy how) override {
    const HopScope hops(how);
    router_->start(batch);
  }

  std::vector<BackendPtr> later_;  // stand for nodes that are built after this dispatcher
  Ref<Router> router_;
  bool asynchronous_ = false;
};

}  // namespace

[[gnu::cold]] void register_batching(Registry& registry);

[[gnu::cold]] void register_scheduling(Registry& registry) {
  register_batching(registry);
  BackendClass dag;
  dag.name = "DagDispatcher";
  dag.doc =
      "Runs the nodes of the pipe as the graph that their `next`, `map` and `or` define.\n"
      "In the backend of a node, it runs the part of the graph that starts at the request's `node_name`.";
  dag.owns_threads = true;
  dag.declare_names = [](const Plan&, NameDeclarations& names) { names.call_all_nodes(); };
  dag.create = [] { return std::make_shared<DagDispatcher>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(dag)));
}

}  // namespace hami
