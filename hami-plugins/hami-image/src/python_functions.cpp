// Functions for backends in Python, which call them with ctypes. The backend ImageFunctions gives the address of their table.
#include "image_header.hpp"
#include "images.hpp"

namespace hami_image {
namespace {

// The table, whose layout hami_image/_native.py repeats.
struct PythonFunctions {
  // Fills `header`, and returns the format of a file.
  std::int32_t (*read_header)(const std::uint8_t* data, std::uint64_t size, std::uint64_t max_scans,
                              FileHeader* header);
};

const PythonFunctions kFunctions = {
    [](const std::uint8_t* data, std::uint64_t size, std::uint64_t max_scans, FileHeader* header) {
  return static_cast<std::int32_t>(read_header(data, size, max_scans, *header));
},
};

class ImageFunctions final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = hami_image::kFlags;
  static constexpr hami::Range kRange{1, 1};

 private:
  void forward_(hami::Batch batch) override {
    for (const hami::Dict& item : batch)
      item[kResult] = hami::Value(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&kFunctions)));
  }
};

}  // namespace
}  // namespace hami_image

HAMI_REGISTER(hami_image::ImageFunctions, "ImageFunctions", "",
              "Return the address of the table of functions that DecodeMat calls.");
