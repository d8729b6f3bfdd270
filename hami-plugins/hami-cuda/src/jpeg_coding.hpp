// How the pixels of a JPEG file are coded, read from its header: nvJPEG takes every file of three components for YCbCr,
// and leaves the missing part of a file as the memory was.
#pragma once

#include <string_view>

namespace hami_cuda {

// Why nvJPEG must not decode a file: a phrase about the file, such as "whose components are red, green and blue".
// Empty: nvJPEG decodes such files as libjpeg does, or the header cannot be read, and nvJPEG decides.
std::string_view reason_against_nvjpeg(std::string_view encoded);

// The file up to the data of its first scan, if that scan has all components: all that a reader of the header needs. Otherwise the
// whole file.
std::string_view header_of(std::string_view encoded);

// Whether libjpeg repeats the chroma of a file even where it interpolates that of others: it is too narrow.
bool is_too_narrow_to_interpolate(std::string_view encoded);

}  // namespace hami_cuda
