// DictView and RequestView: a mutable mapping in Python.
#include "request_view.hpp"

#include <algorithm>
#include <new>

#include "errors.hpp"
#include "values.hpp"
#include "view_slots.hpp"

namespace hami::bind {
namespace {

// Leaked intentionally: threads may use them until the process ends.
Mutex& borrow_mutex = *new Mutex;  // guards decrements of RequestView::borrow_count
CondVar& borrow_returned = *new CondVar;

std::vector<Dict::Entry> entries(const DictView& view) {
  return view.with([](const Dict& dict) { return std::vector<Dict::Entry>(dict.begin(), dict.end()); });
}

py::list keys(const DictView& view) {
  py::list list;
  for (const Dict::Entry& entry : entries(view)) list.append(py::str(entry.key));
  return list;
}

py::list items(const DictView& view) {
  py::list list;
  for (const Dict::Entry& entry : entries(view)) list.append(py::make_tuple(entry.key, to_python(entry.value)));
  return list;
}

py::list values(const DictView& view) {
  py::list list;
  for (const Dict::Entry& entry : entries(view)) list.append(to_python(entry.value));
  return list;
}

py::object pop(const DictView& view, py::handle key, const py::args& fallback) {
  const std::string name = key_of(key);
  if (const std::optional<Value> removed = view.with([&](Dict& dict) { return dict.take(name); }))
    return to_python(*removed);
  if (!fallback.empty()) return fallback[0];
  PyErr_SetObject(PyExc_KeyError, key.ptr());
  throw py::error_already_set();
}

void update(const DictView& view, const py::dict& other) {
  for (const Dict::Entry& entry : snapshot(other))
    view.with([&](Dict& dict) { return dict.exchange(entry.key, entry.value); });
}

py::object set_default(const DictView& view, py::handle key, py::object fallback) {
  const std::string name = key_of(key);
  const Value default_value = to_value(fallback);
  return to_python(view.with([&](Dict& dict) {
    if (const Value* value = dict.find(name)) return *value;
    dict.set(name, default_value);
    return default_value;
  }));
}

// Reuses view objects: creating one costs more than most backends spend on it. Guarded by the GIL.
class ViewPool {
 public:
  using View = std::pair<RequestView*, py::object>;

  View take() {
    if (free_.empty()) {
      auto* view = new RequestView();  // pybind11 frees it if the cast fails, except for the first of its allocations
      return {view, py::cast(view, py::return_value_policy::take_ownership)};
    }
    View view = std::move(free_.back());
    free_.pop_back();
    return view;
  }
  void put(View view) noexcept {
    if (free_.size() >= kMaxSize || !is_only_reference(view.second)) return;
    try {
      free_.push_back(std::move(view));
    } catch (const std::bad_alloc&) {  // it is not reused
    }
  }

 private:
  static constexpr std::size_t kMaxSize = 1024;  // views; bounds the memory kept after one huge batch

  static bool is_only_reference([[maybe_unused]] const py::object& view) {
#ifdef Py_GIL_DISABLED
    return false;  // the reference count is split between threads and cannot prove it
#else
    return Py_REFCNT(view.ptr()) == 1 && !reinterpret_cast<const py::detail::instance*>(view.ptr())->weakrefs;
#endif
  }

  std::vector<View> free_;
};

ViewPool& view_pool() {
  static auto* const pool = new ViewPool();  // leaked intentionally: it must not run Python after the interpreter ended
  return *pool;
}

void fail(const RequestView& view, py::object exception) {
  const Error error = from_exception(as_exception(std::move(exception)));
  view.with_request([&](Request& request) { request.fail(error); });
}

// The request may end while this waits, if another thread has made the call: then the reference keeps it. An exception would fail
// the other requests of a batch too, which may have delivered parts and cannot run again.
bool emit(const RequestView& view, py::handle part) {
  const Ref<Request> request = view.with_request([](Request& viewed) { return Ref<Request>(&viewed); });
  try {
    if (request->cancelled()) throw request->cancellation();
    return request->has_listener() && request->emit(to_value(part));
  } catch (const Error&) {
    if (view.has_neighbours() && request->cancelled()) return false;
    throw;
  }
}

// How many batches of several requests the Python backends of this thread run now, one inside the other.
thread_local int shared_batches = 0;

}  // namespace

FreeThreadedMutex DictView::options_mutex_;

Dict& DictView::dict() const {
  if (!dict_) throw Error(ErrorCode::kRequest, "this request is no longer valid: the backend's forward has returned");
  return *dict_;
}

Borrowed::Borrowed(const py::list& batch) {
  try {
    for (py::handle item : batch) borrow_one(item);
    std::vector<const void*> sorted(requests_.begin(), requests_.end());
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      throw Error(ErrorCode::kDataType, "a child's forward takes each request once, got the same request twice");
  } catch (...) {
    return_all();
    throw;
  }
}

void Borrowed::borrow_one(py::handle item) {
  if (!py::isinstance<RequestView>(item))
    throw Error(ErrorCode::kDataType,
                "a child's forward takes the requests of the batch, got " + std::string(py::repr(item)));
  RequestView& view = py::cast<RequestView&>(item);
  views_.push_back(py::reinterpret_borrow<py::object>(item));
  try {
    requests_.push_back(view.with_request([&](Request& request) {
      ++view.borrow_count;
      return &request;
    }));
  } catch (...) {
    views_.pop_back();
    throw;
  }
}

void Borrowed::return_all() noexcept {
  {
    const MutexLock lock(borrow_mutex);
    for (const py::object& view : views_) --py::cast<RequestView&>(view).borrow_count;
  }
  borrow_returned.notify_all();
}

BatchViews::BatchViews(Batch batch) : list_(batch.size()) {
  views_.reserve(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    views_.push_back(view_pool().take());
    views_[i].first->attach(batch[i], shared_batches > 0 || batch.size() > 1);
    list_[i] = views_[i].second;
  }
  if (batch.size() > 1) ++shared_batches;
}

BatchViews::~BatchViews() {
  if (views_.size() > 1) --shared_batches;
  for (const auto& [view, object] : views_) view->detach();  // a detached view cannot be borrowed
  const auto is_borrowed = [](const auto& view) { return view.first->borrow_count > 0; };
  const auto all_returned = [&] { return std::none_of(views_.begin(), views_.end(), is_borrowed); };
  if (!all_returned()) {
    const ReleaseGil released;
    const BlockingScope blocking;
    MutexLock lock(borrow_mutex);
    borrow_returned.wait(lock, all_returned);
  }
  list_.release().dec_ref();
  for (auto& view : views_) view_pool().put(std::move(view));
}

void register_views(py::module_& module) {
  py::class_<DictView> view(module, "DictView", "A mutable mapping with str keys over a dict of the core.",
                            view_slots());
  view.def("__iter__", [](const DictView& self) { return py::iter(keys(self)); })
      .def("__repr__", [](const DictView& self) { return "<" + std::string(py::str(py::dict(items(self)))) + ">"; })
      .def("keys", keys, "Return the keys as a list, in the order in which they were set.")
      .def("items", items, "Return (key, value) pairs as a list.")
      .def("values", values, "Return the values as a list.")
      .def("pop", pop,
           "Remove a key and return its value. Returns the default, or raises KeyError, if the key is missing.")
      .def("update", update, "Set every key of a dict.")
      .def("setdefault", set_default, py::arg("key"), py::arg("default") = py::none(),
           "Return the value of a key; set it to `default` first if the key is missing.");
  py::class_<RequestView, DictView>(
      module, "Request", "One request of a batch: a mutable mapping with str keys, valid until forward returns.")
      .def("fail", fail, py::arg("exception"),
           "Fail this request with an exception; the other requests of the batch continue.")
      .def(
          "emit", emit, py::arg("part"),
          "Deliver a part of the result to the caller of `pipe.stream`, `pipe.astream` or a request with the key "
          "`parts`, and wait while the caller is behind. Returns False, and drops the part, if the caller takes no parts. Once the "
          "caller has left or the deadline has passed, raises CancelledError or DeadlineExceeded; returns False in a batch "
          "of several requests.")
      .def_property_readonly("cancelled",
                             [](const RequestView& self) {
    return self.with_request([](const Request& request) { return request.cancelled(); });
  }, "Whether no caller waits for the result any more, so that the work can be skipped.")
      .def_property_readonly("takes_parts",
                             [](const RequestView& self) {
    return self.with_request([](const Request& request) { return request.has_listener(); });
  }, "Whether the caller takes parts of the result, which `emit` delivers.")
      .def_property_readonly("deadline",
                             [](const RequestView& self) -> py::object {
    const Nanoseconds deadline = self.with_request([](const Request& request) { return request.deadline; });
    return deadline == kNever ? py::object(py::none()) : py::float_(static_cast<double>(deadline) / 1e9);
  }, "The moment of time.monotonic() after which no caller waits, from all limits of the request, or None.")
      .def_property_readonly("priority", [](const RequestView& self) {
    return int{self.with_request([](const Request& request) { return request.priority; })};
  }, "The priority, 0 to 255, also if it was given to the call.");
}

}  // namespace hami::bind
