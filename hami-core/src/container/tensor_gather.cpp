// CatTensor and SplitTensor: concatenate the tensors of a batch, and split one tensor into the rows of its requests.
#include <algorithm>
#include <memory>

#include "container/tensors.hpp"

namespace hami {
namespace {

std::string rows(std::int64_t count) { return std::to_string(count) + (count == 1 ? " row" : " rows"); }

// With `stack`, the tensors of requests have no batch axis.
class Gathering : public Backend {
 protected:
  bool stack() const noexcept { return stack_; }

 private:
  void init_(Init& init) final { stack_ = init.params().get<bool>("stack"); }
  bool stack_ = false;
};

class CatTensor final : public Gathering {
 private:
  struct Member {
    Request* request;
    TensorItems items;
  };

  void forward_(Batch batch) override {
    std::vector<Member> members;
    for (Request* request : batch) {
      try {
        members.push_back({request, read_rows(*request)});
      } catch (...) {
        request->fail(current_error().with_note("backend " + label()));
      }
    }
    if (members.empty()) return;
    for (const Member& member : members) check_fits(members.front(), member);
    std::vector<Value> gathered;
    for (std::size_t i = 0; i < members.front().items.tensors.size(); ++i)
      gathered.push_back(to_value(gather(members, i)));
    const Value result = members.front().items.with(std::move(gathered));
    for (const Member& member : members) member.request->dict.set(kResult, result);
  }

  // The tensors of one request. Each has as many rows along axis 0 as `request_size` says, else as the first tensor has.
  TensorItems read_rows(Request& request) const {
    TensorItems items = read_tensors(request, label());
    std::int64_t size = static_cast<std::int64_t>(request.items);
    if (stack() && size != 1)
      throw Error(ErrorCode::kRequest,
                  label() + "(stack=true) takes requests of one item; request_size is " + std::to_string(size));
    const bool from_shape = !stack() && !request.dict.contains(kRequestSize) && !items.tensors.empty();
    if (from_shape && items.tensors.front()->rank() > 0) size = items.tensors.front()->shape()[0];
    if (from_shape && size != std::int64_t(count_rows(request))) set_tensor_rows(request, size);
    for (std::size_t i = 0; i < items.tensors.size(); ++i) {
      Tensor& tensor = items.tensors[i];
      if (stack()) {
        tensor = with_row_axis(tensor);
      } else if (tensor->rank() == 0) {
        throw Error(ErrorCode::kRequest, label() + ": " + items.name(i) + " is " + show_tensor(*tensor) +
                                             ", which has no axis to concatenate along; stack=true adds one");
      } else if (tensor->shape()[0] != size) {
        throw Error(ErrorCode::kRequest,
                    label() + ": " + items.name(i) + " is " + show_tensor(*tensor) + ", " + rows(tensor->shape()[0]) +
                        " along axis 0, and " + (from_shape ? items.name(0) + " has " : "request_size is ") +
                        std::to_string(size) +
                        "; they must be equal, or use stack=true for tensors without a batch axis");
      }
    }
    return items;
  }

  // Each request may be correct by itself, so this fails the whole batch, and the node runs each request alone.
  void check_fits(const Member& first, const Member& other) const {
    if (!other.items.same_form(first.items))
      throw Error(ErrorCode::kRequest, label() + " cannot concatenate " + first.items.show_form() + " and " +
                                           other.items.show_form() + " in one batch");
    for (std::size_t i = 0; i < first.items.tensors.size(); ++i) {
      const TensorObject& a = *first.items.tensors[i];
      const TensorObject& b = *other.items.tensors[i];
      const bool same_type = same_dtype(a.dtype(), b.dtype());
      if (same_type && a.rank() == b.rank() &&
          std::equal(a.shape().begin() + 1, a.shape().end(), b.shape().begin() + 1))
        continue;
      throw Error(same_type ? ErrorCode::kRequest : ErrorCode::kDataType,
                  label() + " cannot concatenate " + show_tensor(a) + " and " + show_tensor(b) + " in one batch (" +
                      first.items.name(i) + "); only axis 0 may differ");
    }
  }

  static Tensor gather(const std::vector<Member>& members, std::size_t index) {
    const Tensor& first = members.front().items.tensors[index];
    if (members.size() == 1) return contiguous(first);
    Shape shape = first->shape();
    shape[0] = 0;
    for (const Member& member : members) shape[0] += member.items.tensors[index]->shape()[0];
    Tensor whole = make_tensor(std::move(shape), first->dtype());
    char* to = whole->data();
    for (const Member& member : members) {
      const TensorObject& part = *member.items.tensors[index];
      copy_elements(part, to);
      to += part.bytes();
    }
    return whole;
  }
};

class SplitTensor final : public Gathering {
 private:
  void forward_(Batch batch) override {
    std::int64_t total = 0;
    for (const Request* request : batch) total += static_cast<std::int64_t>(count_rows(*request));
    TensorItems whole;
    const Object* read_from = nullptr;  // usually all requests hold the same object, which is read once
    std::int64_t first = 0;
    for (Request* request : batch) {
      const Value* data = request->dict.find(kData);
      if (!data || !data->object() || data->object() != read_from) whole = read_whole(*request, batch.size(), total);
      read_from = data ? data->object() : nullptr;
      const auto count = static_cast<std::int64_t>(count_rows(*request));
      if (stack() && count != 1)
        throw Error(ErrorCode::kRequest,
                    label() + "(stack=true) takes requests of one item; request_size is " + std::to_string(count));
      std::vector<Value> parts;
      const bool without_axis = stack() || tensor_rows(*request) == kWithoutBatchAxis;
      for (const Tensor& tensor : whole.tensors)
        parts.push_back(to_value(without_axis ? row_of(tensor, first) : slice_rows(tensor, first, count)));
      request->dict.set(kResult, whole.with(std::move(parts)));
      clear_tensor_rows(*request);
      first += count;
    }
  }

  TensorItems read_whole(const Request& request, std::size_t requests, std::int64_t total) const {
    TensorItems whole = read_tensors(request, label());
    for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
      const TensorObject& tensor = *whole.tensors[i];
      if (tensor.rank() > 0 && tensor.shape()[0] == total) continue;
      throw Error(ErrorCode::kRequest, label() + ": " + whole.name(i) + " is " + show_tensor(tensor) +
                                           ", and the batch needs " + rows(total) + " along axis 0 for its " +
                                           std::to_string(requests) + (requests == 1 ? " request" : " requests"));
    }
    return whole;
  }

  static Tensor row_of(const Tensor& whole, std::int64_t first) {
    return make_view(whole, Shape(whole->shape().begin() + 1, whole->shape().end()),
                     Shape(whole->strides().begin() + 1, whole->strides().end()), first * whole->strides()[0]);
  }
};

}  // namespace

void register_tensor_gathering(Registry& registry) {
  add_tensor_backend<CatTensor>(
      registry, DeviceChoice::kWholeBatch, "CatTensor",
      "Concatenates the tensors of a batch along axis 0; all requests get the same `result`.\n"
      "A request has `request_size` rows; without the key, as many as its tensor has.",
      "stack: bool = false 'the tensors have no batch axis: add it'");
  add_tensor_backend<SplitTensor>(
      registry, DeviceChoice::kWholeBatch, "SplitTensor",
      "Sets `result` of each request to its rows of the tensor that all requests hold in `data`, without a copy.\n"
      "A request gets as many rows as it gave to CatTensor, else as its `request_size`. If FixTensor added the batch axis,\n"
      "the result has none.",
      "stack: bool = false 'remove the batch axis from each row'");
}

}  // namespace hami
