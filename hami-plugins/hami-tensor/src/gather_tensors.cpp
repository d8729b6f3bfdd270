// CatTensor and SplitTensor: concatenate the tensors of a batch, and split one tensor into the rows of its requests.
#include <algorithm>

#include "tensors.hpp"

namespace hami_tensor {
namespace {

std::string rows(std::int64_t count) { return std::to_string(count) + (count == 1 ? " row" : " rows"); }

// With `stack`, the tensors of requests have no batch axis.
class Gathering : public TensorBackend {
 public:
  static constexpr std::uint32_t kByDevice = HAMI_WHOLE_BATCH_BY_DEVICE;

 protected:
  bool stack() const noexcept { return stack_; }

 private:
  void init_(const hami::Params& params) final { stack_ = params.get<bool>("stack"); }
  bool stack_ = false;
};

class CatTensor final : public Gathering {
 private:
  struct Member {
    hami::Dict item;
    TensorItems items;
  };

  void forward_(hami::Batch batch) override {
    std::vector<Member> members;
    for (hami::Dict& item : batch) {
      try {
        members.push_back({item, read_rows(item)});
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
    if (members.empty()) return;
    for (const Member& member : members) check_fits(members.front(), member);
    std::vector<hami::Value> gathered;
    for (std::size_t i = 0; i < members.front().items.tensors.size(); ++i) gathered.push_back(gather(members, i));
    const hami::Value result = members.front().items.with(gathered);
    for (const Member& member : members) member.item[kResult] = result;
  }

  // The tensors of one request. Each has as many rows along axis 0 as `request_size` says, else as the first tensor has.
  TensorItems read_rows(const hami::Dict& item) const {
    TensorItems items = read_tensors(item, name());
    std::int64_t size = static_cast<std::int64_t>(item.request_size());
    if (stack() && size != 1)
      throw hami::Error(HAMI_REQUEST,
                        name() + "(stack=true) takes requests of one item; request_size is " + std::to_string(size));
    const bool from_shape = !stack() && !item.contains("request_size") && !items.tensors.empty();
    if (from_shape && items.tensors.front().rank() > 0) size = items.tensors.front().view().shape[0];
    if (from_shape && size != count_rows(item)) item[kTensorRows] = size;
    for (std::size_t i = 0; i < items.tensors.size(); ++i) {
      hami::Tensor& tensor = items.tensors[i];
      if (stack()) {
        tensor = with_row_axis(tensor);
      } else if (tensor.rank() == 0) {
        throw hami::Error(HAMI_REQUEST, name() + ": " + items.name(i) + " is " + show_tensor(tensor) +
                                            ", which has no axis to concatenate along; stack=true adds one");
      } else if (tensor.view().shape[0] != size) {
        throw hami::Error(HAMI_REQUEST, name() + ": " + items.name(i) + " is " + show_tensor(tensor) + ", " +
                                            rows(tensor.view().shape[0]) + " along axis 0, and " +
                                            (from_shape ? items.name(0) + " has " : "request_size is ") +
                                            std::to_string(size) +
                                            "; they must be equal, or use stack=true for tensors without a batch axis");
      }
    }
    return items;
  }

  // Each request may be correct by itself, so this fails the whole batch, and the node runs each request alone.
  void check_fits(const Member& first, const Member& other) const {
    if (!other.items.same_form(first.items))
      throw hami::Error(HAMI_REQUEST, name() + " cannot concatenate " + first.items.show_form() + " and " +
                                          other.items.show_form() + " in one batch");
    for (std::size_t i = 0; i < first.items.tensors.size(); ++i) {
      const hami::Tensor& a = first.items.tensors[i];
      const hami::Tensor& b = other.items.tensors[i];
      const bool same_type = hami::same_dtype(a.dtype(), b.dtype());
      if (same_type && a.rank() == b.rank() &&
          std::equal(a.view().shape + 1, a.view().shape + a.rank(), b.view().shape + 1))
        continue;
      throw hami::Error(same_type ? HAMI_REQUEST : HAMI_DATA_TYPE,
                        name() + " cannot concatenate " + show_tensor(a) + " and " + show_tensor(b) +
                            " in one batch (" + first.items.name(i) + "); only axis 0 may differ");
    }
  }

  static hami::Tensor gather(const std::vector<Member>& members, std::size_t index) {
    const hami::Tensor& first = members.front().items.tensors[index];
    if (members.size() == 1) return contiguous(first);
    Shape shape = first.shape();
    shape[0] = 0;
    for (const Member& member : members) shape[0] += member.items.tensors[index].view().shape[0];
    hami::Tensor whole = hami::Tensor::make(first.dtype(), std::move(shape));
    char* to = data_of(whole);
    for (const Member& member : members) {
      const hami::Tensor& part = member.items.tensors[index];
      copy_elements(part, to);
      to += part.nbytes();
    }
    return whole;
  }
};

class SplitTensor final : public Gathering {
 private:
  void forward_(hami::Batch batch) override {
    std::int64_t total = 0;
    for (const hami::Dict& item : batch) total += count_rows(item);
    TensorItems whole;
    std::optional<hami::Value> read_from;  // usually all requests hold the same object, which is read once
    std::int64_t first = 0;
    for (hami::Dict& item : batch) {
      std::optional<hami::Value> data = item.find(kData);
      if (!data || !read_from || data->kind() < HAMI_STR || data->raw().as.o != read_from->raw().as.o)
        whole = read_whole(item, batch.size(), total);
      read_from = std::move(data);
      const std::int64_t count = count_rows(item);
      if (stack() && count != 1)
        throw hami::Error(HAMI_REQUEST,
                          name() + "(stack=true) takes requests of one item; request_size is " + std::to_string(count));
      std::vector<hami::Value> parts;
      const bool without_axis = stack() || tensor_rows(item) == kWithoutBatchAxis;
      for (const hami::Tensor& tensor : whole.tensors)
        parts.push_back(without_axis ? row_of(tensor, first) : rows_of(tensor, first, count));
      hami::give_result(item, whole.with(parts));
      item.erase(kTensorRows);
      first += count;
    }
  }

  TensorItems read_whole(const hami::Dict& item, std::size_t requests, std::int64_t total) const {
    TensorItems whole = read_tensors(item, name());
    for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
      const hami::Tensor& tensor = whole.tensors[i];
      if (tensor.rank() > 0 && tensor.view().shape[0] == total) continue;
      throw hami::Error(HAMI_REQUEST, name() + ": " + whole.name(i) + " is " + show_tensor(tensor) +
                                          ", and the batch needs " + rows(total) + " along axis 0 for its " +
                                          std::to_string(requests) + (requests == 1 ? " request" : " requests"));
    }
    return whole;
  }

  static hami::Tensor row_of(const hami::Tensor& whole, std::int64_t first) {
    const DLTensor& view = whole.view();
    return make_view(whole, Shape(view.shape + 1, view.shape + view.ndim),
                     Shape(view.strides + 1, view.strides + view.ndim), first * view.strides[0]);
  }

  static hami::Tensor rows_of(const hami::Tensor& whole, std::int64_t first, std::int64_t count) {
    Shape shape = whole.shape();
    shape[0] = count;
    return make_view(whole, std::move(shape), strides_of(whole), first * whole.view().strides[0]);
  }
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(hami_tensor::CatTensor, "CatTensor", "stack: bool = false 'the tensors have no batch axis: add it'",
              "Concatenates the tensors of a batch along axis 0; all requests get the same `result`.\n"
              "A request has `request_size` rows; without the key, as many as its tensor has.");
HAMI_REGISTER(
    hami_tensor::SplitTensor, "SplitTensor", "stack: bool = false 'remove the batch axis from each row'",
    "Sets `result` of each request to its rows of the tensor that all requests hold in `data`, without a copy.\n"
    "A request gets as many rows as it gave to CatTensor, else as its `request_size`. If FixTensor added the batch axis,\n"
    "the result has none. The tensors of a dict are also keys of the request, by their names.");
