#include "mapped.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace pie {

namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& what) { throw EngineError("invalid", file + ": " + what); }

}  // namespace

MappedTensors::MappedTensors(const std::vector<TensorPlace>& places) {
  try {
    for (const TensorPlace& place : places) {
      const File& file = map(place.file);
      const size_t width = place.type == HostTensor::Type::F32 ? 4 : 2;
      if (place.offset > file.bytes || place.count > (file.bytes - place.offset) / width)
        refuse(place.file, "the file ends within \"" + place.name + "\"");
      tensors_[place.name] = {place.type, static_cast<const char*>(file.data) + place.offset, place.count};
    }
  } catch (...) {
    unmapAll();
    throw;
  }
}

MappedTensors::~MappedTensors() { unmapAll(); }

HostTensor MappedTensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw EngineError("invalid", "the weights lack \"" + name + "\"");
  return found->second;
}

const MappedTensors::File& MappedTensors::map(const std::string& file) {
  const auto known = files_.find(file);
  if (known != files_.end()) return known->second;
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse(file, std::strerror(errno));
  struct stat status {};
  if (fstat(descriptor, &status) == 0 && !S_ISREG(status.st_mode)) {
    close(descriptor);
    refuse(file, "the file is not a regular one");
  }
  const bool sized = fstat(descriptor, &status) == 0 && status.st_size > 0;
  void* data = sized ? mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  const int error = errno;
  close(descriptor);
  if (data == MAP_FAILED) refuse(file, sized ? std::strerror(error) : "the file is empty");
  // The engine reads the tensors once, from first to last.
  madvise(data, size_t(status.st_size), MADV_SEQUENTIAL);
  return files_.emplace(file, File{data, size_t(status.st_size)}).first->second;
}

void MappedTensors::unmapAll() {
  for (const auto& [name, file] : files_) munmap(file.data, file.bytes);
  files_.clear();
}

}  // namespace pie
