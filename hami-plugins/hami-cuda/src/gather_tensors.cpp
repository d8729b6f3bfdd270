// CatTensor, SplitTensor and ContiguousTensor. The core hands data on CUDA devices to the backends of these names.
#include <algorithm>

#include "cuda_backend.hpp"
#include "hami/model_keys.hpp"
#include "tensor_rows.hpp"

namespace hami_cuda {
namespace {

std::optional<std::int64_t> tensor_rows(const hami::Dict& item) {
  const std::optional<hami::Value> rows = item.find(kTensorRows);
  return rows && rows->kind() == HAMI_INT ? std::optional(rows->as_int()) : std::nullopt;
}

// The number of rows of a request in a concatenated tensor.
std::int64_t count_rows(const hami::Dict& item) {
  const std::optional<std::int64_t> rows = tensor_rows(item);
  if (!rows) return static_cast<std::int64_t>(item.request_size());
  return *rows == kWithoutBatchAxis ? 1 : *rows;
}

void require_one_item(const hami::Dict& item, const std::string& owner) {
  if (item.request_size() != 1)
    throw hami::Error(HAMI_REQUEST, owner + "(stack=true) takes requests of one item; request_size is " +
                                        std::to_string(item.request_size()));
}

// One tensor, or a list or dict of so many with these keys.
std::string structure_of(const hami::Value& data) {
  if (data.kind() == HAMI_LIST) return "a list of " + std::to_string(data.as_list().size());
  if (data.kind() != HAMI_DICT) return "one tensor";
  std::string text = "a dict of";
  for (const auto& [key, part] : data.as_dict()) text += " " + key;
  return text;
}

class CatTensor final : public CudaBackend {
 public:
  static constexpr const char* kForDevice = "cuda";
  CatTensor() : CudaBackend("CatTensor") {}

 private:
  struct Member {
    hami::Dict item;
    hami::Value data;
    std::vector<hami::Tensor> parts;
  };

  void setup(const hami::Params& params) override { stack_ = params.get<bool>("stack"); }

  void run(hami::Batch batch) override {
    std::vector<Member> members;
    for_each(batch, [&](const hami::Dict& item) {
      Member member{item, data_of(item, name()), {}};
      map_parts(member.data, [&](const hami::Value& part) {
        member.parts.push_back(tensor(part));
        return hami::Value();
      });
      check_rows(member);
      members.push_back(std::move(member));
    });
    if (members.empty()) return;
    const hami::Value whole = concatenate(members);
    for (const Member& member : members) member.item["result"] = whole;
  }

  void check_rows(const Member& member) const {
    if (stack_) return require_one_item(member.item, name());
    const bool is_sized = member.item.contains("request_size");
    std::int64_t rows = is_sized ? static_cast<std::int64_t>(member.item.request_size()) : -1;
    for (const hami::Tensor& part : member.parts) {
      const std::int64_t own = part.rank() == 0 ? -1 : part.view().shape[0];
      if (rows < 0) rows = own;
      if (own < 0 || own != rows)
        throw hami::Error(
            HAMI_REQUEST,
            name() + ": " + show(part) + " must have " +
                (is_sized ? "request_size rows along axis 0, which is " + std::to_string(rows)
                          : std::string("as many rows along axis 0 as the other tensors of its request")));
    }
    if (!is_sized && !member.parts.empty() && rows != count_rows(member.item))
      member.item[kTensorRows] = hami::Value(rows);
  }

  // An error fails the whole batch, since each value may be valid alone; the core then runs each request alone.
  hami::Value concatenate(const std::vector<Member>& members) {
    const Member& first = members.front();
    for (const Member& member : members)
      if (structure_of(member.data) != structure_of(first.data))
        throw hami::Error(HAMI_REQUEST, "CatTensor cannot concatenate " + structure_of(first.data) + " and " +
                                            structure_of(member.data) + " in one batch");
    Layout layout;
    std::vector<std::size_t> offsets;
    std::vector<Shape> shapes;
    std::vector<std::optional<hami::Tensor>> joined;
    for (std::size_t column = 0; column < first.parts.size(); ++column) {
      shapes.push_back(shape_of(members, column));
      joined.push_back(join(members, column, shapes.back()));
      offsets.push_back(joined.back() ? 0
                                      : layout.add(count_of(shapes.back()) * item_size(first.parts[column].dtype())));
    }
    const bool copies_any = std::any_of(joined.begin(), joined.end(), [](const auto& whole) { return !whole; });
    const std::shared_ptr<Memory> memory = copies_any ? allocate(layout.size()) : nullptr;
    std::vector<hami_cuda_copy> copies;
    for (std::size_t column = 0; column < first.parts.size(); ++column) {
      if (joined[column]) continue;
      CUdeviceptr to = memory->start() + offsets[column];
      for (const Member& member : members) {
        const hami::Tensor& part = member.parts[column];
        if (part.nbytes() > 0) copies.push_back(copy_of(part, to, name()));
        to += part.nbytes();
      }
    }
    if (!copies.empty()) device().kernels().copy(*stream(), copies);
    std::size_t column = 0;
    return map_parts(first.data, [&](const hami::Value&) -> hami::Value {
      const std::size_t at = column++;
      if (joined[at]) return *joined[at];
      return device_tensor(memory, offsets[at], first.parts[at].dtype(), shapes[at]);
    });
  }

  // The parts as they are, if they follow each other in one allocation, as the results of a batch of images often do.
  std::optional<hami::Tensor> join(const std::vector<Member>& members, std::size_t column, const Shape& shape) const {
    std::vector<hami::Tensor> parts;
    const char* end = nullptr;
    for (const Member& member : members) {
      const hami::Tensor& part = member.parts[column];
      const char* const start = static_cast<const char*>(part.view().data);
      if (part.nbytes() == 0 || !part.is_contiguous() || (end && start != end)) return std::nullopt;
      end = start + part.nbytes();
      parts.push_back(part);
    }
    const auto first = reinterpret_cast<CUdeviceptr>(parts.front().view().data);
    CUdeviceptr allocation = 0;
    std::size_t size = 0;
    if (parts.size() > 1 && (stream()->api().allocation_of(&allocation, &size, first) != 0 ||
                             reinterpret_cast<CUdeviceptr>(end) > allocation + size))
      return std::nullopt;
    return joined_view(std::move(parts), shape);
  }

  Shape shape_of(const std::vector<Member>& members, std::size_t column) const {
    const hami::Tensor& first = members.front().parts[column];
    Shape shape = first.shape();
    if (stack_) shape.insert(shape.begin(), 0);
    shape[0] = 0;
    for (const Member& member : members) {
      const hami::Tensor& part = member.parts[column];
      Shape own = part.shape();
      if (stack_) own.insert(own.begin(), 1);
      const bool fits = own.size() == shape.size() && std::equal(own.begin() + 1, own.end(), shape.begin() + 1);
      if (!fits || !same_type(part.dtype(), first.dtype()))
        throw hami::Error(HAMI_REQUEST, "CatTensor cannot concatenate " + show(first) + " and " + show(part) +
                                            " in one batch; only axis 0 may differ");
      shape[0] += own[0];
    }
    return shape;
  }

  bool stack_ = false;
};

class SplitTensor final : public CudaBackend {
 public:
  static constexpr const char* kForDevice = "cuda";
  SplitTensor() : CudaBackend("SplitTensor") {}

 private:
  void setup(const hami::Params& params) override { stack_ = params.get<bool>("stack"); }

  void run(hami::Batch batch) override {
    std::int64_t total = 0;
    for (const hami::Dict& item : batch) total += count_rows(item);
    std::int64_t first = 0;
    for_each(batch, [&](const hami::Dict& item) {
      const std::int64_t start = first;
      const std::int64_t rows = count_rows(item);
      first += rows;
      const bool is_row = stack_ || tensor_rows(item) == kWithoutBatchAxis;
      if (stack_) require_one_item(item, name());
      const auto rows_of = [&](const hami::Value& part) -> hami::Value {
        const hami::Tensor whole = tensor(part);
        Shape shape = whole.shape();
        if (shape.empty() || shape[0] != total)
          throw hami::Error(HAMI_REQUEST, "SplitTensor cannot split " + show(whole) +
                                              ": the requests of this batch have " + std::to_string(total) +
                                              " rows in total, and axis 0 must have as many");
        if (is_row)
          shape.erase(shape.begin());
        else
          shape[0] = rows;
        return row_view(whole, start, std::move(shape));
      };
      hami::give_result(item, map_parts(data_of(item, name()), rows_of));
      item.erase(kTensorRows);
    });
  }

  bool stack_ = false;
};

class ContiguousTensor final : public CudaBackend {
 public:
  static constexpr const char* kForDevice = "cuda";
  static constexpr hami::Range kRange = kAnyNumber;

  ContiguousTensor() : CudaBackend("ContiguousTensor") {}

 private:
  void run(hami::Batch batch) override {
    struct Work {
      hami::Dict item;
      hami::Value data;
      std::vector<hami::Tensor> parts;
      std::vector<std::size_t> offsets;
    };
    std::vector<Work> works;
    std::vector<hami_cuda_copy> copies;
    Layout layout;
    for_each(batch, [&](const hami::Dict& item) {
      Work work{item, data_of(item, name()), {}, {}};
      map_parts(work.data, [&](const hami::Value& part) {
        work.parts.push_back(tensor(part));
        return hami::Value();
      });
      for (const hami::Tensor& part : work.parts) {
        work.offsets.push_back(part.is_contiguous() ? 0 : layout.add(part.nbytes()));
        if (!part.is_contiguous()) copies.push_back(copy_of(part, work.offsets.back(), name()));
      }
      works.push_back(std::move(work));
    });
    std::shared_ptr<Memory> memory;
    if (!copies.empty()) {
      memory = allocate(layout.size());
      move_to(copies, memory->start());
      device().kernels().copy(*stream(), copies);
    }
    for (const Work& work : works) {
      std::size_t next = 0;
      work.item["result"] = map_parts(work.data, [&](const hami::Value& value) -> hami::Value {
        const std::size_t at = next++;
        const hami::Tensor& part = work.parts[at];
        if (part.is_contiguous()) return value;
        return device_tensor(memory, work.offsets[at], part.dtype(), part.shape());
      });
    }
  }
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::CatTensor, "CatTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; stack: bool = false 'the tensors have no batch axis: add it'",
    "Concatenate the tensors of a batch along axis 0; every request gets the whole tensor as `result`.\n"
    "\n"
    "Tensors that follow each other in memory, as the results of a batch of images of one size, are not copied.\n"
    "`data` is a tensor on the device, or a list or dict of tensors; each has `request_size` rows or, if that\n"
    "is absent, as many as the first of them. The core hands data on CUDA devices to this backend.");
HAMI_REGISTER(
    hami_cuda::SplitTensor, "SplitTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; stack: bool = false 'remove the batch axis from each row'",
    "Give each request of a batch its rows of the tensor that all of them hold in `data`, without a copy.\n"
    "\n"
    "A request gets as many rows as it gave to CatTensor, else `request_size` rows, in the order of the batch. The tensors\n"
    "of a dict are also keys of the request, by their names.");
HAMI_REGISTER(hami_cuda::ContiguousTensor, "ContiguousTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'",
              "Copy tensors that are not contiguous in row-major order; others pass unchanged.");
