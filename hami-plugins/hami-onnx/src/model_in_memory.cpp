// Maps a file copy-on-write: the file is not written, and pages without a replaced length are not copied.
#include "model_in_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "error.hpp"

namespace hami_onnx {
namespace {

constexpr char kFixedOne[] = {0x08, 0x01};  // field 1 of the message Dimension, its length, is 1
constexpr char kFree[] = {0x1a, 0x00};      // field 3, its denotation, is empty: a dimension without a length

[[noreturn]] void changed(const std::string& path) {
  fail(HAMI_FAILED_PRECONDITION, "\"" + path + "\" was changed while it was opened; open it again");
}

}  // namespace

ModelInMemory::ModelInMemory(const std::string& path, const std::vector<std::string>& freed) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
    size_ = static_cast<std::size_t>(status.st_size);
    data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (data_ == MAP_FAILED) data_ = nullptr;
  }
  if (file >= 0) close(file);
  if (!data_) changed(path);
  for (const std::string& text : freed) {
    const std::size_t at = std::strtoull(text.c_str(), nullptr, 10);
    char* const length = static_cast<char*>(data_) + at;
    if (at > size_ - sizeof(kFixedOne) || size_ < sizeof(kFixedOne) ||
        std::memcmp(length, kFixedOne, sizeof(kFixedOne)) != 0) {
      munmap(data_, size_);
      changed(path);
    }
    std::memcpy(length, kFree, sizeof(kFree));
  }
}

ModelInMemory::~ModelInMemory() { munmap(data_, size_); }

}  // namespace hami_onnx
