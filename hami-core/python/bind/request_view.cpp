// DictView and RequestView: a mutable mapping in Python.
#include "request_view.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "sync/blocking.hpp"
#include "errors.hpp"
#include "values.hpp"
#include "view_slots.hpp"

namespace hami::bind {
namespace {

std::mutex& lending = *new std::mutex;  // for those who wait until what they lent is back
std::condition_variable& given_back = *new std::condition_variable;

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
  if (const std::optional<Value> taken = view.with([&](Dict& dict) { return dict.take(name); })) return to_python(*taken);
  if (!fallback.empty()) return fallback[0];
  PyErr_SetObject(PyExc_KeyError, key.ptr());
  throw py::error_already_set();
}

void update(const DictView& view, const py::dict& other) {
  for (const Dict::Entry& entry : snapshot(other)) view.with([&](Dict& dict) { return dict.exchange(entry.key, entry.value); });
}

py::object set_default(const DictView& view, py::handle key, py::object fallback) {
  const std::string name = key_of(key);
  const Value given = to_value(fallback);
  return to_python(view.with([&](Dict& dict) {
    if (const Value* value = dict.find(name)) return *value;
    dict.set(name, given);
    return given;
  }));
}

// Views that nobody sees any more. To make one anew costs more than what most backends do with it.
class ViewPool {
 public:
  using View = std::pair<RequestView*, py::object>;

  View take() {
    if (spare_.empty()) {
      auto* view = new RequestView();
      return {view, py::cast(view, py::return_value_policy::take_ownership)};
    }
    View view = std::move(spare_.back());
    spare_.pop_back();
    return view;
  }
  void put(View view) {
    if (spare_.size() < kMost && nobody_else_has(view.second)) spare_.push_back(std::move(view));
  }

 private:
  static constexpr std::size_t kMost = 1024;

  static bool nobody_else_has([[maybe_unused]] const py::object& view) {
#ifdef Py_GIL_DISABLED
    return false;  // the count of references is no answer there
#else
    return Py_REFCNT(view.ptr()) == 1 && !reinterpret_cast<const py::detail::instance*>(view.ptr())->weakrefs;
#endif
  }

  std::vector<View> spare_;  // guarded by the global lock
};

ViewPool& spare_views() {
  static auto* const spare = new ViewPool();  // outlives the interpreter: its end asks for no destructor
  return *spare;
}

void fail(const RequestView& view, py::object exception) {
  const Error error = from_exception(exception_of(std::move(exception)));
  view.with_request([&](Request& request) { request.fail(error); });
}

}  // namespace

FreeThreadedMutex DictView::options_mutex_;

Dict& DictView::dict() const {
  if (!dict_) throw Error(ErrorCode::kRequest, "this request is no longer the backend's; its forward has returned");
  return *dict_;
}

Borrowed::Borrowed(const py::list& batch) {
  try {
    for (py::handle item : batch) take(item);
    std::vector<Request*> sorted = requests_;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      throw Error(ErrorCode::kDataType, "a child's forward takes each request once, got one of them twice");
  } catch (...) {
    give_back();
    throw;
  }
}

void Borrowed::take(py::handle item) {
  if (!py::isinstance<RequestView>(item))
    throw Error(ErrorCode::kDataType, "a child's forward takes the requests of the batch, got " + std::string(py::repr(item)));
  RequestView& view = py::cast<RequestView&>(item);
  views_.push_back(py::reinterpret_borrow<py::object>(item));
  try {
    requests_.push_back(view.with_request([&](Request& request) {
      ++view.lent;
      return &request;
    }));
  } catch (...) {
    views_.pop_back();
    throw;
  }
}

void Borrowed::give_back() noexcept {
  {
    const std::lock_guard lock(lending);
    for (const py::object& view : views_) --py::cast<RequestView&>(view).lent;
  }
  given_back.notify_all();
}

BatchViews::BatchViews(Batch batch) : list_(batch.size()) {
  views_.reserve(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    views_.push_back(spare_views().take());
    views_[i].first->attach(batch[i]);
    list_[i] = views_[i].second;
  }
}

BatchViews::~BatchViews() {
  for (const auto& [view, object] : views_) view->detach();  // from now on none is lent
  const auto is_lent = [](const auto& view) { return view.first->lent > 0; };
  const auto all_back = [&] { return std::none_of(views_.begin(), views_.end(), is_lent); };
  if (!all_back()) {
    const ReleaseGil released;
    const BlockingScope blocking;
    std::unique_lock lock(lending);
    given_back.wait(lock, all_back);
  }
  list_.release().dec_ref();
  for (auto& view : views_) spare_views().put(std::move(view));
}

void register_views(py::module_& module) {
  py::class_<DictView> view(module, "DictView", "A dict of the core, seen in place: a mutable mapping with str keys.",
                             view_slots());
  view.def("__iter__", [](const DictView& self) { return py::iter(keys(self)); })
      .def("__repr__", [](const DictView& self) { return "<" + std::string(py::str(py::dict(items(self)))) + ">"; })
      .def("keys", keys)
      .def("items", items)
      .def("values", values)
      .def("pop", pop)
      .def("update", update)
      .def("setdefault", set_default, py::arg("key"), py::arg("default") = py::none());
  py::class_<RequestView, DictView>(module, "Request", "One request of a batch: a mutable mapping, valid until forward returns.")
      .def("fail", fail, py::arg("exception"), "Fail this request alone; the others of its batch go on.")
      .def_property_readonly("cancelled", [](const RequestView& self) {
        return self.with_request([](const Request& request) { return request.cancelled(); });
      },
                             "Whether nobody waits for its result any more.");
}

}  // namespace hami::bind
