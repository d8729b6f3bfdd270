// Loads the library of a plugin: checks its file, and calls its entry.
#include "plugin/library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/plugin_call.hpp"

namespace hami {

// ---- Reads the ELF headers of a shared library: its architecture, and how long the file must be.

namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Section = ElfW(Shdr);

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
#else
constexpr unsigned kMachine = EM_NONE;  // the loader checks it
#endif

constexpr unsigned kBits = sizeof(void*) * 8;

class File {
 public:
  // Does not block if the path is that of a pipe.
  explicit File(const std::string& path) noexcept
      : descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  bool stat(struct stat& out) const noexcept { return descriptor_ >= 0 && ::fstat(descriptor_, &out) == 0; }
  bool read(void* out, std::size_t size, std::uint64_t offset) const noexcept {
    return ::pread(descriptor_, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  }

 private:
  const int descriptor_;
};

std::string machine_name(unsigned machine) {
  switch (machine) {
    case EM_386: return "i386";
    case EM_X86_64: return "x86_64";
    case EM_ARM: return "arm";
    case EM_AARCH64: return "aarch64";
    case EM_PPC64: return "ppc64";
    case EM_S390: return "s390x";
    case EM_RISCV: return "riscv";
    default: return "machine " + std::to_string(machine);
  }
}

std::string architecture(unsigned machine, unsigned bits) {
  return machine_name(machine) + ", " + std::to_string(bits) + " bits";
}

// The end of `count` records of `size` bytes from `offset`. The file is smaller than 2^63 bytes, so the cut changes no result.
std::uint64_t end_of(std::uint64_t offset, std::uint64_t count, std::uint64_t size) noexcept {
  const auto end = static_cast<unsigned __int128>(offset) + static_cast<unsigned __int128>(count) * size;
  return static_cast<std::uint64_t>(std::min<unsigned __int128>(end, INT64_MAX));
}

// The size that the file has at least, if it is whole. Reads only what is within `size`.
std::uint64_t required_size(const File& file, const Header& header, std::uint64_t size) {
  std::uint64_t required = end_of(header.e_phoff, header.e_phnum, header.e_phentsize);
  // Without a count in the header, the table has at least its first record. Some tools remove the whole table.
  if (header.e_shoff > 0)
    required = std::max(required, end_of(header.e_shoff, std::max<unsigned>(1, header.e_shnum), header.e_shentsize));
  if (required > size || header.e_phentsize != sizeof(Segment)) return required;
  std::vector<Segment> segments(header.e_phnum);
  if (!file.read(segments.data(), segments.size() * sizeof(Segment), header.e_phoff)) return required;
  for (const Segment& segment : segments)
    if (segment.p_type == PT_LOAD) required = std::max(required, end_of(segment.p_offset, 1, segment.p_filesz));
  return required;
}

}  // namespace

void check_elf_file(const std::string& path) {
  const auto reject = [&](const std::string& why) {
    throw Error(ErrorCode::kPlugin, in_quotes(path, 200) + " " + why);
  };
  const File file(path);
  struct stat status{};
  if (!file.stat(status)) return;
  if (!S_ISREG(status.st_mode)) reject("is not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  Header header;
  const bool complete = file.read(&header, sizeof header, 0);
  if (!complete) std::memset(&header, 0, sizeof header);
  if (!complete && !file.read(header.e_ident, std::min<std::uint64_t>(size, EI_NIDENT), 0)) return;
  if (std::memcmp(header.e_ident, ELFMAG, std::min<std::uint64_t>(size, SELFMAG)) != 0)
    reject("is not a shared library: it does not start as an ELF file");
  const auto truncated = [&](std::uint64_t required) {
    reject("is truncated: it has " + std::to_string(size) + " bytes, and its headers describe at least " +
           std::to_string(required) + "; install it again");
  };
  if (!complete) truncated(sizeof header);
  const unsigned bits = header.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
  if (bits != kBits || (kMachine != EM_NONE && header.e_machine != kMachine))
    reject("is built for another machine: " + architecture(header.e_machine, bits) + "; this process is " +
           architecture(kMachine, kBits) + ": install the plugin's wheel for this machine");
  if (header.e_type != ET_DYN) reject("is an ELF file, but not a shared library");
  if (const std::uint64_t required = required_size(file, header, size); required > size) truncated(required);
}

// ---- Loads the library of a plugin and calls its entry.

namespace {

std::string last_dl_error() {
  const char* text = dlerror();
  return text ? text : "the library cannot be loaded, and the system reports no reason";
}

}  // namespace

NativePlugin call_entry(hami_entry entry, const std::string& owner, const std::string& library) {
  hami_error* error = nullptr;
  take_first_release();  // of a plugin whose entry has failed
  const hami_plugin* plugin = call_plugin(HAMI_ENTRY_NAME, library.c_str(), [&] { return entry(fill_host, &error); });
  const bool is_incompatible = error && error->is_incompatible_abi;
  try {
    throw_if(error);
  } catch (const Error& failure) {
    if (is_incompatible) throw IncompatibleAbi(failure.message());
    throw Error(ErrorCode::kPlugin, failure.message());
  }
  if (!plugin) throw Error(ErrorCode::kPlugin, "its " HAMI_ENTRY_NAME " returned neither a plugin nor an error");
  NativePlugin read = read_plugin(*plugin, owner, library);
  read.since = take_first_release();
  return read;
}

NativePlugin load_library(const std::string& path, const std::string& owner) {
  check_elf_file(path);
  report_crashes();
  const std::string name = escape_invalid_utf8(path);
  void* library =
      // The program, the command line or an installed package named it: never a configuration.
      call_plugin("the initialisation", name.c_str(), [&] { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); });
  if (!library) throw Error(ErrorCode::kPlugin, escape_invalid_utf8(last_dl_error()));
  if (void* entry = dlsym(library, HAMI_ENTRY_NAME)) {
    record_plugin_code(entry, name, name);  // the entry may start threads
    // The type that the ABI gives to this symbol.
    NativePlugin plugin = call_entry(reinterpret_cast<hami_entry>(entry), owner, name);
    record_plugin_code(entry, name, "plugin " + plugin.name + " (" + name + ")");
    return plugin;
  }
  for (int major = 2; major <= 9; ++major)
    if (dlsym(library, ("hami_plugin_v" + std::to_string(major)).c_str()))
      throw IncompatibleAbi("needs hami ABI " + std::to_string(major) + ".0; hami-core " HAMI_VERSION " serves " +
                            served_abi() + ": pip install -U hami-core");
  throw Error(ErrorCode::kPlugin,
              in_quotes(path, 200) + " does not export " HAMI_ENTRY_NAME ", so it is not a HAMi plugin");
}

}  // namespace hami
