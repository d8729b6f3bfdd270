// Joins inputs along the axis of their rows, runs the model, and gives each request its rows of the outputs.
#include "batch_runner.hpp"

#include <algorithm>
#include <cstring>
#include <hami/elements.hpp>
#include <new>

#include "outputs.hpp"

namespace hami_onnx {
namespace {

using Group = std::vector<RequestInputs*>;

// Memory for one input of a run, which a thread uses again.
class Buffer {
 public:
  ~Buffer() { release(); }
  char* at_least(std::size_t bytes) {
    if (bytes > size_) {
      release();
      memory_ = static_cast<char*>(::operator new(bytes, std::align_val_t(kAlignment)));
      size_ = bytes;
    }
    return memory_;
  }
  void trim() noexcept {
    if (size_ > kMostKept) release();
  }

 private:
  static constexpr std::size_t kAlignment = 64;        // of a cache line, as the core's tensors
  static constexpr std::size_t kMostKept = 16u << 20;  // bytes; one huge batch must not keep its memory
  void release() noexcept {
    if (memory_) ::operator delete(memory_, std::align_val_t(kAlignment));
    memory_ = nullptr;
    size_ = 0;
  }
  char* memory_ = nullptr;
  std::size_t size_ = 0;
};

// The buffers of this thread. A run has ended before the next one fills them.
std::vector<Buffer>& buffers(std::size_t inputs) {
  thread_local std::vector<Buffer> kept;
  if (kept.size() < inputs) kept = std::vector<Buffer>(inputs);
  return kept;
}

class BatchRunner {
 public:
  BatchRunner(const Session& session, const Plan& plan, const BatchReport& report)
      : session_(session), plan_(plan), report_(report) {}

  // Completes each member. The members run together; if that fails, each runs by itself.
  void run_group(const Group& group) {
    if (!is_awaited(&group)) return give_up(group);
    std::int64_t rows = 0;
    for (const RequestInputs* member : group) rows += member->rows;
    try {
      std::vector<Output> outputs = run_rows(group, 0, rows);
      const bool splits = group.size() == 1 || have_rows(outputs, rows);
      if (splits && (group.size() == 1 || is_same_alone(group, outputs, rows))) return give(group, outputs, rows);
    } catch (const hami::Error& error) {
      if (group.size() == 1) return group[0]->item.fail(error);
    }
    // One bad request, for example with an index out of range, must not fail the others.
    for (RequestInputs* member : group) run_group({member});
  }

 private:
  // Whether a caller of the group waits for its result.
  static bool is_awaited(const void* group) {
    const Group& members = *static_cast<const Group*>(group);
    return std::any_of(members.begin(), members.end(),
                       [](const RequestInputs* member) { return !member->item.is_cancelled(); });
  }

  // Its callers have left; the core knows whether by a timeout.
  static void give_up(const Group& group) {
    for (const RequestInputs* member : group)
      member->item.fail(hami::Error(HAMI_CANCELLED, "OnnxTensor: no caller waits for the result"));
  }

  // Runs rows of a group; a model with a fixed number of rows in blocks, the last one filled with copies of its last row.
  std::vector<Output> run_rows(const Group& group, std::int64_t first, std::int64_t rows) {
    if (plan_.fixed == 0 || rows == plan_.fixed || (rows == 1 && plan_.runs_one))
      return run_once(group, first, rows, rows);
    std::vector<Output> wholes;
    for (std::int64_t start = 0; start < std::max<std::int64_t>(rows, 1); start += plan_.fixed) {
      const std::int64_t count = std::min(plan_.fixed, rows - start);
      std::vector<Output> block = run_once(group, first + start, count, plan_.fixed);
      if (!have_rows(block, plan_.fixed))
        fail(HAMI_REQUEST, "an output does not have " + std::to_string(plan_.fixed) +
                               " rows, as the inputs have; send exactly so many rows, or set batched = false");
      for (std::size_t i = 0; i < block.size(); ++i) {
        const int axis = plan_.output_axes[i];
        if (start == 0)
          wholes.push_back(Output::of(axis == kShared
                                          ? whole(block[i], block[i].shape, false)
                                          : hami::Tensor::make(block[i].dtype, with_rows(block[i].shape, axis, rows))));
        if (axis != kShared)
          copy_rows({block[i].shape, axis, block[i].dtype}, block[i].data, 0, {wholes[i].shape, axis, block[i].dtype},
                    wholes[i].data, static_cast<std::size_t>(start), static_cast<std::size_t>(count));
      }
    }
    return wholes;
  }

  // Runs `rows` rows of a group from `first` on, filled up to `total`.
  std::vector<Output> run_once(const Group& group, std::int64_t first, std::int64_t rows, std::int64_t total) {
    const std::vector<Port>& ports = session_.inputs();
    std::vector<Buffer>& kept = buffers(ports.size());
    std::vector<Shape> shapes(ports.size());
    std::vector<Session::Input> inputs;
    std::vector<hami::Tensor> held;
    for (std::size_t i = 0; i < ports.size(); ++i) {
      shapes[i] = with_rows(group[0]->shapes[i], plan_.input_axes[i], total);
      inputs.push_back({&ports[i], nullptr, hami::item_size(*ports[i].dtype), shapes[i].data(), shapes[i].size()});
      for (const std::int64_t size : shapes[i]) inputs[i].bytes *= static_cast<std::size_t>(size);
      inputs[i].data = gather(group, i, first, rows, total, shapes[i], inputs[i].bytes, kept[i]);
    }
    for (const ExtraInput& extra : group[0]->extra) {
      held.push_back(hami::Tensor::make(*extra.port->dtype, extra.tensor.shape()));
      convert(extra.tensor, *extra.port->dtype, held.back().view().data);
      inputs.push_back(
          {extra.port, held.back().view().data, held.back().nbytes(), held.back().view().shape, held.back().rank()});
    }
    std::vector<Output> outputs;
    try {
      const Session::Choice choice(session_);
      if (choice.is_busy()) report_.count("busy_runs", 1);
      for (Owned<OrtValue>& value : choice.session().run(inputs, {is_awaited, &group}))
        outputs.push_back(Output::of(session_.library(), std::move(value)));
    } catch (const hami::Error& error) {
      fail(HAMI_REQUEST, "the model failed on " + show(inputs) + ": " + error.what());
    }
    // An output may be an input: its memory is used again by the next run, or belongs to a caller.
    for (Output& output : outputs)
      for (const Session::Input& input : inputs)
        if (const char* const start = static_cast<const char*>(input.data);
            output.data >= start && output.data < start + input.bytes && !output.tensor)
          output = Output::of(whole(output, output.shape, false));
    for (Buffer& buffer : kept) buffer.trim();
    return outputs;
  }

  // The elements of an input: the memory of the only member where that is possible, else a copy in `buffer`.
  const void* gather(const Group& group, std::size_t index, std::int64_t first, std::int64_t rows, std::int64_t total,
                     const Shape& shape, std::size_t bytes, Buffer& buffer) const {
    const DLDataType dtype = *session_.inputs()[index].dtype;
    const int axis = plan_.input_axes[index];
    const RequestInputs& only = *group[0];
    const bool is_whole = axis == kShared || (group.size() == 1 && first == 0 && rows == total && rows == only.rows);
    if (is_whole && is_usable(only.tensors[index], dtype)) return only.tensors[index].view().data;
    char* const memory = buffer.at_least(std::max<std::size_t>(bytes, 1));
    if (is_whole) {
      convert(only.tensors[index], dtype, memory);
      return memory;
    }
    const RowLayout layout(shape, axis, dtype);
    std::vector<char> contiguous;
    std::int64_t before = 0;  // rows of the members before
    std::size_t at = 0;
    for (const RequestInputs* member : group) {
      const std::int64_t from = std::max<std::int64_t>(first - before, 0);
      const std::int64_t count = std::min(member->rows, first + rows - before) - from;
      before += member->rows;
      if (count <= 0) continue;
      const hami::Tensor& tensor = member->tensors[index];
      const bool direct = is_usable(tensor, dtype);
      if (!direct && layout.blocks == 1 && count == member->rows) {
        convert(tensor, dtype, memory + at * layout.bytes);
      } else {
        if (!direct) contiguous.resize(tensor.count() * hami::item_size(dtype));
        if (!direct) convert(tensor, dtype, contiguous.data());
        const char* const source = direct ? static_cast<const char*>(tensor.view().data) : contiguous.data();
        copy_rows({member->shapes[index], axis, dtype}, source, static_cast<std::size_t>(from), layout, memory, at,
                  static_cast<std::size_t>(count));
      }
      at += static_cast<std::size_t>(count);
    }
    if (at == 0) std::memset(memory, 0, bytes);  // a block without rows
    for (; at > 0 && at < static_cast<std::size_t>(total); ++at)
      copy_rows(layout, memory, at - 1, layout, memory, at, 1);
    return memory;
  }

  static std::string show(const std::vector<Session::Input>& inputs) {
    std::string text;
    for (const Session::Input& input : inputs)
      text += (text.empty() ? "" : ", ") + input.port->name + " " + hami::dtype_name(*input.port->dtype) + " " +
              show_shape({input.shape, input.shape + input.axes});
    return text;
  }

  // Whether the rows of all outputs can be assigned to requests.
  bool have_rows(const std::vector<Output>& outputs, std::int64_t rows) const noexcept {
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (plan_.output_axes[i] != kShared && outputs[i].rows(plan_.output_axes[i]) != rows) return false;
    return true;
  }

  // Of some batches, runs the last row alone. False: it differs, and requests are not joined any more.
  bool is_same_alone(const Group& group, std::vector<Output>& outputs, std::int64_t rows) {
    if (rows == 0 || !report_.is_watch_due()) return true;
    report_.count("watched", 1);
    std::vector<hami::Value> together;
    std::vector<hami::Value> alone;
    try {
      std::vector<Output> row = run_rows(group, rows - 1, 1);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const int axis = plan_.output_axes[i];
        alone.push_back(whole(row[i], row[i].shape, false));
        together.push_back(axis == kShared ? whole(outputs[i], outputs[i].shape, false)
                                           : part(outputs[i], axis, rows - 1, 1));
      }
    } catch (const hami::Error&) {
      return true;  // the batch has run: this says nothing about its rows
    }
    if (report_.is_same(group[0]->item, together, alone, rows)) return true;
    report_.count("watch_differences", 1);
    if (!plan_.stops) return true;
    session_.stop_joining();
    return false;
  }

  // Sets `result` of each member: a tensor, or a dict by name if the model has several outputs.
  void give(const Group& group, std::vector<Output>& outputs, std::int64_t rows) const {
    std::int64_t first = 0;
    for (const RequestInputs* member : group) {
      std::vector<std::pair<std::string, hami::Value>> by_name;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const hami::Tensor tensor = result_of(*member, outputs[i], i, group.size() == 1, first, rows);
        if (outputs.size() == 1)
          member->item["result"] = tensor;
        else
          by_name.emplace_back(session_.outputs()[i].name, tensor);
      }
      if (outputs.size() != 1) hami::give_result(member->item, hami::Value::dict(by_name));
      first += member->rows;
    }
  }

  hami::Tensor result_of(const RequestInputs& request, Output& output, std::size_t index, bool is_only,
                         std::int64_t first, std::int64_t rows) const {
    const int axis = plan_.output_axes[index];
    if (!is_only && axis != kShared) return part(output, axis, first, request.rows, request.is_without_batch_axis);
    const bool drops = request.is_without_batch_axis && axis != kShared && output.rows(axis) == 1;
    // An output that has as many rows as the inputs, however many these are, is not a constant of the model.
    const bool adopts = plan_.joins && plan_.fixed == 0 && axis != kShared && output.rows(axis) == rows;
    return whole(output, drops ? without_axis(output.shape, axis) : output.shape, adopts);
  }

  const Session& session_;
  const Plan& plan_;
  const BatchReport& report_;
};

// Whether two tensors have the same elements in the same order.
bool are_equal(const hami::Tensor& a, const hami::Tensor& b) {
  if (!hami::same_dtype(a.dtype(), b.dtype()) || a.shape() != b.shape()) return false;
  std::vector<char> one(a.nbytes());
  std::vector<char> other(b.nbytes());
  convert(a, a.dtype(), one.data());
  convert(b, b.dtype(), other.data());
  return one == other;
}

// Whether two requests differ at most in the number of their rows and in what the rows contain.
bool can_be_joined(const RequestInputs& a, const RequestInputs& b, const std::vector<int>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Shape& one = a.shapes[i];
    const Shape& other = b.shapes[i];
    if (one.size() != other.size()) return false;
    for (std::size_t axis = 0; axis < one.size(); ++axis)
      if (one[axis] != other[axis] && static_cast<int>(axis) != axes[i]) return false;
    if (axes[i] == kShared && !are_equal(a.tensors[i], b.tensors[i])) return false;
  }
  return true;
}

std::vector<Group> form_groups(std::vector<RequestInputs>& requests, const Session& session, const Plan& plan) {
  std::vector<Group> groups;
  const bool joins = plan.joins && !(plan.stops && session.is_joining_stopped());
  for (RequestInputs& request : requests) {
    std::size_t place = groups.size();
    for (std::size_t i = 0; joins && request.extra.empty() && i < place; ++i)
      if (groups[i].front()->extra.empty() && can_be_joined(*groups[i].front(), request, plan.input_axes)) place = i;
    if (place == groups.size()) groups.emplace_back();
    groups[place].push_back(&request);
  }
  return groups;
}

}  // namespace

void run_batch(hami::Batch batch, const Session& session, const Plan& plan, const BatchReport& report) {
  std::vector<RequestInputs> requests;
  requests.reserve(batch.size());
  for (const hami::Dict& item : batch) {
    try {
      requests.push_back(read_inputs(item, session, plan, report.convert));
    } catch (const hami::Error& error) {
      item.fail(error);
    }
  }
  BatchRunner runner(session, plan, report);
  const std::vector<Group> groups = form_groups(requests, session, plan);
  for (const Group& group : groups) runner.run_group(group);
  report.count("groups", static_cast<std::int64_t>(groups.size()));
}

}  // namespace hami_onnx
