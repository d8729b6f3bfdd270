// Joins inputs along axis 0, runs the model, and gives each request its rows of the outputs.
#include "batch_runner.hpp"

#include <algorithm>
#include <cstring>

#include "request_inputs.hpp"

namespace hami_openvino {
namespace {

constexpr ov_status_e kInvalidCParam = -14;

using Group = std::vector<RequestInputs*>;

// A view of an output in OpenVINO's memory, valid until the next run.
struct Output {
  Owned<ov_tensor_t> tensor;
  Shape shape;
  const unsigned char* data = nullptr;
};

class BatchRunner {
 public:
  explicit BatchRunner(Session& session) : session_(session), model_(session.model()), api_(model_.library().api()) {}

  // Completes each member. The members run together; if that fails, each runs by itself.
  // `pad`: repeat a row until the batch has the rows that the model requires, and drop the results of these rows.
  void run_group(const Group& group, bool pad) {
    std::int64_t rows = 0;
    for (const RequestInputs* member : group) rows += member->rows;
    const std::int64_t total = pad && rows > 0 ? std::max(rows, model_.batch_rows()) : rows;
    try {
      if (model_.batch_rows() > 0 && total != model_.batch_rows()) throw wrong_rows(rows);
      run_together(group, rows, total);
    } catch (const hami::Error& error) {
      // One bad request, for example with an index out of range, must not fail the others.
      const bool can_run_each = model_.batch_rows() == kDynamic || total == model_.batch_rows();
      if (group.size() > 1 && can_run_each) return run_each(group);
      for (const RequestInputs* member : group) member->item.fail(error);
    }
  }

 private:
  void run_each(const Group& group) {
    for (RequestInputs* member : group) run_group({member}, true);
  }

  hami::Error wrong_rows(std::int64_t rows) const {
    return {HAMI_REQUEST, "OpenvinoTensor: the model takes batches of exactly " + std::to_string(model_.batch_rows()) +
                              " rows (axis 0), got " + std::to_string(rows)};
  }

  void run_together(const Group& group, std::int64_t rows, std::int64_t total) {
    std::vector<hami::Tensor> in_use;  // keeps the memory of the inputs until the run has ended
    const auto set_inputs = [&] {
      in_use.clear();
      for (std::size_t i = 0; i < model_.inputs().size(); ++i) in_use.push_back(set_input(i, group, rows, total));
    };
    if (!session_.run(set_inputs)) throw run_error(group);
    std::vector<Output> outputs;
    for (std::size_t i = 0; i < model_.outputs().size(); ++i) outputs.push_back(read_output(i));
    const auto has_a_row_per_input_row = [&](const Output& output) {
      return !output.shape.empty() && output.shape[0] == total;
    };
    if (group.size() > 1 && !std::all_of(outputs.begin(), outputs.end(), has_a_row_per_input_row))
      return run_each(group);  // the outputs cannot be split between the members
    std::int64_t first_row = 0;
    for (const RequestInputs* member : group) {
      member->item["result"] = result_of(*member, outputs, member->rows == total ? kAllRows : first_row);
      first_row += member->rows;
    }
  }

  // Sets an input and returns the tensor whose memory it uses: that of the caller where it is usable, else a copy.
  hami::Tensor set_input(std::size_t index, const Group& group, std::int64_t rows, std::int64_t total) {
    const ElementType& type = *model_.inputs()[index].type;
    Shape shape = group[0]->shapes[index];
    if (model_.is_batched()) shape[0] = total;
    const hami::Tensor& first = group[0]->tensors[index];
    const bool borrow = group.size() == 1 && rows == total && is_usable(first, type.dtype);
    const hami::Tensor tensor = borrow ? first : join(index, group, shape, rows, total);
    const DLTensor& view = tensor.view();
    const ov_shape_t sizes{static_cast<std::int64_t>(shape.size()), shape.data()};
    void* data = static_cast<unsigned char*>(view.data) + view.byte_offset;
    Owned<ov_tensor_t> handle(api_.ov_tensor_free);
    if (api_.ov_tensor_create_from_host_ptr(model_.library().code_of(type), sizes, data, handle.out()) != 0 ||
        api_.ov_infer_request_set_input_tensor_by_index(session_.request(), index, handle.get()) != 0)
      throw run_error(group);
    return tensor;
  }

  // Copies an input of all members into one tensor; the first row is repeated from `rows` to `total`.
  hami::Tensor join(std::size_t index, const Group& group, const Shape& shape, std::int64_t rows, std::int64_t total) {
    const DLDataType dtype = model_.inputs()[index].type->dtype;
    hami::Tensor joined = hami::Tensor::make(dtype, shape);
    auto* const begin = static_cast<unsigned char*>(joined.view().data);
    auto* end = begin;
    for (const RequestInputs* member : group) {
      copy_elements(member->tensors[index], dtype, end);
      end += member->tensors[index].count() * (dtype.bits / 8u);
    }
    const std::size_t row_bytes = rows < total ? joined.nbytes() / static_cast<std::size_t>(total) : 0;
    for (; rows < total; ++rows, end += row_bytes) std::memcpy(end, begin, row_bytes);
    return joined;
  }

  // Whether OpenVINO can read this memory as it is.
  static bool is_usable(const hami::Tensor& tensor, DLDataType dtype) {
    const DLTensor& view = tensor.view();
    const auto address = reinterpret_cast<std::uintptr_t>(view.data) + view.byte_offset;
    return same_dtype(view.dtype, dtype) && tensor.is_contiguous() && address % (dtype.bits / 8u) == 0 && address != 0;
  }

  Output read_output(std::size_t index) {
    Output output{Owned<ov_tensor_t>(api_.ov_tensor_free), {}, nullptr};
    const auto check = [&](ov_status_e status) {
      const std::string& name = model_.outputs()[index].name;
      model_.library().check(status, "OpenvinoTensor: cannot read output \"" + name + "\"", HAMI_REQUEST);
    };
    check(api_.ov_infer_request_get_output_tensor_by_index(session_.request(), index, output.tensor.out()));
    // For a scalar, which has no axes, OpenVINO returns kInvalidCParam instead of an empty shape.
    ov_shape_t shape{};
    if (const ov_status_e status = api_.ov_tensor_get_shape(output.tensor.get(), &shape); status != kInvalidCParam) {
      check(status);
      output.shape.assign(shape.dims, shape.dims + shape.rank);
      api_.ov_shape_free(&shape);
    }
    void* data = nullptr;
    const bool is_empty = std::find(output.shape.begin(), output.shape.end(), 0) != output.shape.end();
    if (!is_empty) check(api_.ov_tensor_data(output.tensor.get(), &data));
    output.data = static_cast<const unsigned char*>(data);
    return output;
  }

  // Copies the rows of a request out of the outputs, from `first_row` on; kAllRows copies whole outputs.
  hami::Value result_of(const RequestInputs& request, const std::vector<Output>& outputs,
                        std::int64_t first_row) const {
    std::vector<std::pair<std::string, hami::Value>> by_name;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Port& port = model_.outputs()[i];
      Shape shape = outputs[i].shape;
      if (first_row != kAllRows) shape[0] = request.rows;
      if (request.is_single_row && !shape.empty() && shape[0] == 1) shape.erase(shape.begin());
      const hami::Tensor tensor = hami::Tensor::make(port.type->dtype, shape);
      const unsigned char* data = outputs[i].data;
      if (first_row > 0 && request.rows > 0)
        data += tensor.nbytes() / static_cast<std::size_t>(request.rows) * static_cast<std::size_t>(first_row);
      if (tensor.nbytes() > 0) std::memcpy(tensor.view().data, data, tensor.nbytes());
      if (outputs.size() == 1) return tensor;
      by_name.emplace_back(port.name, tensor);
    }
    return hami::Value::dict(by_name);
  }

  hami::Error run_error(const Group& group) const {
    const std::string reason = model_.library().last_error();
    std::string shown;
    for (std::size_t i = 0; i < model_.inputs().size(); ++i) {
      const Port& input = model_.inputs()[i];
      Shape shape = group[0]->shapes[i];
      if (model_.is_batched() && group.size() > 1) shape[0] = kDynamic;
      shown += (i == 0 ? "" : ", ") + input.name + " " + input.type->name + " " + show_shape(shape);
    }
    return {HAMI_REQUEST, "OpenvinoTensor: the model failed on " + shown + ": " + reason};
  }

  static constexpr std::int64_t kAllRows = -1;

  Session& session_;
  const Model& model_;
  const Api& api_;
};

// Whether two requests differ at most in the number of their rows.
bool can_be_joined(const RequestInputs& a, const RequestInputs& b) {
  const auto without_rows = [](const Shape& shape) {
    return Shape(shape.begin() + (shape.empty() ? 0 : 1), shape.end());
  };
  return std::equal(a.shapes.begin(), a.shapes.end(), b.shapes.begin(),
                    [&](const Shape& x, const Shape& y) { return without_rows(x) == without_rows(y); });
}

std::vector<Group> group_by_shape(std::vector<RequestInputs>& requests, bool is_batched) {
  std::vector<Group> groups;
  for (RequestInputs& request : requests) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return is_batched && can_be_joined(*group.front(), request);
    });
    if (found != groups.end())
      found->push_back(&request);
    else
      groups.push_back({&request});
  }
  return groups;
}

}  // namespace

void run_batch(hami::Batch batch, Session& session) {
  const Model& model = session.model();
  std::vector<RequestInputs> requests;
  requests.reserve(batch.size());
  for (const hami::Dict& item : batch) {
    try {
      requests.push_back(read_inputs(item, model));
    } catch (const hami::Error& error) {
      item.fail(error);
    }
  }
  const std::vector<Group> groups = group_by_shape(requests, model.is_batched());
  // A batch that came with the rows that the model requires can lack rows in its groups; they are padded then.
  const bool is_split = requests.size() < batch.size() || groups.size() > 1;
  BatchRunner runner(session);
  for (const Group& group : groups) runner.run_group(group, is_split);
}

}  // namespace hami_openvino
