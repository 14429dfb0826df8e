#include "random_weights.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include "../engine/memory/convert.h"

namespace pie::harness {

namespace {

constexpr size_t BLOCK_VALUES = size_t{1} << 20;
constexpr uint16_t ONE = 0x3f80;  // 1 as bf16.

uint64_t nextBits(uint64_t& state) {
  // SplitMix64 (Steele, Lea and Flood, 2014).
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double uniform(uint64_t& state) { return static_cast<double>(nextBits(state) >> 11) * 0x1p-53; }

size_t mostValues(const NamedShape& named) {
  const ModelShape& shape = named.shape;
  size_t most = 0;
  for (const int rows : {shape.vocabulary, shape.intermediate, shape.queryWidth()}) most = std::max(most, static_cast<size_t>(rows) * shape.hidden);
  return most;
}

size_t tensorValues(const NamedShape& named, const std::string& name) {
  const ModelShape& shape = named.shape;
  const auto ends = [&](const char* ending) {
    const size_t length = std::strlen(ending);
    return name.size() >= length && name.compare(name.size() - length, length, ending) == 0;
  };
  const size_t hidden = static_cast<size_t>(shape.hidden);
  if (ends("norm.weight")) return hidden;
  if (ends("q_proj.weight") || ends("o_proj.weight")) return hidden * shape.queryWidth();
  if (ends("k_proj.weight") || ends("v_proj.weight")) return hidden * shape.kvWidth();
  if (ends("gate_proj.weight") || ends("up_proj.weight") || ends("down_proj.weight")) return hidden * shape.intermediate;
  if (ends("embed_tokens.weight") || ends("lm_head.weight")) return hidden * shape.vocabulary;
  throw std::invalid_argument("there is no random tensor named " + name);
}

}  // namespace

std::vector<uint16_t> randomBlock(size_t count, float deviation, uint64_t seed) {
  const size_t fresh = std::min(count, BLOCK_VALUES);
  std::vector<float> values(fresh + 1);
  uint64_t state = seed;
  for (size_t i = 0; i < fresh; i += 2) {
    // Box and Muller, 1958.
    const double radius = deviation * std::sqrt(-2 * std::log(1 - uniform(state))), angle = 6.283185307179586 * uniform(state);
    values[i] = static_cast<float>(radius * std::cos(angle));
    values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  std::vector<uint16_t> words(count);
  convertNumbers(reinterpret_cast<bf16*>(words.data()), HostTensor::Type::F32, values.data(), fresh);
  for (size_t done = fresh; done < count; done += fresh) std::memcpy(&words[done], words.data(), 2 * std::min(fresh, count - done));
  return words;
}

WeightSource randomWeights(const NamedShape& named) {
  auto block = std::make_shared<std::vector<uint16_t>>(randomBlock(mostValues(named), 1.0f / std::sqrt(static_cast<float>(named.shape.hidden)), 7));
  auto ones = std::make_shared<std::vector<uint16_t>>(named.shape.hidden, ONE);
  return [named, block, ones](const std::string& name) {
    const bool norm = name.find("norm.weight") != std::string::npos;
    return HostTensor{HostTensor::Type::BF16, norm ? ones->data() : block->data(), tensorValues(named, name)};
  };
}

std::vector<uint8_t> randomFloat8Slots(const ModelShape& shape, size_t slots) {
  constexpr uint64_t SMALL = 0xbfbfbfbfbfbfbfbfu;  // Clears the highest exponent bit of eight codes.
  constexpr uint8_t ONE_AS_HALF[] = {0x00, 0x3c};
  const KvLayer<float8> layer = kvLayer<float8>(nullptr, shape);
  std::vector<uint8_t> bytes(slots * layer.slotWidth);
  uint64_t state = 13;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t codes = nextBits(state) & SMALL;
    std::memcpy(&bytes[i], &codes, 8);
  }
  for (size_t slot = 0; slot < slots; slot++)
    for (int scale = 0; scale < 2 * shape.kvHeads; scale++) std::memcpy(&bytes[slot * layer.slotWidth + layer.scales + 2 * scale], ONE_AS_HALF, 2);
  return bytes;
}

void fillRandom(const DeviceBytes& memory, float deviation, uint64_t seed) {
  const std::vector<uint16_t> block = randomBlock(std::min(memory.bytes / 2, BLOCK_VALUES), deviation, seed);
  const size_t bytes = 2 * block.size();
  // Doubles the filled part on the device, so that the host sends only one block.
  checkCuda(cudaMemcpy(memory.as<void>(), block.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  for (size_t done = bytes; done < memory.bytes;) {
    const size_t more = std::min(done, memory.bytes - done);
    checkCuda(cudaMemcpy(memory.as<void>(done), memory.as<void>(), more, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    done += more;
  }
  checkCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace pie::harness
