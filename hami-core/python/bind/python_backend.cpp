// PythonBackend runs init, forward and close of a Python object and holds the GIL only during these calls.
#include "python_backend.hpp"

#include <pybind11/stl.h>

#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "backend_services.hpp"
#include "errors.hpp"
#include "generator.hpp"
#include "request_view.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

class PythonBackend final : public Backend {
 public:
  PythonBackend(std::shared_ptr<PyRef> cls, std::shared_ptr<const Attributes> attributes)
      : cls_(std::move(cls)), attributes_(std::move(attributes)) {}
  ~PythonBackend() override {
    close_object();
    while (!children_.empty()) {  // in reverse order
      close_child(std::move(children_.back()));
      children_.pop_back();
    }
  }

  bool acquires_gil() const noexcept override { return true; }

 private:
  // A backend that this one lends to its object until it is closed.
  struct OwnedChild {
    OwnedChild(std::shared_ptr<PipeContext> of_pipe, BackendPtr lent)
        : context(std::move(of_pipe)),
          backend(std::move(lent)),
          loan(backend, Error(ErrorCode::kPipeClosed, "the pipe of the backend " + backend->label() + " is closed")) {}
    std::shared_ptr<PipeContext> context;
    BackendPtr backend;
    Loan loan;
  };

  void close_object() noexcept {
    if (!object_) return;
    const HoldGil gil;
    try {
      const py::object close = py::getattr(object_.get(), "close", py::none());
      if (initialised_ && !close.is_none()) call_python(close);
    } catch (py::error_already_set& raised) {
      raised.discard_as_unraisable(py::reinterpret_borrow<py::object>(cls_->get()));
    } catch (const std::exception&) {  // no memory for the call
      PyErr_NoMemory();
      PyErr_WriteUnraisable(cls_->get().ptr());
    }
    object_ = PyRef();
  }

  // A child that a thread still uses when the time for closing is over is abandoned, with everything that it may reach.
  void close_child(std::unique_ptr<OwnedChild> child) noexcept {
    if (child->loan.end(context_->shutdown.close_until())) return;
    const OwnedChild& leaked = *child.release();  // intentionally
    try {
      context_->shutdown.report_abandoned(leaked.backend->label() + " in " + label());
    } catch (const std::bad_alloc&) {
    }
  }

  void init_(Init& init) override {
    context_ = init.shared_context();
    options_ = init.shared_options();
    const HoldGil gil;
    try {
      py::object object = call_python(cls_->get());
      object.attr("_services") = py::cast(std::make_unique<BackendServices>(init, delegate_));
      set_params(init.params(), object);
      if (init.cls()->outlines_items)
        set_outlines(init, object);
      else
        set_children(init, object);
      object_ = PyRef(object);
      if (py::hasattr(object, "init")) {
        call(object.attr("init"),
             py::cast(new DictView(init.shared_options()), py::return_value_policy::take_ownership));
      }
      initialised_ = true;
      read_range(object);
      read_request_cost(object);
      forward_method_ = PyRef(object.attr("forward"));
    } catch (...) {
      rethrow_python_error();
    }
  }

  void set_params(const Params& params, py::object& object) const {
    py::dict all;  // for a class that takes every key of its node
    for (const auto& [name, value] : params) {
      if (!attributes_) {
        all[py::str(name)] = to_python(value);
        continue;
      }
      const auto found = attributes_->find(name);
      if (found == attributes_->end()) continue;  // of the class that this one checks
      const Attribute& attribute = found->second;
      py::object converted =
          attribute.is_duration && !value.is_none() ? py::float_(value.as_float() / 1e3) : to_python(value);
      if (attribute.is_path && !converted.is_none()) converted = py::module_::import("pathlib").attr("Path")(converted);
      object.attr(attribute.name.c_str()) = converted;
    }
    if (!attributes_) object.attr("params") = all;
  }

  void set_children(Init& init, py::object& object) {
    if (init.has_brackets()) {
      const ReleaseGil release;
      for (const PlanItem& item : init.items())
        children_.push_back(std::make_unique<OwnedChild>(context_, init.make(item)));
    }
    py::tuple children(children_.size());
    for (std::size_t i = 0; i < children_.size(); ++i) children[i] = py::cast(children_[i]->loan.handle());
    object.attr("children") = children;
  }

  void set_outlines(const Init& init, py::object& object) const {
    py::list outlines;
    const auto add = [&](const PlanItem& item) {
      const Outline outline = outline_of(*item.plan);
      py::dict keys;
      for (const auto& [name, value] : outline.keys) keys[py::str(name)] = to_python(value);
      outlines.append(py::make_tuple(outline.expression, keys, outline.local));
    };
    if (init.has_brackets())
      for (const PlanItem& item : init.items()) add(item);
    object.attr("outlines") = py::module_::import("hami._backends.registration").attr("make_outlines")(outlines);
  }

  // Reads `max` and `min` of the object after init: ints, properties, or methods that return an int; `max` may be "auto".
  void read_range(const py::object& object) {
    const auto read = [&](const char* name, bool may_be_auto) -> std::optional<std::size_t> {
      py::object value = object.attr(name);
      if (PyCallable_Check(value.ptr())) value = call_python(value);
      if (value.is_none()) return std::nullopt;
      if (may_be_auto && py::isinstance<py::str>(value) && value.cast<std::string>() == "auto") return Range::kAuto;
      int overflow = 0;  // 1 above the range of long long, -1 below
      const bool is_int = py::isinstance<py::int_>(value);
      const long long number = is_int ? PyLong_AsLongLongAndOverflow(value.ptr(), &overflow) : 0;
      if (overflow < 0 || (overflow == 0 && number < 1))
        throw Error(ErrorCode::kConfig, label() + "." + name + " must be an int of at least 1" +
                                            (may_be_auto ? " or \"auto\"" : "") + ", got " +
                                            std::string(py::repr(value)));
      return static_cast<std::size_t>(overflow ? std::numeric_limits<long long>::max() : number);
    };
    const auto max = read("max", true);
    if (max) batch_range_.max = *max;
    if (is_generator_function(object.attr("forward"))) {
      if (max.value_or(1) > 1)
        throw Error(ErrorCode::kConfig,
                    label() + ".forward is a generator, which runs one request at a time, but its max is " +
                        show_max(*max) + "; remove max, or write a forward without yield");
      batch_range_.max = 1;
    }
    if (const auto min = read("min", false)) batch_range_.min = *min;
    if (batch_range_.min > batch_range_.max)
      throw Error(ErrorCode::kConfig, label() + ".min is " + std::to_string(batch_range_.min) +
                                          ", greater than its max, " + std::to_string(batch_range_.max));
  }

  void forward_(Batch batch) override {
    if (const std::shared_ptr<const Delegate> delegate = delegate_->get()) {
      if (has_gil()) const HoldGil given_up{HoldGil::ForBatch{}};  // acquired for this batch; the delegate needs none
      const std::vector<Request*> left = delegate->forward(batch);
      if (!left.empty()) forward_in_python(Batch(left));
    } else {
      forward_in_python(batch);
    }
  }

  void forward_in_python(Batch batch) {
    const HoldGil gil{HoldGil::ForBatch{}};
    try {
      const BatchViews views(batch);
      const py::object returned = call(forward_method_.get(), views.list());
      if (PyGen_CheckExact(returned.ptr()))
        run_generator(returned, batch, label());
      else if (!returned.is_none())
        check_returned(returned, batch);
    } catch (...) {
      rethrow_python_error();
    }
    run_pending_decrefs();
    add_backend_note(batch);
  }

  // Rejects a forward that returns its results instead of setting them. An int or a bool is accepted as a status.
  void check_returned(const py::object& returned, Batch batch) const {
    if (PyLong_Check(returned.ptr())) return;
    for (const Request* request : batch)
      if (!request->alive() || request->dict.contains(kResult)) return;
    throw Error(ErrorCode::kNoResult,
                label() + ".forward returned " + class_name(returned) +
                    " and set no `result`; it must set item[\"result\"] of each request and return None");
  }

  void forward_with_dep_(Batch batch, Backend& dependency) override {
    const HoldGil gil;
    if (!py::hasattr(object_.get(), "forward_with_dep"))
      throw Error(ErrorCode::kRequest, label() + " has no forward_with_dep");
    try {
      const BatchViews views(batch);
      const Loan loan(BackendPtr(BackendPtr(), &dependency),
                      Error(ErrorCode::kRequest,
                            "this backend can be used only during forward_with_dep, which has returned or raised"));
      call(object_.get().attr("forward_with_dep"), views.list(), py::cast(loan.handle()));
    } catch (...) {
      rethrow_python_error();
    }
    add_backend_note(batch);
  }

  void inject_dependency_(const BackendPtr& dependency) override {
    const HoldGil gil;
    if (!py::hasattr(object_.get(), "inject_dependency"))
      throw Error(ErrorCode::kConfig,
                  label() + " takes no dependency; to accept one, define a method inject_dependency(self, dependency)");
    try {
      children_.push_back(std::make_unique<OwnedChild>(context_, dependency));
      call_python(object_.get().attr("inject_dependency"), py::cast(children_.back()->loan.handle()));
    } catch (...) {
      rethrow_python_error();
    }
  }

  Range range_() const override { return batch_range_; }

  // Reads `request_cost` of the object after init: a key of requests, or a method.
  void read_request_cost(const py::object& object) {
    const py::object given = object.attr("request_cost");
    if (given.is_none()) return;
    if (PyCallable_Check(given.ptr()))
      cost_method_ = PyRef(given);
    else if (py::isinstance<py::str>(given) && py::len(given) > 0)
      cost_key_ = given.cast<std::string>();
    else
      throw Error(ErrorCode::kConfig, label() + ".request_cost must be a key of requests, a method or None, got " +
                                          std::string(py::repr(given)));
  }

  CostFunction request_cost_() const override {
    if (!cost_key_.empty()) return cost_by_key(cost_key_);
    if (!cost_method_) return {};
    return [this](Batch batch) { set_costs(batch); };
  }

  // One acquisition of the GIL for all requests of a call.
  void set_costs(Batch batch) const {
    const HoldGil gil;
    const BatchViews views(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      try {
        try {
          const py::object given = call(cost_method_.get(), py::object(views.list()[i]));
          batch[i].cost = checked_cost(to_value(given), label() + ".request_cost must return a positive number");
        } catch (...) {
          rethrow_python_error();
        }
      } catch (...) {
        batch[i].fail(current_error());
      }
    }
    run_pending_decrefs();
  }

  // Runs a method. If the method forks on a thread of the core, the child process exits when the method returns there:
  // the threads that wait for the result exist only in the parent.
  template <class... Arguments>
  py::object call(py::handle method, const Arguments&... arguments) const {
    const auto is_forked_child = [this] { return fork_generation() != fork_generation_ && Worker::on_some_worker(); };
    const auto exit_child = [](const py::object& error) {
      py::module_::import("hami._runtime.at_exit").attr("end_child")(error);
    };
    try {
      py::object returned = call_python(method, arguments...);
      if (is_forked_child()) exit_child(py::none());
      return returned;
    } catch (py::error_already_set& raised) {
      if (is_forked_child()) exit_child(exception_in(raised));
      throw;
    }
  }

  const unsigned fork_generation_ = fork_generation();  // of the process that created this object
  std::shared_ptr<PyRef> cls_;
  std::shared_ptr<const Attributes> attributes_;  // null: the attribute `params` is a dict of all of them
  std::shared_ptr<PipeContext> context_;
  std::shared_ptr<Dict> options_;                      // for the delegate
  std::vector<std::unique_ptr<OwnedChild>> children_;  // the bracket items, then injected dependencies
  const std::shared_ptr<DelegateSlot> delegate_ = std::make_shared<DelegateSlot>();
  PyRef object_;
  PyRef forward_method_;
  PyRef cost_method_;         // null: cost_key_
  std::string cost_key_;      // empty: `request_cost` is None
  bool initialised_ = false;  // `close` runs only after a successful init
  Range batch_range_;
};

}  // namespace

BackendPtr make_python_backend(std::shared_ptr<PyRef> cls, std::shared_ptr<const Attributes> attributes) {
  return std::make_shared<PythonBackend>(std::move(cls), std::move(attributes));
}

}  // namespace hami::bind
