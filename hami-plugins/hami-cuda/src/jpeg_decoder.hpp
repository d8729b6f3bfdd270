// JpegDecoder: decodes a batch of JPEG files in one call of nvJPEG, by the hardware of the GPU if it has it.
#pragma once

#include <string_view>
#include <vector>

#include "nvjpeg.hpp"

namespace hami_cuda {

// What nvJPEG reads from the header of a file. nvJPEG writes as many pixels as the header says.
struct JpegHeader {
  int width = 0;
  int height = 0;
  int orientation = 1;        // EXIF orientation, 1 to 8
  bool is_batchable = false;  // whether nvJPEG can decode the file in one call with others
};

// One file, and the planes into which it is decoded.
struct JpegFile {
  std::string_view encoded;
  JpegHeader header;
  CUdeviceptr planes = 0;
  bool is_decoded = false;
};

// The buffers of nvJPEG for the work of one call. The call returns before that work is done, and nvJPEG does not guard
// them: the next call with the same state would overwrite what the work still reads.
class JpegState {
 public:
  JpegState(const Device& device, NvjpegOwned<nvjpegState> state) : done_(device), state_(std::move(state)) {}

  // Blocks until the work of the last call is done.
  void wait() const {
    if (is_used_) done_.wait();
  }
  // Calls nvJPEG with the state, once the work of the last call is done.
  template <class Call>
  nvjpegStatus use(CUstream stream, const Call& call) {
    wait();
    is_used_ = true;
    const nvjpegStatus status = call(state_.get());
    done_.record(stream);
    return status;
  }

 private:
  Event done_;  // the work of the last call
  const NvjpegOwned<nvjpegState> state_;
  bool is_used_ = false;
};

// Decodes one batch at a time.
class JpegDecoder {
 public:
  JpegDecoder(const Nvjpeg& nvjpeg, const Device& device, unsigned flags);

  // False if nvJPEG cannot read the header.
  bool read_header(std::string_view encoded, JpegHeader& header);
  // Decodes files into their planes; sets `is_decoded` of those that nvJPEG can decode. The engines write when they are
  // called, before earlier work of the stream, so the stream must be idle.
  void decode(std::vector<JpegFile>& files, JpegColor color, Stream& stream);

 private:
  // Each file is decoded by the calls that decode it alone, so that its pixels do not depend on its neighbors.
  void decode_together(JpegFile* const* first, JpegFile* const* last, JpegColor color, CUstream stream);
  void decode_alone(JpegFile& file, JpegColor color, CUstream stream);
  nvjpegImage image_of(const JpegFile& file, JpegColor color) const;
  NvjpegOwned<nvjpegState> new_state() const;

  const Nvjpeg& nvjpeg_;
  const NvjpegApi& api_;
  const Device& device_;
  const NvjpegOwned<nvjpegHandle> handle_;
  const NvjpegOwned<nvjpegStream> parser_;
  // With one state for batches and single files, nvJPEG 13.0 occasionally failed with ALLOCATOR_FAILURE (decision
  // 0026).
  JpegState batch_state_;
  JpegState single_state_;  // a second one made lists of single files no faster (measured-once.md)
};

using JpegDecoders = JpegCoders<JpegDecoder>;

}  // namespace hami_cuda
