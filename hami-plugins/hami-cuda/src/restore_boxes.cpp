// RestoreBoxes: boxes of a letter-boxed image as boxes of the picture, for a whole batch with one launch.
#include <algorithm>

#include "cuda_backend.hpp"

namespace hami_cuda {
namespace {

class RestoreBoxes final : public CudaBackend {
 public:
  static constexpr hami::Range kRange = kAnyNumber;
  static constexpr const char* kForDevice = "cuda";

  RestoreBoxes() : CudaBackend("RestoreBoxes") {}

 private:
  struct Request {
    hami::Dict item;
    std::vector<std::pair<std::string, hami::Value>> entries;  // of a dict
    hami_cuda_corners corners{};
    std::size_t offset = 0;
  };

  void run(hami::Batch batch) override {
    std::vector<Request> requests;
    std::vector<hami::Tensor> boxes;
    Layout layout;
    for_each(batch, [&](const hami::Dict& item) {
      Request request{item, {}, letter_box_of(item), 0};
      boxes.push_back(boxes_of(item, request.entries));
      const hami_cuda_number type = *number_of(boxes.back().dtype());
      request.corners.from_type = type;
      request.corners.to_type = type == HAMI_CUDA_FLOAT64 ? HAMI_CUDA_FLOAT64 : HAMI_CUDA_FLOAT32;
      request.corners.count = static_cast<long long>(boxes.back().count());
      request.offset = layout.add(boxes.back().count() * item_size(type_of(request)));
      requests.push_back(std::move(request));
    });
    if (requests.empty()) return;
    make_contiguous(boxes);
    const std::shared_ptr<Memory> memory = allocate(layout.size());
    std::vector<hami_cuda_corners> described;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].corners.from = boxes[i].view().data;
      requests[i].corners.to = reinterpret_cast<void*>(memory->start() + requests[i].offset);
      described.push_back(requests[i].corners);
    }
    device().kernels().restore(*stream(), described);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      const hami::Tensor result = device_tensor(memory, request.offset, type_of(request), boxes[i].shape());
      for (auto& [key, value] : request.entries)
        if (key == "boxes") value = result;
      request.item["result"] = request.entries.empty() ? hami::Value(result) : hami::Value::dict(request.entries);
    }
  }

  static DLDataType type_of(const Request& request) {
    return {kDLFloat, static_cast<std::uint8_t>(request.corners.to_type == HAMI_CUDA_FLOAT64 ? 64 : 32), 1};
  }

  hami::Tensor boxes_of(const hami::Dict& item, std::vector<std::pair<std::string, hami::Value>>& entries) {
    hami::Value found = data_of(item, name());
    if (found.kind() == HAMI_DICT) {
      entries = found.as_dict();
      const auto boxes =
          std::find_if(entries.begin(), entries.end(), [](const auto& entry) { return entry.first == "boxes"; });
      if (boxes == entries.end()) refuse("a dict without \"boxes\"");
      found = boxes->second;
    }
    hami::Tensor boxes = tensor(found);
    const std::optional<hami_cuda_number> type = number_of(boxes.dtype());
    if (!type || *type < HAMI_CUDA_FLOAT16 || boxes.rank() < 1 || boxes.view().shape[boxes.rank() - 1] != 4)
      refuse(show(boxes));
    return boxes;
  }

  [[noreturn]] void refuse(const std::string& given) const {
    throw hami::Error(
        HAMI_DATA_TYPE,
        name() + " takes boxes of floating-point numbers on the device, … x 4, or a dict with \"boxes\"; got " + given);
  }

  // The key `letter_box` of a request.
  hami_cuda_corners letter_box_of(const hami::Dict& item) const {
    const std::optional<hami::Value> box = item.find("letter_box");
    hami_cuda_corners corners{};
    corners.limit[0] = corners.limit[1] = -1;
    if (box && box->kind() == HAMI_DICT)
      for (const auto& [key, value] : box->as_dict()) {
        double* const number = key == "scale"          ? &corners.scale
                               : key == "left"         ? &corners.start[0]
                               : key == "top"          ? &corners.start[1]
                               : key == "image_width"  ? &corners.limit[0]
                               : key == "image_height" ? &corners.limit[1]
                                                       : nullptr;
        if (number && value.kind() == HAMI_INT) *number = static_cast<double>(value.as_int());
        if (number && value.kind() == HAMI_FLOAT) *number = value.as_float();
      }
    if (!(corners.scale > 0))
      throw hami::Error(HAMI_REQUEST, name() +
                                          " needs the key \"letter_box\", a dict with a \"scale\" above 0; put "
                                          "LetterBoxTensor before the model");
    return corners;
  }
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::RestoreBoxes, "RestoreBoxes",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'",
    "Map boxes of a letter-boxed image back to the picture, and clip them to it.\n"
    "\n"
    "S[NmsTensor,RestoreBoxes]\n"
    "\n"
    "`data` is a tensor of boxes (… x 4: x1, y1, x2, y2) or a dict with one as `boxes`, such as the result of\n"
    "NmsTensor; the other entries stay as they are. The request's key `letter_box` is that of LetterBoxTensor.\n"
    "The result is float32, or float64 for boxes of float64.");
