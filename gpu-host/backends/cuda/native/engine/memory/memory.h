// Owning memory blocks on the device and the host, and the layout of arrays in them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include "../../device/device.h"

namespace pie {

// Rounds up to the alignment of arrays in a block.
constexpr size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Lays out arrays one after another. With a null base it only computes the size, so that the same code gives sizes and addresses.
class Carver {
 public:
  explicit Carver(void* base = nullptr) : base_(static_cast<uint8_t*>(base)) {}
  template <typename T>
  T* take(size_t count) {
    T* array = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += aligned(count * sizeof(T));
    return array;
  }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* base_;
  size_t bytes_ = 0;
};

// Bytes that a device block occupies: the device allocates in units of 512.
constexpr size_t blockBytes(size_t bytes) { return (bytes + 511) / 512 * 512; }

// Device memory. The constructor throws EngineError "out-of-memory", which leaves the device unchanged.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(size_t bytes, const char* what);
  DeviceBlock(DeviceBlock&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBlock();
  void* get() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Pinned host memory, which the device's copy engines can access.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  explicit PinnedBlock(size_t bytes);
  PinnedBlock(PinnedBlock&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBlock();
  uint8_t* get() const { return static_cast<uint8_t*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace pie
