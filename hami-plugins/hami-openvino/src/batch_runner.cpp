// Joins inputs along the axis of their rows, runs the model, and gives each request its rows of the outputs.
#include "batch_runner.hpp"

#include <algorithm>
#include <cstring>

#include "request_inputs.hpp"
#include "row_difference.hpp"
#include "session_io.hpp"

namespace hami_openvino {
namespace {

using Group = std::vector<RequestInputs*>;

class BatchRunner {
 public:
  BatchRunner(Session& session, const BatchReport& report)
      : session_(session), model_(session.model()), report_(report) {}

  // Completes each member. The members run together; if that fails, each runs by itself. Where the model takes batches of
  // exactly N rows, a row is repeated until the batch has them, and the results of these rows are dropped.
  void run_group(const Group& group) {
    std::int64_t rows = 0;
    for (const RequestInputs* member : group) rows += member->rows;
    const std::int64_t total = rows > 0 ? std::max(rows, model_.batch_rows()) : rows;
    try {
      if (rows == 0 && model_.is_batched() && all_outputs_have_rows()) return run_without_rows(group);
      if (model_.batch_rows() > 0 && total != model_.batch_rows()) throw wrong_rows(rows);
      run_together(group, rows, total);
      if (group.size() > 1 && model_.is_watch_due()) watch(group);
    } catch (const hami::Error& error) {
      // One bad request, for example with an index out of range, must not fail the others.
      if (group.size() > 1) return run_each(group);
      for (const RequestInputs* member : group) member->item.fail(error);
    }
  }

 private:
  void run_each(const Group& group) {
    for (RequestInputs* member : group) run_group({member});
  }

  // Runs the first member again alone. If its result differs from the one in the batch by more than rounding explains,
  // requests are not joined any more, and each member runs again by itself.
  void watch(const Group& group) {
    const hami::Value together = group[0]->item.get("result");
    try {
      run_together({group[0]}, group[0]->rows, std::max(group[0]->rows, model_.batch_rows()));
    } catch (const hami::Error&) {
      hami::give_result(group[0]->item, together);  // says nothing about the rows
      return;
    }
    report_.watched();
    const std::string found = difference_between(group[0]->item.get("result"), together, group);
    if (found.empty()) {
      hami::give_result(group[0]->item, together);
      return;
    }
    if (model_.stop_joining()) report_.stopped(found);
    for (std::size_t i = 1; i < group.size(); ++i) run_group({group[i]});
  }

  // Says how two results of a request differ; empty if only by rounding.
  std::string difference_between(const hami::Value& alone, const hami::Value& together, const Group& group) const {
    std::int64_t rows = 0;
    for (const RequestInputs* member : group) rows += member->rows;
    for (const Port& port : model_.outputs()) {
      const bool is_dict = alone.kind() == HAMI_DICT;
      const hami::Tensor a = (is_dict ? entry_of(alone, port.name) : alone).as_tensor();
      const hami::Tensor b = (is_dict ? entry_of(together, port.name) : together).as_tensor();
      const std::string what = "output \"" + port.name + "\" of a request ";
      if (a.shape() != b.shape())
        return what + "has the shape " + show_shape(a.shape()) + " alone and " + show_shape(b.shape()) +
               " in a batch of " + std::to_string(rows);
      const Difference found = largest_difference(*port.type, a.view().data, b.view().data, a.count());
      if (found.relative > tolerance(*port.type, model_.computes_in_16_bits()))
        return what + show_difference(found, rows);
    }
    return "";
  }

  static hami::Value entry_of(const hami::Value& dict, const std::string& name) {
    for (const auto& [key, value] : dict.as_dict())
      if (key == name) return value;
    return {};
  }

  bool all_outputs_have_rows() const {
    return std::all_of(axes_.outputs.begin(), axes_.outputs.end(), [](int axis) { return axis != kShared; });
  }

  // Requests of zero rows get empty results. OpenVINO may reject zero rows; the shape of a row is what one row of zeros
  // gives, unless the model declares it.
  void run_without_rows(const Group& group) {
    for (const RequestInputs* member : group) {
      std::vector<Shape> shapes;
      bool declared = true;
      for (std::size_t i = 0; i < axes_.outputs.size(); ++i) {
        const Port& port = model_.outputs()[i];
        shapes.push_back(port.shape);
        const Shape row = without_axis(port.shape, axes_.outputs[i]);
        declared = declared && port.has_rank && !port.shape.empty() &&
                   std::all_of(row.begin(), row.end(), [](std::int64_t size) { return size >= 0; });
      }
      if (!declared) shapes = shapes_of_one_row(*member);
      std::vector<std::pair<std::string, hami::Value>> by_name;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        shapes[i] = with_rows(shapes[i], axes_.outputs[i], 0);
        by_name.emplace_back(model_.outputs()[i].name, hami::Tensor::make(model_.outputs()[i].type->dtype, shapes[i]));
      }
      hami::give_result(member->item, by_name.size() == 1 ? by_name[0].second : hami::Value::dict(by_name));
    }
  }

  std::vector<Shape> shapes_of_one_row(const RequestInputs& request) {
    const std::int64_t rows = std::max<std::int64_t>(1, model_.batch_rows());
    std::vector<hami::Tensor> zeros;
    const auto set_inputs = [&] {
      zeros.clear();
      for (std::size_t i = 0; i < model_.inputs().size(); ++i) {
        const Shape shape = with_rows(request.shapes[i], axes_.inputs[i], rows);
        zeros.push_back(hami::Tensor::make(model_.inputs()[i].type->dtype, shape));
        std::memset(zeros.back().view().data, 0, zeros.back().nbytes());
        if (!hami_openvino::set_input(session_, i, zeros.back(), shape)) throw run_error({});
      }
    };
    if (!session_.run(set_inputs)) throw run_error({});
    std::vector<Shape> shapes;
    const std::vector<Output> outputs = read_outputs(session_);
    if (!have_rows(outputs, rows)) throw run_error({});
    for (const Output& output : outputs) shapes.push_back(output.shape);
    return shapes;
  }

  hami::Error wrong_rows(std::int64_t rows) const {
    return {HAMI_REQUEST, "OpenvinoTensor: the model takes batches of exactly " + std::to_string(model_.batch_rows()) +
                              " rows (" + model_.show_row_axes() + "), got " + std::to_string(rows)};
  }

  void run_together(const Group& group, std::int64_t rows, std::int64_t total) {
    std::vector<hami::Tensor> in_use;  // keeps the memory of the inputs until the run has ended
    const auto set_inputs = [&] {
      in_use.clear();
      for (std::size_t i = 0; i < model_.inputs().size(); ++i) in_use.push_back(set_input(i, group, rows, total));
    };
    if (!session_.run(set_inputs)) throw run_error(group);
    const std::vector<Output> outputs = read_outputs(session_);
    if (group.size() > 1 && !have_rows(outputs, total))
      return run_each(group);  // the outputs cannot be split between the members
    std::int64_t first_row = 0;
    for (const RequestInputs* member : group) {
      hami::give_result(member->item, result_of(*member, outputs, member->rows == total ? kAllRows : first_row));
      first_row += member->rows;
    }
  }

  // Whether each output has this number of rows, or is shared by all.
  bool have_rows(const std::vector<Output>& outputs, std::int64_t rows) const {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto axis = static_cast<std::size_t>(axes_.outputs[i]);
      if (axes_.outputs[i] != kShared && (axis >= outputs[i].shape.size() || outputs[i].shape[axis] != rows))
        return false;
    }
    return true;
  }

  // Sets an input and returns the tensor whose memory it uses: that of the caller where it is usable, else a copy.
  hami::Tensor set_input(std::size_t index, const Group& group, std::int64_t rows, std::int64_t total) {
    const ElementType& type = *model_.inputs()[index].type;
    const int axis = axes_.inputs[index];
    const Shape shape = with_rows(group[0]->shapes[index], axis, total);
    const hami::Tensor& first = group[0]->tensors[index];
    const bool borrow = (axis == kShared || (group.size() == 1 && rows == total)) && is_usable(first, type.dtype);
    const hami::Tensor tensor = borrow ? first : join(index, group, shape, rows, total);
    if (!hami_openvino::set_input(session_, index, tensor, shape)) throw run_error(group);
    return tensor;
  }

  // Copies an input of all members into one tensor; the first row is repeated from `rows` to `total`.
  hami::Tensor join(std::size_t index, const Group& group, const Shape& shape, std::int64_t rows, std::int64_t total) {
    const DLDataType dtype = model_.inputs()[index].type->dtype;
    hami::Tensor joined = hami::Tensor::make(dtype, shape);
    auto* const data = static_cast<unsigned char*>(joined.view().data);
    const int axis = axes_.inputs[index];
    if (axis == kShared) {
      copy_elements(group[0]->tensors[index], dtype, data);
      return joined;
    }
    const std::size_t element = dtype.bits / 8u;
    const RowLayout layout(shape, axis, element);
    std::vector<unsigned char> contiguous;  // a member whose rows do not follow each other in the batch
    std::size_t at = 0;
    for (const RequestInputs* member : group) {
      const hami::Tensor& tensor = member->tensors[index];
      const auto count = static_cast<std::size_t>(member->rows);
      if (layout.blocks == 1) {
        copy_elements(tensor, dtype, data + at * layout.bytes);
      } else {
        contiguous.resize(tensor.count() * element);
        copy_elements(tensor, dtype, contiguous.data());
        copy_rows({member->shapes[index], axis, element}, contiguous.data(), 0, layout, data, at, count);
      }
      at += count;
    }
    for (; rows < total; ++rows, ++at) copy_rows(layout, data, 0, layout, data, at, 1);
    return joined;
  }

  // Whether OpenVINO can read this memory as it is.
  static bool is_usable(const hami::Tensor& tensor, DLDataType dtype) {
    const DLTensor& view = tensor.view();
    const auto address = reinterpret_cast<std::uintptr_t>(view.data) + view.byte_offset;
    return same_dtype(view.dtype, dtype) && tensor.is_contiguous() && address % (dtype.bits / 8u) == 0 && address != 0;
  }

  // Copies the rows of a request out of the outputs, from `first_row` on; kAllRows copies whole outputs.
  hami::Value result_of(const RequestInputs& request, const std::vector<Output>& outputs,
                        std::int64_t first_row) const {
    std::vector<std::pair<std::string, hami::Value>> by_name;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Port& port = model_.outputs()[i];
      const int axis = axes_.outputs[i];
      const bool is_whole = first_row == kAllRows || axis == kShared;
      Shape shape = is_whole ? outputs[i].shape : with_rows(outputs[i].shape, axis, request.rows);
      if (request.is_single_row && has_one_row(shape, axis)) shape = without_axis(shape, axis);
      const hami::Tensor tensor = is_whole ? copy_output(outputs[i], *port.type, shape)
                                           : copy_output(outputs[i], *port.type, shape, axis, first_row, request.rows);
      if (outputs.size() == 1) return tensor;
      by_name.emplace_back(port.name, tensor);
    }
    return hami::Value::dict(by_name);
  }

  static bool has_one_row(const Shape& shape, int axis) {
    return axis != kShared && static_cast<std::size_t>(axis) < shape.size() &&
           shape[static_cast<std::size_t>(axis)] == 1;
  }

  hami::Error run_error(const Group& group) const {
    const std::string reason = model_.library().last_error();
    std::string shown;
    for (std::size_t i = 0; i < model_.inputs().size(); ++i) {
      const Port& input = model_.inputs()[i];
      Shape shape = group.empty() ? input.shape : group[0]->shapes[i];
      if (group.size() != 1) shape = with_rows(shape, axes_.inputs[i], kDynamic);
      shown += (i == 0 ? "" : ", ") + input.name + " " + input.type->name + " " + show_shape(shape);
    }
    return {HAMI_REQUEST, "OpenvinoTensor: the model failed on " + shown + ": " + reason};
  }

  static constexpr std::int64_t kAllRows = -1;

  Session& session_;
  const Model& model_;
  const BatchAxes& axes_ = model_.axes();
  const BatchReport& report_;
};

// Whether two tensors have the same elements in the same memory layout.
bool are_equal(const hami::Tensor& a, const hami::Tensor& b) {
  if (!same_dtype(a.dtype(), b.dtype()) || !a.is_contiguous() || !b.is_contiguous() || a.nbytes() != b.nbytes())
    return false;
  const auto data_of = [](const hami::Tensor& tensor) {
    return static_cast<const unsigned char*>(tensor.view().data) + tensor.view().byte_offset;
  };
  return a.nbytes() == 0 || std::memcmp(data_of(a), data_of(b), a.nbytes()) == 0;
}

// Whether two requests differ at most in the number of their rows and in what the rows contain.
bool can_be_joined(const RequestInputs& a, const RequestInputs& b, const std::vector<int>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (without_axis(a.shapes[i], axes[i]) != without_axis(b.shapes[i], axes[i]) ||
        (axes[i] == kShared && !are_equal(a.tensors[i], b.tensors[i])))
      return false;
  return true;
}

// Requests that run together: of equal shapes, and not more rows than the model takes. Without `joins` each runs alone, and
// so does a request of zero rows.
std::vector<Group> form_groups(std::vector<RequestInputs>& requests, const Model& model) {
  std::vector<Group> groups;
  std::vector<std::int64_t> rows;
  const bool joins = model.joins();
  for (RequestInputs& request : requests) {
    std::size_t place = groups.size();
    for (std::size_t i = 0; joins && request.rows > 0 && i < place; ++i)
      if (rows[i] > 0 && can_be_joined(*groups[i].front(), request, model.axes().inputs) &&
          (model.batch_rows() == kDynamic || rows[i] + request.rows <= model.batch_rows()))
        place = i;
    if (place == groups.size()) {
      groups.emplace_back();
      rows.push_back(0);
    }
    groups[place].push_back(&request);
    rows[place] += request.rows;
  }
  return groups;
}

}  // namespace

void run_batch(hami::Batch batch, Session& session, const hami::ModelKeys& keys, Cast cast, const BatchReport& report) {
  const Model& model = session.model();
  std::vector<RequestInputs> requests;
  requests.reserve(batch.size());
  for (const hami::Dict& item : batch) {
    try {
      requests.push_back(read_inputs(item, model, keys, cast));
    } catch (const hami::Error& error) {
      item.fail(error);
    }
  }
  BatchRunner runner(session, report);
  for (const Group& group : form_groups(requests, model)) runner.run_group(group);
}

}  // namespace hami_openvino
