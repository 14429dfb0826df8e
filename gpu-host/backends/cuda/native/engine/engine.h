// One model on one card: weights, the pool of KV slots, steps. No Node in here: the addon and the harness both drive it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "../kernels/head.h"
#include "../kernels/types.h"

namespace pie {

// `code`: "no-device"; "out-of-memory" (at start, the message says how many pages fit; or of an adapter, a pinned block); "invalid" (arguments, nothing
// was started); "cuda" (the device is lost for this process, and so is the engine: every later call throws it again). Messages of "cuda" name the step,
// the call and the driver's words.
struct EngineError : std::runtime_error {
  EngineError(std::string code, const std::string& message) : std::runtime_error(message), code(std::move(code)) {}
  std::string code;
};

// Of weights, activations and KV. Int8, Fp8, Int4: as Bf16, but for the matrices of products, which are rounded to bf16, then to whole numbers of 8 bits or to
// e4m3 by their rows' largest value, or to whole numbers of 4 bits by the largest of each group of inputs (linear-narrow.h), so that a step reads a half or a
// quarter of the bytes. Inputs are then a multiple of 16 (4 bits: 32), as all of real models are; a matrix of others stays bf16 (4 bits: is of 8 bits where
// that takes it). With Int4 the head has 8 bits.
enum class Precision { Bf16, Float32, Int8, Fp8, Int4 };

// Of keys and values alone. Fp8: in float8 with a scale for each slot and head (../kernels/kv-rows.h), beside activations of bf16: about half the bytes, of
// pages as of what attention reads. A key that copySlots turns on is rounded again.
enum class KvPrecision { AsComputed, Fp8 };

struct EngineOptions {
  ModelShape shape;
  bool tiedEmbeddings = false;
  bool attentionBias = false;
  bool queryKeyNorm = false;
  std::vector<double> frequencies;  // headDim / 2, radians per position, scaling included.
  int device = 0;
  int pageSize = 16;
  int pageCount = 0;       // 0: as many as fit, a million at most.
  int maxRows = 512;       // Most inputs of one device step; a batch of more is computed in several.
  int maxSequences = 256;  // Most sequences of one device step; likewise.
  int scratchSlots = 0;    // For keys of sequences without `writes`, which have no more rows than this; 0: maxRows.
  size_t memoryBytes = 0;  // Most device memory that it may take, adapters included; 0: what is free.
  size_t reserveBytes = 0; // Of that kept free at start, for adapters that come later.
  Precision precision = Precision::Bf16;
  KvPrecision kv = KvPrecision::AsComputed;
  bool graphs = true;
  bool dependentLaunch = true;  // Kernels of a step may begin before the one before them has ended (../device/launch.h).
  bool fuseNorm = true;         // In steps of few rows products normalise their input themselves (../kernels/linear-normed.h); the same results.
  bool cublas = true;
  int spinUs = 100;        // For how long `wait` looks again and again before it sleeps.
  bool timing = false;     // Whether `Results::deviceMs` is measured.
};

// Where a tensor's values are on the host: mapped from safetensors, little-endian, row-major.
struct HostTensor {
  enum class Type { BF16, F16, F32 } type;
  const void* data;
  size_t count;
};
// Gives a tensor by its Hugging Face name ("model.layers.0.self_attn.q_proj.weight"). Called once per tensor, in any order (twice for
// embeddings that are tied to a narrow head).
using WeightSource = std::function<HostTensor(const std::string& name)>;

// Low-rank matrices on the device; its memory goes with it. Not to be destroyed while a step that uses it is under way.
class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual size_t bytes() const = 0;
};
// Of one layer's projection, "q_proj" … "down_proj": a is rank × inputs, b is outputs × rank.
struct AdapterMatrices { int layer; const char* projection; int rank, inputs, outputs; const float* a; const float* b; /* scale is in b */ };

// One call's inputs over one set of slots; see `SequenceInput` of backend.ts, of which this is the same. It writes no slot of its own context.
// One of more rows than a step takes is computed in pieces, unless its mask shows rows later inputs at every place where it could be cut ("invalid").
struct Sequence {
  int rows = 0;
  const uint32_t* tokens = nullptr;  // Or null: embeds, or picked.
  const float* embeds = nullptr;     // rows × hidden
  const uint32_t* picked = nullptr;  // Which tokens of those that the batch submitted just before picks, one a row of its that wants tokens: drawn, or the most
                                     // probable (token 0 where there was no number). Only between batches that both fit one device step; else "invalid".
  const uint32_t* positions = nullptr;
  const uint32_t* context = nullptr;
  int contextCount = 0;
  const uint8_t* mask = nullptr;    // rows × (contextCount + rows) bytes, or null: causal.
  const uint32_t* writes = nullptr;  // rows slots, or null: the keys live for this call only.
  int outputRows = 0;                // Of the last inputs.
  int topK = 0;                      // 0: no tokens are wanted. At most MAX_TOP_K and the vocabulary.
  bool logProbabilities = true;
  bool states = false;
  bool attention = false;
  const uint32_t* allowed = nullptr;  // outputRows × ceil(vocabulary / 32), or null.
  const Draw* draws = nullptr;        // outputRows, or null.
};

struct Batch {
  const Sequence* sequences = nullptr;
  int count = 0;
  const Adapter* adapter = nullptr;
};

// By sequence one after another, in the batch's order, valid until the second submit after this one's. Sizes follow from the batch.
struct Results {
  const float* states;             // Σ outputRows (of those that want states) × hidden
  const uint32_t* tokens;          // Σ outputRows × topK
  const float* logProbabilities;   // the same; unspecified where not wanted
  const uint32_t* drawn;           // Σ draws: place among the row's topK
  const float* attention;          // Σ (of those that ask) contextCount + rows; averaged over layers and heads
  float deviceMs;                  // With `timing`: from where computing starts to the last download, of all device steps; else 0.
};

// Steps of few rows are replayed from captured graphs. Where the driver refuses one (say for want of memory), such steps are launched directly, which is
// only slower: `refused` counts them and `why` has the driver's words for the last. One that is refused with dependent launches is captured without.
struct GraphReport { size_t captured = 0, refused = 0; std::string why; };

// Bytes that the engine took at start, and what is free on the device now. `pagesThatFit`: the most pages that its memory would have held at start.
struct MemoryReport { size_t weights, pool, scratch, total, free; int pagesThatFit; };

class Engine {
 public:
  // Throws EngineError; nothing is left behind then.
  static std::unique_ptr<Engine> create(const EngineOptions& options, const WeightSource& weights);
  virtual ~Engine() = default;

  // Copies the batch to the device and starts it; returns at once. Up to two may be under way: the second is prepared while the first runs.
  // A third waits for the first to end. Throws "invalid" for a batch that does not fit (nothing is started), "cuda" when the device is lost.
  // All calls but `wait` come from one thread at a time; each is ordered after the steps that were submitted before it.
  virtual uint64_t submit(const Batch& batch) = 0;
  // Waits for a step. Any thread, during any other call; as often as wanted while the results are valid.
  virtual Results wait(uint64_t step) = 0;
  // Projection alone, of count × hidden states: the same results as a step's rows. Waits.
  virtual void project(const float* states, int count, int topK, uint32_t* tokens, float* logProbabilities) = 0;
  // tokens[first[r] .. first[r + 1]) are scored for state r.
  virtual void score(const float* states, int count, const uint32_t* tokens, const int* first, float* logProbabilities, float* entropies) = 0;
  virtual void copySlots(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs) = 0;
  virtual size_t pageBytes() const = 0;
  // Between pages and host memory, on a stream of their own: overlapped with a running step (which the caller knows not to touch those pages).
  // From pinned memory (`pinned`) at the bus's rate.
  virtual void readPage(int page, uint8_t* into) = 0;
  virtual void writePage(int page, const uint8_t* from) = 0;
  // The same of `count` pages, one after another in host memory: all copies are queued, one wait.
  virtual void readPages(const int* pages, int count, uint8_t* into) = 0;
  virtual void writePages(const int* pages, int count, const uint8_t* from) = 0;
  virtual std::unique_ptr<Adapter> loadAdapter(const std::vector<AdapterMatrices>& matrices) = 0;
  virtual MemoryReport memory() const = 0;
  virtual GraphReport graphs() const = 0;
  virtual int pageCount() const = 0;
};

// Pinned host memory; null when there is none left.
void* allocatePinned(size_t bytes);
void freePinned(void*);

// The cards of this machine; empty without a driver.
struct DeviceInfo { std::string name; size_t memoryBytes; int multiprocessors; int major, minor; int driverVersion, runtimeVersion; /* 0: unknown */ };
std::vector<DeviceInfo> devices();

}  // namespace pie
