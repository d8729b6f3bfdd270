// RestoreBoxes: boxes of a letter-boxed image as boxes of the picture.
#include <algorithm>

#include "tensors.hpp"

namespace hami_tensor {
namespace {

constexpr std::string_view kBoxes = "boxes";

// The key `letter_box` of a request: where the picture is in the image, and its size if it is known.
struct Place {
  double scale = 0;
  double start[2] = {0, 0};    // left and top
  double limit[2] = {-1, -1};  // width and height of the picture; below 0: not known

  double restored(double value, std::size_t axis) const {
    const double moved = (value - start[axis]) / scale;
    if (limit[axis] < 0) return moved;
    return moved < 0 ? 0 : moved > limit[axis] ? limit[axis] : moved;  // NaN stays
  }
};

class RestoreBoxes final : public TensorBackend {
 private:
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      try {
        item[kResult] = restored(item);
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
  }

  hami::Value restored(const hami::Dict& item) const {
    const Place place = place_of(item);
    const std::optional<hami::Value> data = item.find(kData);
    if (!data) throw hami::Error(HAMI_REQUEST, "the request has no `data`; " + name() + " takes boxes");
    if (data->kind() != HAMI_DICT) return restored(*data, place);
    auto entries = data->as_dict();
    const auto boxes =
        std::find_if(entries.begin(), entries.end(), [](const auto& each) { return each.first == kBoxes; });
    if (boxes == entries.end()) refuse("a dict without " + in_quotes(kBoxes));
    boxes->second = restored(boxes->second, place);
    return hami::Value::dict(entries);
  }

  hami::Tensor restored(const hami::Value& value, const Place& place) const {
    const TensorItems given = read_tensors(value, name());
    if (given.form != HAMI_TENSOR) refuse(given.show_form());  // such a form may have no tensors
    const hami::Tensor boxes = contiguous(given.tensors.front());
    if (!is_float(boxes.dtype()) || boxes.rank() < 1 || boxes.shape().back() != 4) refuse(show_tensor(boxes));
    const DLDataType type = hami::same_dtype(boxes.dtype(), hami::kFloat64) ? hami::kFloat64 : hami::kFloat32;
    const hami::Tensor made = hami::Tensor::make(type, boxes.shape());
    hami::with_element(boxes.dtype(), [&](auto from) {
      hami::with_element(type, [&](auto to) {
        using From = decltype(from);
        using To = decltype(to);
        for (std::size_t i = 0; i < boxes.count(); ++i)
          To::store(data_of(made) + i * hami::item_size(To::kType),
                    static_cast<typename To::number>(place.restored(
                        static_cast<double>(From::load(data_of(boxes) + i * hami::item_size(From::kType))), i % 2)));
      });
    });
    return made;
  }

  [[noreturn]] void refuse(const std::string& given) const {
    throw hami::Error(HAMI_DATA_TYPE,
                      name() + " takes boxes of floating-point numbers, … x 4, or a dict with \"boxes\"; got " + given);
  }

  Place place_of(const hami::Dict& item) const {
    const std::optional<hami::Value> box = item.find("letter_box");
    Place place;
    if (box && box->kind() == HAMI_DICT)
      for (const auto& [key, value] : box->as_dict()) {
        double* const number = key == "scale"          ? &place.scale
                               : key == "left"         ? &place.start[0]
                               : key == "top"          ? &place.start[1]
                               : key == "image_width"  ? &place.limit[0]
                               : key == "image_height" ? &place.limit[1]
                                                       : nullptr;
        if (number && value.kind() == HAMI_INT) *number = static_cast<double>(value.as_int());
        if (number && value.kind() == HAMI_FLOAT) *number = value.as_float();
      }
    if (!(place.scale > 0))
      throw hami::Error(HAMI_REQUEST, name() +
                                          " needs the key \"letter_box\", a dict with a \"scale\" above 0; put "
                                          "LetterBoxMat before the model");
    return place;
  }
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(
    hami_tensor::RestoreBoxes, "RestoreBoxes", "",
    "Map boxes of a letter-boxed image back to the picture, and clip them to it.\n"
    "`data` is a tensor of boxes (… x 4: x1, y1, x2, y2) or a dict with one as `boxes`, such as the result of\n"
    "NmsTensor; the other entries stay as they are. The request's key `letter_box` is that of LetterBoxMat.\n"
    "The result is float32, or float64 for boxes of float64.");
