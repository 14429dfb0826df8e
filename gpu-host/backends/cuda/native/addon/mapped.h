// Maps the weight files; the engine reads them once, then they are unmapped.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "../engine/engine.h"

namespace pie {

// Location of one tensor: `count` values of `type` from byte `offset` of a file.
struct TensorPlace {
  std::string name;
  std::string file;
  size_t offset;
  size_t count;
  HostTensor::Type type;
};

class MappedTensors {
 public:
  // Throws EngineError "invalid" if a file cannot be mapped or ends before a tensor does.
  explicit MappedTensors(const std::vector<TensorPlace>& places);
  ~MappedTensors();
  MappedTensors(const MappedTensors&) = delete;
  MappedTensors& operator=(const MappedTensors&) = delete;

  // Throws EngineError "invalid" for an unknown name.
  HostTensor find(const std::string& name) const;

 private:
  struct File {
    void* data;
    size_t bytes;
  };
  const File& map(const std::string& file);
  void unmapAll();

  std::map<std::string, File> files_;
  std::map<std::string, HostTensor> tensors_;
};

}  // namespace pie
