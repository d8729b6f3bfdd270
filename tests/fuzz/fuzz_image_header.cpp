// libFuzzer target: reads any bytes as the header of an image file, as DecodeMat of hami-image does before it decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "image_header.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::uint8_t> file(data, data + size);  // its end is the end of its memory
  hami_image::FileHeader header;
  const hami_image::FileFormat format = hami_image::read_header(file.data(), file.size(), 50, header);
  require(format != hami_image::kOtherFormat || !header.is_complete);
  if (!header.is_complete) return 0;
  require(header.data_end <= size);
  require(header.image_begin <= header.image_end && header.image_end <= size);
  require(header.patch_count >= 0 && header.patch_count <= static_cast<int>(hami_image::kMaxPatches));
  for (int i = 0; i < header.patch_count; ++i) require(header.patches[i].begin < size);
  return 0;
}
