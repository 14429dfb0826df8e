#include "fixture.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstring>
#include <stdexcept>

namespace pie::harness {

namespace {

constexpr char MAGIC[] = "PIEFIX02";
enum Flag : uint32_t { States = 1, TokensOnly = 2, Attention = 4, Allowed = 8, Draws = 16 };
enum Output : uint32_t { OutputNone = 0, OutputStates = 1, OutputTop = 2 };

class Reader {
 public:
  Reader(const MappedFile& file, const std::string& path) : file(file), path(path) {}

  bool atEnd() const { return at == file.size; }
  uint32_t word() { return take<uint32_t>(); }
  int integer() { return static_cast<int>(word()); }
  float real() { return take<float>(); }

  std::string string() {
    const std::vector<uint8_t> raw = bytes();
    return std::string(raw.begin(), raw.end());
  }
  std::vector<uint8_t> bytes() {
    const size_t count = word();
    const uint8_t* from = skip((count + 3) / 4 * 4);
    return std::vector<uint8_t>(from, from + count);
  }
  template <typename T>
  std::vector<T> array() {
    const size_t count = word();
    const uint8_t* from = skip(count * sizeof(T));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), from, count * sizeof(T));
    return values;
  }

  const uint8_t* skip(size_t count) {
    if (count > file.size - at) throw std::runtime_error(path + " is truncated");
    at += count;
    return file.data + at - count;
  }

 private:
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, skip(sizeof value), sizeof value);
    return value;
  }

  const MappedFile& file;
  const std::string& path;
  size_t at = 0;
};

FixtureSequence readSequence(Reader& in) {
  FixtureSequence sequence;
  sequence.adapter = in.integer();
  sequence.rows = in.word();
  if (in.word() == 0) {
    sequence.tokens = in.array<uint32_t>();
  } else {
    sequence.embeds = in.array<float>();
  }
  sequence.positions = in.array<uint32_t>();
  sequence.context = in.array<uint32_t>();
  sequence.mask = in.bytes();
  sequence.writes = in.array<uint32_t>();
  sequence.wantsTop = in.word() == OutputTop;
  sequence.outputRows = in.word();
  sequence.topK = in.word();
  const uint32_t flags = in.word();
  sequence.wantsStates = flags & States;
  sequence.tokensOnly = flags & TokensOnly;
  sequence.wantsAttention = flags & Attention;
  if (flags & Allowed) sequence.allowed = in.array<uint32_t>();
  if (flags & Draws) {
    for (uint32_t i = 0; i < sequence.outputRows; i++) {
      Draw draw;
      draw.temperature = in.real();
      draw.topP = in.real();
      draw.minP = in.real();
      draw.seed = in.word();
      draw.position = in.word();
      sequence.draws.push_back(draw);
    }
  }
  if (sequence.wantsStates) sequence.states = in.array<float>();
  if (sequence.wantsTop) sequence.logProbabilities = in.array<float>();
  if (sequence.wantsAttention) sequence.attention = in.array<float>();
  return sequence;
}

Operation readOperation(Reader& in, const std::string& path) {
  Operation operation;
  operation.kind = static_cast<OperationKind>(in.word());
  switch (operation.kind) {
    case OperationKind::Case:
      operation.label = in.string();
      return operation;
    case OperationKind::Forward: {
      const uint32_t count = in.word();
      for (uint32_t i = 0; i < count; i++) operation.sequences.push_back(readSequence(in));
      return operation;
    }
    case OperationKind::Copy:
      operation.sources = in.array<uint32_t>();
      operation.destinations = in.array<uint32_t>();
      operation.shifts = in.array<int32_t>();
      return operation;
    case OperationKind::ReadPage:
    case OperationKind::WritePage:
      operation.page = in.word();
      operation.handle = in.integer();
      return operation;
    case OperationKind::Project:
      operation.count = in.word();
      operation.topK = in.word();
      operation.states = in.array<float>();
      operation.logProbabilities = in.array<float>();
      return operation;
    case OperationKind::Score:
      operation.count = in.word();
      operation.states = in.array<float>();
      for (uint32_t i = 0; i < operation.count; i++) {
        operation.first.push_back(static_cast<int>(operation.tokens.size()));
        for (const uint32_t token : in.array<uint32_t>()) operation.tokens.push_back(token);
        for (const float value : in.array<float>()) operation.logProbabilities.push_back(value);
      }
      operation.first.push_back(static_cast<int>(operation.tokens.size()));
      operation.entropies = in.array<float>();
      return operation;
    case OperationKind::Greedy:
      operation.prompt = in.array<uint32_t>();
      operation.tokens = in.array<uint32_t>();
      operation.margins = in.array<float>();
      return operation;
  }
  throw std::runtime_error(path + " contains an unknown operation");
}

std::vector<FixtureAdapterMatrices> readAdapter(Reader& in) {
  std::vector<FixtureAdapterMatrices> matrices(in.word());
  for (FixtureAdapterMatrices& each : matrices) {
    each.layer = in.integer();
    each.projection = in.string();
    each.rank = in.integer();
    each.a = in.array<float>();
    each.b = in.array<float>();
  }
  return matrices;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    if (fd >= 0) close(fd);
    throw std::runtime_error(path + " cannot be read");
  }
  size = static_cast<size_t>(info.st_size);
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) throw std::runtime_error(path + " cannot be mapped");
  data = static_cast<const uint8_t*>(mapped);
}

MappedFile::~MappedFile() { munmap(const_cast<uint8_t*>(data), size); }

Fixture Fixture::read(const std::string& path) {
  const MappedFile mapped(path);
  Reader in(mapped, path);
  if (std::memcmp(in.skip(8), MAGIC, 8) != 0) throw std::runtime_error(path + " is not a fixture");
  Fixture fixture;
  fixture.label = in.string();
  EngineOptions& options = fixture.options;
  ModelShape& shape = options.shape;
  for (int* field : {&shape.hidden, &shape.intermediate, &shape.layers, &shape.heads, &shape.kvHeads, &shape.headDim, &shape.vocabulary})
    *field = in.integer();
  shape.rmsEpsilon = in.real();
  options.tiedEmbeddings = in.word() != 0;
  options.attentionBias = in.word() != 0;
  options.queryKeyNorm = in.word() != 0;
  options.pageSize = in.integer();
  options.pageCount = in.integer();
  options.frequencies = in.array<double>();

  fixture.file = std::make_shared<MappedFile>(path.substr(0, path.find_last_of('/') + 1) + in.string());
  auto tensors = std::make_shared<std::unordered_map<std::string, HostTensor>>();
  const uint32_t tensorCount = in.word();
  for (uint32_t i = 0; i < tensorCount; i++) {
    const std::string name = in.string();
    const auto type = static_cast<HostTensor::Type>(in.word());
    const size_t offset = in.word();
    const size_t count = in.word();
    const size_t bytes = count * (type == HostTensor::Type::F32 ? 4 : 2);
    if (offset + bytes > fixture.file->size) throw std::runtime_error(path + ": the weights of " + name + " lie outside of the file");
    tensors->emplace(name, HostTensor{type, fixture.file->data + offset, count});
  }
  fixture.weights = [file = fixture.file, tensors](const std::string& name) { return tensors->at(name); };

  const uint32_t adapterCount = in.word();
  for (uint32_t i = 0; i < adapterCount; i++) fixture.adapters.push_back(readAdapter(in));
  while (!in.atEnd()) fixture.operations.push_back(readOperation(in, path));
  return fixture;
}

}  // namespace pie::harness
