// Resizes images of uint8 exactly as cv2.resize does with INTER_LINEAR, and hands over the rows of the result one by one.
#pragma once

#include "images.hpp"
#include "tensor_steps.hpp"

namespace hami_image {

// Whether `resize_linear` resizes the image to that size. OpenCV averages blocks of 2 x 2 pixels for exactly half the size,
// and its indices are 32-bit integers.
bool resizes_linearly(const Image& image, std::int64_t height, std::int64_t width);

// Resizes a plain image to another size, of which `writer` writes the rows.
void resize_linear(const Image& image, std::int64_t height, std::int64_t width, PlaneWriter& writer);

}  // namespace hami_image
