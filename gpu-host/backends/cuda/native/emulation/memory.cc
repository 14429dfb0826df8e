// Device and pinned memory. Every allocation starts as NaN, lies behind an inaccessible page, and ends at most 255 bytes before another such page.
// Freeing an allocation checks that the bytes between the allocation and these pages were not written.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include "internal.h"

namespace emulation {

namespace {

constexpr unsigned char UNSET = 0xff;
constexpr size_t ALIGNMENT = 256;  // Guaranteed by cudaMalloc.
constexpr size_t GRANULARITY = 512;

struct Piece {
  Memory memory;
  size_t bytes;
  unsigned char* mapping;
  size_t mappingBytes;
};

struct Pieces {
  std::mutex mutex;
  std::map<uintptr_t, Piece> all;
  size_t deviceBytes = 0, devicePieces = 0, pinnedPieces = 0;
};
Pieces& pieces() {
  static Pieces* one = new Pieces;
  return *one;
}

size_t roundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

cudaError_t allocate(void** pointer, size_t bytes, Memory memory) {
  if (!pointer) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  Pieces& all = pieces();
  std::lock_guard lock(all.mutex);
  const size_t total = device().memoryBytes;
  if (memory == Memory::Device && (bytes > total || all.deviceBytes + roundUp(bytes, GRANULARITY) > total)) return cudaErrorMemoryAllocation;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t usable = roundUp(bytes, ALIGNMENT), middle = roundUp(usable, page), whole = middle + 2 * page;
  void* mapping = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return cudaErrorMemoryAllocation;
  auto* first = static_cast<unsigned char*>(mapping);
  mprotect(first, page, PROT_NONE);
  mprotect(first + page + middle, page, PROT_NONE);
  std::memset(first + page, UNSET, middle);
  unsigned char* start = first + page + middle - usable;
  all.all[reinterpret_cast<uintptr_t>(start)] = {memory, bytes, first, whole};
  if (memory == Memory::Device) all.deviceBytes += roundUp(bytes, GRANULARITY), all.devicePieces++;
  else all.pinnedPieces++;
  *pointer = start;
  return cudaSuccess;
}

void checkSlack(const unsigned char* from, const unsigned char* to, const char* where, const Piece& piece) {
  for (const unsigned char* p = from; p < to; p++) {
    if (*p == UNSET) continue;
    char message[160];
    std::snprintf(message, sizeof message, "memory was written %s an allocation of %zu bytes (detected when it was freed)", where, piece.bytes);
    reportFault(message);
    return;
  }
}

cudaError_t release(void* pointer, Memory memory) {
  if (!pointer) return cudaSuccess;
  Pieces& all = pieces();
  std::lock_guard lock(all.mutex);
  const auto found = all.all.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.all.end() || found->second.memory != memory) return cudaErrorInvalidValue;
  const Piece piece = found->second;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto* start = static_cast<const unsigned char*>(pointer);
  checkSlack(piece.mapping + page, start, "before", piece);
  checkSlack(start + piece.bytes, piece.mapping + piece.mappingBytes - page, "past the end of", piece);
  munmap(piece.mapping, piece.mappingBytes);
  all.all.erase(found);
  if (memory == Memory::Device) all.deviceBytes -= roundUp(piece.bytes, GRANULARITY), all.devicePieces--;
  else all.pinnedPieces--;
  return cudaSuccess;
}

}  // namespace

Memory memoryAt(const void* pointer, size_t bytes, bool* whole) {
  Pieces& all = pieces();
  std::lock_guard lock(all.mutex);
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  auto found = all.all.upper_bound(at);
  *whole = false;
  if (found == all.all.begin()) return Memory::Unknown;
  --found;
  if (at >= found->first + found->second.bytes) return Memory::Unknown;
  *whole = bytes <= found->first + found->second.bytes - at;
  return found->second.memory;
}

size_t deviceBytes() {
  std::lock_guard lock(pieces().mutex);
  return pieces().deviceBytes;
}
size_t deviceAllocations() {
  std::lock_guard lock(pieces().mutex);
  return pieces().devicePieces;
}
size_t pinnedAllocations() {
  std::lock_guard lock(pieces().mutex);
  return pieces().pinnedPieces;
}

namespace {

// A validated copy: both ranges exist and match the given direction.
struct Copy {
  char* to;
  const char* from;
  size_t toPitch, fromPitch, width, height;
  bool pageable;  // One side is pageable host memory.
  bool download;

  void run() const {
    for (size_t row = 0; row < height; row++) std::memmove(to + row * toPitch, from + row * fromPitch, width);
  }
};

cudaError_t checked(Copy& copy, cudaMemcpyKind kind) {
  if (copy.width > copy.toPitch || copy.width > copy.fromPitch) return cudaErrorInvalidValue;
  bool toWhole, fromWhole;
  const Memory to = memoryAt(copy.to, copy.toPitch * (copy.height - 1) + copy.width, &toWhole);
  const Memory from = memoryAt(copy.from, copy.fromPitch * (copy.height - 1) + copy.width, &fromWhole);
  if ((to != Memory::Unknown && !toWhole) || (from != Memory::Unknown && !fromWhole)) return cudaErrorInvalidValue;
  const bool toDevice = to == Memory::Device, fromDevice = from == Memory::Device;
  if (kind != cudaMemcpyDefault) {
    if (toDevice != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)) return cudaErrorInvalidValue;
    if (fromDevice != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)) return cudaErrorInvalidValue;
  }
  copy.pageable = (to == Memory::Unknown) || (from == Memory::Unknown);
  copy.download = fromDevice && to == Memory::Unknown;
  return cudaSuccess;
}

cudaError_t start(Copy copy, cudaMemcpyKind kind, cudaStream_t stream, bool wait) {
  if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  if (const cudaError_t error = checked(copy, kind); error != cudaSuccess) return error;
  if (captureOf(stream)) {
    // The device reads host memory when the graph runs; pageable memory may be gone by then.
    if (copy.pageable) return cudaErrorStreamCaptureUnsupported;
    return enqueue(stream, {[copy] { copy.run(); }, nullptr});
  }
  std::shared_ptr<std::vector<char>> staged;
  if (copy.pageable && !copy.download) {
    // Pageable memory is read before the call returns.
    staged = std::make_shared<std::vector<char>>(copy.width * copy.height);
    for (size_t row = 0; row < copy.height; row++) std::memcpy(staged->data() + row * copy.width, copy.from + row * copy.fromPitch, copy.width);
    copy.from = staged->data();
    copy.fromPitch = copy.width;
  }
  if (const cudaError_t error = enqueue(stream, {[copy, staged] { copy.run(); }, nullptr}); error != cudaSuccess) return error;
  if (wait || copy.download) eventAfterAll(stream)->wait();
  return lost();
}

cudaError_t fill(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (!isStream(stream)) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  bool whole;
  if (memoryAt(to, bytes, &whole) != Memory::Device || !whole) return cudaErrorInvalidValue;
  return enqueue(stream, {[=] { std::memset(to, value, bytes); }, nullptr});
}

Copy plain(void* to, const void* from, size_t bytes) { return {static_cast<char*>(to), static_cast<const char*>(from), bytes, bytes, bytes, 1, false, false}; }

}  // namespace
}  // namespace emulation

using emulation::api;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return api("cudaMalloc", [&] {
    if (emulation::device().count == 0) return cudaErrorNoDevice;
    if (const cudaError_t error = emulation::forbiddenWhileCapturing(); error != cudaSuccess) return error;
    return emulation::allocate(pointer, bytes, emulation::Memory::Device);
  });
}
cudaError_t cudaFree(void* pointer) {
  return api("cudaFree", [&] {
    if (!pointer) return cudaSuccess;
    if (const cudaError_t error = emulation::forbiddenWhileCapturing(); error != cudaSuccess) return error;
    emulation::finishEverything();
    return emulation::release(pointer, emulation::Memory::Device);
  });
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return api("cudaHostAlloc", [&] {
    if (emulation::device().count == 0) return cudaErrorNoDevice;
    if (const cudaError_t error = emulation::forbiddenWhileCapturing(); error != cudaSuccess) return error;
    return emulation::allocate(pointer, bytes, emulation::Memory::Pinned);
  });
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void* pointer) {
  return api("cudaFreeHost", [&] {
    if (!pointer) return cudaSuccess;
    if (const cudaError_t error = emulation::forbiddenWhileCapturing(); error != cudaSuccess) return error;
    emulation::finishEverything();
    return emulation::release(pointer, emulation::Memory::Pinned);
  });
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api("cudaMemGetInfo", [&] {
    if (emulation::device().count == 0) return cudaErrorNoDevice;
    const size_t used = emulation::deviceBytes();
    *total = emulation::device().memoryBytes;
    *free = *total > used ? *total - used : 0;
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", [&] {
    if (const cudaError_t error = emulation::forbiddenWhileCapturing(); error != cudaSuccess) return error;
    return emulation::start(emulation::plain(to, from, bytes), kind, nullptr, true);
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpyAsync", [&] { return emulation::start(emulation::plain(to, from, bytes), kind, stream, false); });
}
cudaError_t cudaMemcpy2D(void* to, size_t toPitch, const void* from, size_t fromPitch, size_t width, size_t height, cudaMemcpyKind kind) {
  return api("cudaMemcpy2D", [&] {
    if (const cudaError_t error = emulation::forbiddenWhileCapturing(); error != cudaSuccess) return error;
    return emulation::start({static_cast<char*>(to), static_cast<const char*>(from), toPitch, fromPitch, width, height, false, false}, kind, nullptr, true);
  });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return api("cudaMemset", [&] {
    if (const cudaError_t error = emulation::forbiddenWhileCapturing(); error != cudaSuccess) return error;
    return emulation::fill(to, value, bytes, nullptr);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync", [&] { return emulation::fill(to, value, bytes, stream); });
}
