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
  void init_(Init& init) override { stack_ = init.params().get<bool>("stack"); }
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

  // The tensors of one request, each with `request_size` rows along axis 0.
  TensorItems read_rows(const Request& request) const {
    TensorItems items = read_tensors(request, label());
    const auto size = static_cast<std::int64_t>(request.items);
    if (stack() && size != 1)
      throw Error(ErrorCode::kRequest,
                  label() + "(stack=true) takes requests of one item; request_size is " + std::to_string(size));
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
                        " along axis 0, and request_size is " + std::to_string(size) +
                        "; they must be equal, or use stack=true for tensors without a batch axis");
      }
    }
    return items;
  }

  static Tensor with_row_axis(const Tensor& tensor) {
    Shape shape = tensor->shape();
    Shape strides = tensor->strides();
    shape.insert(shape.begin(), 1);
    strides.insert(strides.begin(), static_cast<std::int64_t>(tensor->count()));
    return make_view(tensor, std::move(shape), std::move(strides));
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
    const auto total = static_cast<std::int64_t>(batch.items());
    TensorItems whole;
    const Object* read_from = nullptr;  // usually all requests hold the same object, which is read once
    std::int64_t first = 0;
    for (Request* request : batch) {
      const Value* data = request->dict.find(kData);
      if (!data || !data->object() || data->object() != read_from) whole = read_whole(*request, batch.size(), total);
      read_from = data ? data->object() : nullptr;
      const auto count = static_cast<std::int64_t>(request->items);
      if (stack() && count != 1)
        throw Error(ErrorCode::kRequest,
                    label() + "(stack=true) takes requests of one item; request_size is " + std::to_string(count));
      std::vector<Value> parts;
      for (const Tensor& tensor : whole.tensors) parts.push_back(to_value(part_of(tensor, first, count)));
      request->dict.set(kResult, whole.with(std::move(parts)));
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

  Tensor part_of(const Tensor& whole, std::int64_t first, std::int64_t count) const {
    if (!stack()) return slice_rows(whole, first, count);
    return make_view(whole, Shape(whole->shape().begin() + 1, whole->shape().end()),
                     Shape(whole->strides().begin() + 1, whole->strides().end()), first * whole->strides()[0]);
  }
};

}  // namespace

void register_tensor_gathering(Registry& registry) {
  BackendClass cat;
  cat.name = "CatTensor";
  cat.doc =
      "Concatenates the tensors of a batch along axis 0; all requests get the same `result`.\n"
      "Each tensor has as many rows as the `request_size` of its request.";
  cat.params = parse_param_specs("stack: bool = false 'the tensors have no batch axis: add it'");
  cat.create = [] { return std::make_shared<CatTensor>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cat)));

  BackendClass split;
  split.name = "SplitTensor";
  split.doc =
      "Sets `result` of each request to its rows of the tensor that all requests hold in `data`, without a copy.\n"
      "A request gets as many rows as its `request_size`.";
  split.params = parse_param_specs("stack: bool = false 'remove the batch axis from each row'");
  split.create = [] { return std::make_shared<SplitTensor>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(split)));
}

}  // namespace hami
