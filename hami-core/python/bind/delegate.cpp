// Builds a delegate, and hands its results to Python as tensors of another package.
#include "delegate.hpp"

#include <algorithm>

#include "errors.hpp"
#include "made_on_read.hpp"
#include "registry/api.hpp"
#include "tensor.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// A tensor of the core that Python code sees as one of another package. It is converted when Python code first reads it, on its
// thread; other backends read the tensor itself.
class ConvertedTensor final : public MadeOnRead {
 public:
  ConvertedTensor(Value tensor, std::shared_ptr<PyRef> convert)
      : tensor_(std::move(tensor)), convert_(std::move(convert)) {}

  Value to_tensor() const override { return to_value(tensor_.as_tensor()); }
  DLDevice device() const override { return static_cast<const TensorObject*>(tensor_.object())->device(); }
  // Once Python code has the object it may have written to it, in the order of a stream that only its package knows.
  Value to_device_tensor(std::int64_t stream) const override {
    if (!is_made()) return to_value(tensor_.as_device_tensor(stream));
    const HoldGil gil;
    try {
      return tensor_from(get(), stream);
    } catch (...) {
      rethrow_python_error();
    }
  }

 private:
  // Other packages use their own current stream. Program code relies on the order with the default stream.
  py::object make() const override {
    const auto& tensor = *static_cast<const TensorObject*>(tensor_.object());
    if (tensor.order()) tensor.order()(kDefaultStream);
    return call_python(convert_->get(), to_python(tensor_));
  }

  const Value tensor_;
  const std::shared_ptr<PyRef> convert_;
};

}  // namespace

Delegate::Delegate(const std::shared_ptr<PipeContext>& context, const std::string& node, std::shared_ptr<Dict> options,
                   const std::string& distribution, const std::string& name,
                   const std::vector<std::pair<std::string, Value>>& params, py::object convert)
    : convert_(convert.is_none() ? nullptr : std::make_shared<PyRef>(std::move(convert))) {
  const ReleaseGil release;
  try {
    plan_.cls = Registry::instance().find(name, distribution, {});
  } catch (const MissingBackend& missing) {
    throw Error(missing.code, missing.headline + (missing.hint.empty() ? "" : "\n  " + missing.hint));
  }
  plan_.label = name;
  plan_.traits = plan_.cls->traits;
  for (const ParamSpec& spec : plan_.cls->params) plan_.params.set(spec.name, spec.fallback);
  for (const auto& [key, value] : params) {
    const auto& specs = plan_.cls->params;
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const ParamSpec& each) { return each.name == key; });
    if (spec == specs.end()) throw Error(ErrorCode::kConfig, name + " has no parameter \"" + key + "\"");
    plan_.params.set(key, coerce_param(*spec, value, name));
  }
  backend_ = Init(context, node, std::move(options)).make(plan_);
}

std::vector<Request*> Delegate::forward(Batch batch) const {
  backend_->forward(batch);
  std::vector<Request*> left;
  for (Request* request : batch) {
    if (!request->alive()) continue;
    const Value* const result = request->dict.find(kResult);
    if (!result)
      left.push_back(request);
    else if (convert_ && result->kind() == Kind::kTensor)
      request->dict.set(kResult, Value::adopt(new ConvertedTensor(*result, convert_)));
  }
  return left;
}

}  // namespace hami::bind
