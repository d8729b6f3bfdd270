// NmsTensor: non-maximum suppression of boxes, by class, for a whole batch with one launch.
#include <algorithm>

#include "cuda_backend.hpp"

namespace hami_cuda {
namespace {

class NmsTensor final : public CudaBackend {
 public:
  static constexpr hami::Range kRange = kAnyNumber;
  static constexpr const char* kForDevice = "cuda";

  NmsTensor() : CudaBackend("NmsTensor") {}

 private:
  // Boxes, scores and classes of a request; classes are optional.
  struct Request {
    hami::Dict item;
    std::vector<hami::Tensor> parts;
    std::int64_t count = 0;
    std::int64_t limit = 0;  // of kept boxes
    // Of the results in the memory of the batch, in the order of `parts`, then the indices.
    std::vector<std::size_t> offsets;
    std::size_t indices = 0;
    std::size_t candidates = 0;
  };

  static constexpr const char* kKeys[] = {"boxes", "scores", "classes"};

  void setup(const hami::Params& params) override {
    job_.iou_threshold = params.get<float>("iou_threshold");
    job_.score_threshold = params.get<float>("score_threshold");
    job_.max_boxes = params.get<int>("max_boxes");
  }

  void run(hami::Batch batch) override {
    std::vector<Request> requests;
    for_each(batch, [&](const hami::Dict& item) { requests.push_back(read(item)); });
    if (requests.empty()) return;
    std::vector<hami::Tensor> given;
    for (const Request& request : requests) given.insert(given.end(), request.parts.begin(), request.parts.end());
    make_contiguous(given);
    Layout layout;
    Layout scratch;
    const std::size_t counts = scratch.add(requests.size() * sizeof(int));
    for (Request& request : requests) {
      for (const hami::Tensor& part : request.parts)
        request.offsets.push_back(layout.add(static_cast<std::size_t>(request.limit) * row_bytes(part)));
      request.indices = layout.add(static_cast<std::size_t>(request.limit) * sizeof(std::int64_t));
      request.candidates = scratch.add(static_cast<std::size_t>(request.count) * sizeof(int));
    }
    const std::shared_ptr<Memory> memory = allocate(layout.size());
    const std::shared_ptr<Memory> work = allocate(scratch.size());
    std::vector<hami_cuda_boxes> described;
    std::size_t next = 0;
    for (const Request& request : requests) {
      const CUdeviceptr count = work->start() + counts + described.size() * sizeof(int);
      described.push_back(describe(request, &given[next], memory->start(), work->start(), count));
      next += request.parts.size();
    }
    device().kernels().suppress(*stream(), described, job_);
    give(requests, memory, work->start() + counts);
  }

  static std::size_t row_bytes(const hami::Tensor& part) {
    return item_size(part.dtype()) * (part.rank() == 2 ? 4 : 1);
  }

  Request read(const hami::Dict& item) {
    Request request{item, {}, 0, 0, {}, 0, 0};
    const hami::Value data = data_of(item, name());
    if (data.kind() != HAMI_DICT) refuse("another value");
    const auto entries = data.as_dict();
    for (const char* key : kKeys) {
      const auto found =
          std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
      if (found != entries.end())
        request.parts.push_back(tensor(found->second));
      else if (key != kKeys[2])
        refuse("no \"" + std::string(key) + "\"");
    }
    const hami::Tensor& boxes = request.parts.front();
    if (boxes.rank() != 2 || boxes.view().shape[1] != 4 || boxes.view().shape[0] > INT32_MAX)
      refuse("boxes " + show(boxes));
    request.count = boxes.view().shape[0];
    request.limit = std::min<std::int64_t>(request.count, job_.max_boxes);
    for (std::size_t i = 0; i < request.parts.size(); ++i) {
      const hami::Tensor& part = request.parts[i];
      const std::optional<hami_cuda_number> type = number_of(part.dtype());
      if (!type || (i < 2 && *type < HAMI_CUDA_FLOAT16) ||
          (i > 0 && (part.rank() != 1 || part.view().shape[0] != request.count)))
        refuse(std::string(kKeys[i]) + " " + show(part));
    }
    return request;
  }

  [[noreturn]] void refuse(const std::string& given) const {
    throw hami::Error(HAMI_DATA_TYPE,
                      name() +
                          " takes a dict of tensors on the device: boxes N x 4 and scores N of floating-point "
                          "numbers, and optionally classes N; got " +
                          given);
  }

  static hami_cuda_boxes describe(const Request& request, const hami::Tensor* given, CUdeviceptr results,
                                  CUdeviceptr scratch, CUdeviceptr count) {
    const auto kept = [&](std::size_t part) { return reinterpret_cast<void*>(results + request.offsets[part]); };
    hami_cuda_boxes boxes{};
    boxes.boxes = given[0].view().data;
    boxes.scores = given[1].view().data;
    boxes.box_type = *number_of(given[0].dtype());
    boxes.score_type = *number_of(given[1].dtype());
    boxes.kept_boxes = kept(0);
    boxes.kept_scores = kept(1);
    if (request.parts.size() > 2) {
      boxes.classes = given[2].view().data;
      boxes.class_type = *number_of(given[2].dtype());
      boxes.kept_classes = kept(2);
    }
    // Three addresses of the device, which no host code reads.
    boxes.kept_indices = reinterpret_cast<long long*>(results + request.indices);
    boxes.kept_count = reinterpret_cast<int*>(count);
    boxes.candidates = reinterpret_cast<int*>(scratch + request.candidates);
    boxes.count = static_cast<int>(request.count);
    return boxes;
  }

  // Waits for the numbers of kept boxes, once for the batch.
  void give(const std::vector<Request>& requests, const std::shared_ptr<Memory>& memory, CUdeviceptr counts) {
    const std::size_t size = requests.size() * sizeof(int);
    const std::shared_ptr<void> copied = device().pinned().get(size);
    stream()->driver().check(stream()->api().to_host(copied.get(), counts, size, stream()->raw()),
                             "cannot copy from the device");
    stream()->wait(waiter_);
    const int* kept = static_cast<const int*>(copied.get());
    for (const Request& request : requests) {
      const std::int64_t rows = *kept++;
      std::vector<std::pair<std::string, hami::Value>> result;
      for (std::size_t i = 0; i < request.parts.size(); ++i) {
        const Shape shape = i == 0 ? Shape{rows, 4} : Shape{rows};
        result.emplace_back(kKeys[i], device_tensor(memory, request.offsets[i], request.parts[i].dtype(), shape));
      }
      result.emplace_back("indices", device_tensor(memory, request.indices, kIndex, {rows}));
      request.item["result"] = hami::Value::dict(result);
    }
  }

  hami_cuda_nms job_{};
  Waiter waiter_;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::NmsTensor, "NmsTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; iou_threshold: float = 0.45 {0..1} 'a box that overlaps a better one of its class by more is removed'"
    "; score_threshold: float = 0.25 'boxes with this score or less are removed'"
    "; max_boxes: int = 300 {1..} 'maximum number of boxes of a request'",
    "Remove boxes that overlap better ones of the same class (non-maximum suppression).\n"
    "\n"
    "NmsTensor(iou_threshold=0.5)\n"
    "\n"
    "`data` is a dict of `boxes` (N x 4: x1, y1, x2, y2), `scores` (N) and optionally `classes` (N); without\n"
    "classes, all boxes are of one class. `result` is a dict of the rows that are kept, the best first, and of "
    "their\n"
    "`indices` (int64). The overlap is intersection over union. The CPU waits once for each batch.");
