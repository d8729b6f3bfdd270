#include "memory.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

// glibc 2.17 has no memfd_create, and old headers have no number for it.
#ifndef SYS_memfd_create
#if defined(__x86_64__)
#define SYS_memfd_create 319
#elif defined(__aarch64__)
#define SYS_memfd_create 279
#endif
#endif

namespace hami_process {
namespace {

constexpr unsigned kCloseOnExec = 1;  // MFD_CLOEXEC

std::int32_t open_memfd() noexcept {
#ifdef SYS_memfd_create
  return static_cast<std::int32_t>(syscall(SYS_memfd_create, "hami-process", kCloseOnExec));
#else
  errno = ENOSYS;
  return -1;
#endif
}

std::int32_t open_nameless(const char* folder) noexcept {
  std::string name = std::string(folder) + "/hami-process-XXXXXX";
  const std::int32_t descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0) unlink(name.c_str());
  return descriptor;
}

}  // namespace

std::int32_t create_memory(std::uint64_t size, bool without_memfd, const char* folder) noexcept {
  std::int32_t descriptor = without_memfd ? -1 : open_memfd();
  const bool is_forbidden = descriptor < 0 && (without_memfd || errno == ENOSYS || errno == EPERM || errno == EACCES);
  if (is_forbidden) descriptor = open_nameless(folder);
  if (descriptor < 0) return -errno;
  // Without its pages, a write would end the process with SIGBUS when the memory of the file system is used up.
  int failed = 0;
  do {
    failed = posix_fallocate(descriptor, 0, static_cast<off_t>(size));
  } while (failed == EINTR);
  if (failed) {
    close(descriptor);
    return -failed;
  }
  return descriptor;
}

void* map_memory(std::int32_t descriptor, std::uint64_t size) noexcept {
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void unmap_memory(void* address, std::uint64_t size) noexcept { munmap(address, size); }

}  // namespace hami_process
