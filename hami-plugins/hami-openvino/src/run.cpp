// Gathers inputs along axis 0, runs, and gives each request its rows of the outputs.
#include "run.hpp"

#include <algorithm>
#include <cstring>

namespace hami_openvino {
namespace {

constexpr ov_status_e kInvalidCParam = -14;

// An output where OpenVINO has it, until the next run.
struct Output {
  Owned<ov_tensor_t> tensor;
  Shape shape;
  const unsigned char* data = nullptr;
};

class Run {
 public:
  explicit Run(Session& session) : session_(session), model_(session.model()), api_(model_.library().api()) {}

  // The outcome of each member, together or, where that fails, each alone. `fill`: rows that the model wants beyond
  // theirs are made up, and their results dropped.
  void group(const std::vector<Feed*>& members, bool fill) {
    std::int64_t rows = 0;
    for (const Feed* member : members) rows += member->rows;
    const std::int64_t total = fill && rows > 0 ? std::max(rows, model_.rows()) : rows;
    try {
      if (model_.rows() > 0 && total != model_.rows()) throw wrong_rows(rows);
      together(members, rows, total);
    } catch (const hami::Error& error) {
      // What is wrong with one (an index out of range, say) must not fail the others.
      const bool alone_is_better = members.size() > 1 && (model_.rows() == kFree || total == model_.rows());
      if (alone_is_better) return singly(members);
      for (const Feed* member : members) member->item.fail(error);
    }
  }

 private:
  void singly(const std::vector<Feed*>& members) {
    for (Feed* member : members) group({member}, true);
  }

  hami::Error wrong_rows(std::int64_t rows) const {
    return {HAMI_REQUEST, "OpenvinoTensor: the model takes exactly " + std::to_string(model_.rows()) +
                              " rows (its axis 0), this batch has " + std::to_string(rows)};
  }

  void together(const std::vector<Feed*>& members, std::int64_t rows, std::int64_t total) {
    std::vector<hami::Tensor> held;  // until it has run
    const auto set_inputs = [&] {
      held.clear();
      for (std::size_t i = 0; i < model_.inputs().size(); ++i) set_input(i, members, rows, total, held);
    };
    if (!session_.run(set_inputs)) throw failure(members);
    std::vector<Output> outputs;
    for (std::size_t i = 0; i < model_.outputs().size(); ++i) outputs.push_back(output(i));
    const auto is_per_row = [&](const Output& output) { return !output.shape.empty() && output.shape[0] == total; };
    if (members.size() > 1 && !std::all_of(outputs.begin(), outputs.end(), is_per_row))
      return singly(members);  // it cannot be told whose is what
    std::int64_t start = 0;
    for (const Feed* member : members) {
      member->item["result"] = result(*member, outputs, member->rows == total ? kFree : start);
      start += member->rows;
    }
  }

  // The memory of the one that asks as it is, if it is as the model wants it; else gathered.
  void set_input(std::size_t index, const std::vector<Feed*>& members, std::int64_t rows, std::int64_t total,
                 std::vector<hami::Tensor>& held) {
    const DLDataType dtype = model_.inputs()[index].element->dtype;
    Shape shape = members[0]->shapes[index];
    if (model_.is_batched()) shape[0] = total;
    const hami::Tensor& first = members[0]->tensors[index];
    if (members.size() == 1 && rows == total && is_usable(first, dtype)) {
      held.push_back(first);
    } else {
      held.push_back(hami::Tensor::make(dtype, shape));
      auto* to = static_cast<unsigned char*>(held.back().view().data);
      for (const Feed* member : members) {
        copy_elements(member->tensors[index], dtype, to);
        to += member->tensors[index].count() * (dtype.bits / 8u);
      }
      const auto* row = static_cast<const unsigned char*>(held.back().view().data);
      const std::size_t size = rows < total ? held.back().nbytes() / static_cast<std::size_t>(total) : 0;
      for (; rows < total; ++rows, to += size) std::memcpy(to, row, size);
    }
    const DLTensor& view = held.back().view();
    Owned<ov_tensor_t> tensor(api_.ov_tensor_free);
    const ov_shape_t sizes{static_cast<std::int64_t>(shape.size()), shape.data()};
    void* data = static_cast<unsigned char*>(view.data) + view.byte_offset;
    if (api_.ov_tensor_create_from_host_ptr(model_.library().number(*model_.inputs()[index].element), sizes, data,
                                            tensor.out()) != 0 ||
        api_.ov_infer_request_set_input_tensor_by_index(session_.request(), index, tensor.get()) != 0)
      throw failure(members);
  }

  static bool is_usable(const hami::Tensor& tensor, DLDataType dtype) {
    const DLTensor& view = tensor.view();
    const auto address = reinterpret_cast<std::uintptr_t>(view.data) + view.byte_offset;
    return same(view.dtype, dtype) && tensor.is_contiguous() && address % (dtype.bits / 8u) == 0 && address != 0;
  }

  Output output(std::size_t index) {
    Output output{Owned<ov_tensor_t>(api_.ov_tensor_free), {}, nullptr};
    ov_shape_t shape{};
    void* data = nullptr;
    const auto check = [&](ov_status_e status) {
      const std::string& name = model_.outputs()[index].name;
      model_.library().check(status, "OpenvinoTensor: output \"" + name + "\" cannot be read", HAMI_REQUEST);
    };
    check(api_.ov_infer_request_get_output_tensor_by_index(session_.request(), index, output.tensor.out()));
    // Of a tensor without axes, a single number, it says that there can be no such shape.
    if (const ov_status_e status = api_.ov_tensor_get_shape(output.tensor.get(), &shape); status != kInvalidCParam) {
      check(status);
      output.shape.assign(shape.dims, shape.dims + shape.rank);
      api_.ov_shape_free(&shape);
    }
    if (std::find(output.shape.begin(), output.shape.end(), 0) == output.shape.end())
      check(api_.ov_tensor_data(output.tensor.get(), &data));
    output.data = static_cast<const unsigned char*>(data);
    return output;
  }

  // `start`: the first of its rows; kFree: all there are.
  hami::Value result(const Feed& feed, const std::vector<Output>& outputs, std::int64_t start) const {
    std::vector<std::pair<std::string, hami::Value>> named;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Port& port = model_.outputs()[i];
      Shape shape = outputs[i].shape;
      if (start != kFree) shape[0] = feed.rows;
      const unsigned char* data = outputs[i].data;
      const Shape sizes = feed.alone && !shape.empty() && shape[0] == 1 ? Shape(shape.begin() + 1, shape.end()) : shape;
      const hami::Tensor tensor = hami::Tensor::make(port.element->dtype, sizes);
      if (start > 0 && feed.rows > 0)
        data += tensor.nbytes() / static_cast<std::size_t>(feed.rows) * static_cast<std::size_t>(start);
      if (tensor.nbytes() > 0) std::memcpy(tensor.view().data, data, tensor.nbytes());
      if (outputs.size() == 1) return tensor;
      named.emplace_back(port.name, tensor);
    }
    return hami::Value::dict(named);
  }

  hami::Error failure(const std::vector<Feed*>& members) const {
    const std::string reason = model_.library().reason();
    std::string given;
    for (std::size_t i = 0; i < model_.inputs().size(); ++i) {
      Shape shape = members[0]->shapes[i];
      if (model_.is_batched() && members.size() > 1) shape[0] = kFree;
      given += (i == 0 ? "" : ", ") + model_.inputs()[i].name + " " + model_.inputs()[i].element->name + " " +
               show_shape(shape);
    }
    return {HAMI_REQUEST, "OpenvinoTensor: the model failed on " + given + ": " + reason};
  }

  Session& session_;
  const Model& model_;
  const Api& api_;
};

}  // namespace

void run_batch(hami::Batch batch, Session& session) {
  const Model& model = session.model();
  std::vector<Feed> feeds;
  feeds.reserve(batch.size());
  for (const hami::Dict& item : batch) {
    try {
      feeds.push_back(read_feed(item, model));
    } catch (const hami::Error& error) {
      item.fail(error);
    }
  }
  const auto rest = [](const Shape& shape) { return Shape(shape.begin() + (shape.empty() ? 0 : 1), shape.end()); };
  const auto run_together = [&](const Feed& a, const Feed& b) {
    return model.is_batched() && std::equal(a.shapes.begin(), a.shapes.end(), b.shapes.begin(),
                                            [&](const Shape& x, const Shape& y) { return rest(x) == rest(y); });
  };
  std::vector<std::vector<Feed*>> groups;
  for (Feed& feed : feeds) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Feed*>& group) {
      return run_together(*group.front(), feed);
    });
    if (found != groups.end())
      found->push_back(&feed);
    else
      groups.push_back({&feed});
  }
  // Those who came with the rows that the model takes get their results, whatever became of the others.
  const bool parted = feeds.size() < batch.size() || groups.size() > 1;
  Run run(session);
  for (const std::vector<Feed*>& group : groups) run.group(group, parted);
}

}  // namespace hami_openvino
