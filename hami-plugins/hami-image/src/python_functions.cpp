// Functions for backends in Python.
#include "image_header.hpp"
#include "images.hpp"

namespace hami_image {
namespace {

// In the order of hami_image/_native.py.
struct PythonFunctions {
  // Fills `header`, and returns the format of a file.
  std::int32_t (*read_header)(const std::uint8_t* data, std::uint64_t size, std::uint64_t max_scans,
                              FileHeader* header);
};

constexpr PythonFunctions kFunctions = {
    [](const std::uint8_t* data, std::uint64_t size, std::uint64_t max_scans, FileHeader* header) {
  return static_cast<std::int32_t>(read_header(data, size, max_scans, *header));
},
};

}  // namespace
}  // namespace hami_image

HAMI_REGISTER(hami::FunctionTable<hami_image::kFunctions>, "ImageFunctions", "",
              "Return the address of the table of functions that DecodeMat calls.");
