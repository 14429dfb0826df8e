// One model on one device: weights, the pool of KV slots, steps. Independent of Node: both the addon and the harness use it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "../kernels/head/head.h"
#include "../kernels/types.h"

namespace pie {

// `code` is one of
//   "no-device"
//   "out-of-memory"  at start, with a message that says how many pages fit; or for an adapter or a pinned block
//   "invalid"        wrong arguments; nothing was started
//   "cuda"           The device is lost for this process, and so is the engine: every later call throws the same error. The message names the step,
//                    the call and the driver's error.
struct EngineError : std::runtime_error {
  EngineError(std::string code, const std::string& message) : std::runtime_error(message), code(std::move(code)) {}
  std::string code;
};

// Precision of weights, activations and KV. Int8, Fp8 and Int4 are as Bf16, except that the matrices of products are rounded to bf16 and then
// quantised (linear-narrow.h): with Int8 and Fp8 to 8-bit integers or e4m3, scaled by each row's largest value; with Int4 to 4-bit integers, scaled
// by the largest value of each group of inputs. A step then reads a half or a quarter of the bytes. Only matrices whose number of
// inputs is a multiple of 16 (Int4: 32) are quantised, as all matrices of real models are; others stay bf16 (Int4: take 8 bits if their inputs are a
// multiple of 16). With Int4 the head has 8 bits.
enum class Precision { Bf16, Float32, Int8, Fp8, Int4 };

// Precision of keys and values. Fp8 stores float8 with one scale per slot and head (../kernels/rows/kv-rows.h) and requires bf16 activations. It halves
// the bytes of pages and of attention's reads. copySlots rounds a shifted key once more.
enum class KvPrecision { AsComputed, Fp8 };

// What models compute differently from a plain Llama decoder, beside what ModelShape says; by default nothing.
struct ModelTraits {
  bool outputBias = false;   // A bias of the output projection of attention.
  bool rowNorms = false;     // queryKeyNorm covers whole rows of queries and keys, not single heads.
  // RMS norms stand before attention and feed-forward, after them, or both; always before the addition to the residual stream.
  enum class Norms { Before, After, Around } norms = Norms::Before;
  // Factors of tokens' embeddings, of the results of attention and feed-forward, and of logits.
  float embeddingScale = 1, residualScale = 1, logitScale = 1;
  float logitSoftcap = 0;    // Logits become cap × tanh(logit / cap); 0: they stay.
  // Rotations: `rotations` times headDim / 2 values in EngineOptions::frequencies. A frequency of 0 leaves its pair as it is.
  int rotations = 1;
  std::vector<double> rotationScales;  // Factors of both values of a pair, as many as frequencies; empty: 1.
  std::vector<int> rotationOf;         // By layer: its rotation. Empty: all layers have the first.
  // The order in which the device keeps the values of a head of queries or keys: value i is value headOrder[i] of the weights. Brings the values that
  // turn together to places i and i + headDim / 2. Empty: the order of the weights.
  std::vector<int> headOrder;
  // By layer: a query at position p sees only keys at positions above p - window. 0: no window. Empty: no layer has one. At most MOST_WINDOWS
  // different windows.
  std::vector<int> windows;

  bool plainNorms(float normOffset) const { return norms == Norms::Before && normOffset == 0 && residualScale == 1; }
  bool plainLogits() const { return logitScale == 1 && logitSoftcap == 0; }
  int rotation(int layer) const { return rotationOf.empty() ? 0 : rotationOf[layer]; }
};
constexpr int MOST_WINDOWS = 4;

struct EngineOptions {
  ModelShape shape;
  bool tiedEmbeddings = false;
  bool attentionBias = false;
  bool queryKeyNorm = false;
  std::vector<double> frequencies;  // headDim / 2 values in radians per position, scaling included. Several times as many with several rotations.
  ModelTraits traits;
  int device = 0;
  int pageSize = 16;
  int pageCount = 0;       // 0: as many as fit, at most a million.
  int maxRows = 512;       // Maximum inputs per device step; larger batches are computed in several steps.
  int maxSequences = 256;  // Maximum sequences per device step; likewise.
  int scratchSlots = 0;    // For keys of sequences without `writes`; such a sequence has at most this many rows. 0: maxRows.
  size_t memoryBytes = 0;  // Limit on device memory, adapters included; 0: all free memory.
  size_t reserveBytes = 0; // Part of memoryBytes that stays unused at start, for later adapters.
  Precision precision = Precision::Bf16;
  KvPrecision kv = KvPrecision::AsComputed;
  bool graphs = true;
  bool dependentLaunch = true;  // A step's kernels may begin before the previous kernel has ended (../device/launch.h).
  bool cublas = true;
  bool sharedPrefixes = true;  // Sequences that begin with the same slots read these keys together where that costs less (../kernels/attention/attention.h).
  int spinUs = 100;        // How long `wait` polls after a step's expected end before it sleeps.
  bool timing = false;     // Measure `Results::deviceMs`.
};

// A tensor's values on the host: mapped from safetensors, little-endian, row-major.
struct HostTensor {
  enum class Type { BF16, F16, F32 } type;
  const void* data;
  size_t count;
};
// Returns a tensor by its Hugging Face name ("model.layers.0.self_attn.q_proj.weight"). Called once per tensor, in any order (twice for embeddings
// that are tied to a quantised head).
using WeightSource = std::function<HostTensor(const std::string& name)>;

// Low-rank matrices on the device; owns their memory. Must not be destroyed while a step that uses it is running.
class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual size_t bytes() const = 0;
  // The places that the adapter changes: bit 1 << LowRankPlace (../kernels/linear/low-rank.h) is set if the adapter changes the place in any layer.
  virtual unsigned places() const = 0;
  // Its LowRankMatrices on the device.
  virtual const void* matrices() const = 0;
};
// Matrices of one layer's projection, "q_proj" … "down_proj": a is rank × inputs, b is outputs × rank.
struct AdapterMatrices { int layer; const char* projection; int rank, inputs, outputs; const float* a; const float* b; /* scale is in b */ };

// One call's inputs over a set of slots; mirrors `SequenceInput` of backend.ts. A sequence must not write slots of its own context. A sequence with
// more rows than a step is computed in pieces. It is refused ("invalid") if its mask shows later inputs to earlier rows at every possible cut.
struct Sequence {
  int rows = 0;
  // The inputs: exactly one of `tokens`, `embeds` and `picked` is set.
  const uint32_t* tokens = nullptr;
  const float* embeds = nullptr;     // rows × hidden
  // Indices into the picked tokens of the previously submitted batch. In that batch each row with topK > 0 has one picked token, in the order of its
  // rows: the drawn token, or else the most probable one (token 0 if no allowed token has a logit that is a number). Both batches must fit one
  // device step each; else "invalid".
  const uint32_t* picked = nullptr;
  const uint32_t* positions = nullptr;
  const uint32_t* context = nullptr;  // The slots from `known` on.
  int contextCount = 0;
  // Place of the sequence's slot list among the `tableSlots` words that the device keeps between steps. The list is the context, then the slots of
  // the inputs. Its first `known` words are on the device from earlier batches; the step uploads the others. -1: the step uploads the whole list, and
  // the device does not keep it. The places of a batch's sequences must not overlap, and a sequence with a place has no mask. If a submit throws, the
  // contents of all places are unknown.
  int table = -1;
  int known = 0;
  const uint8_t* mask = nullptr;    // rows × (contextCount + rows) bytes, or null: causal.
  const uint32_t* writes = nullptr;  // One slot per row, or null: the keys live for this call only.
  int outputRows = 0;                // The last outputRows inputs have outputs.
  int topK = 0;                      // 0: no tokens wanted. At most MAX_TOP_K and the vocabulary.
  bool logProbabilities = true;
  bool states = false;
  bool attention = false;
  const uint32_t* allowed = nullptr;  // outputRows × ceil(vocabulary / 32), or null.
  const Draw* draws = nullptr;        // outputRows, or null.
  // Changes of the logits of a sequence with one output row (HeadChange of ../kernels/head/head.h), or null. If the last input is a picked token, the
  // penalties count it as chosen once more.
  const uint32_t* changeTokens = nullptr;
  const float* changeValues = nullptr;
  int changes = 0;
  float frequency = 0, presence = 0;
  const Adapter* adapter = nullptr;   // Sequences of a batch may have different adapters.
};

struct Batch {
  const Sequence* sequences = nullptr;
  int count = 0;
};

// Results by sequence, in the batch's order; valid until the second submit after the step's own. Sizes follow from the batch.
struct Results {
  const float* states;             // Σ outputRows (of sequences that want states) × hidden
  const uint32_t* tokens;          // Σ outputRows × topK
  const float* logProbabilities;   // Σ outputRows × topK, wanted or not
  const uint32_t* drawn;           // Σ draws: index among the row's topK
  const float* attention;          // Σ (of sequences that want it) contextCount + rows; averaged over layers and heads
  float deviceMs;                  // With `timing`: from the start of computing to the last download, over all device steps; else 0.
};

// Steps of few rows are replayed from captured graphs. If the driver refuses a graph (for example for lack of memory), such steps are launched
// directly, which is only slower: `refused` counts them and `why` has the driver's last error. A graph refused with dependent launches is captured
// without them.
struct GraphReport { size_t captured = 0, refused = 0; std::string why; };

// Bytes that the engine allocated at start, and bytes free on the device now. `pagesThatFit`: the most pages that the memory would have held at
// start.
struct MemoryReport { size_t weights, pool, scratch, total, free; int pagesThatFit; };

class Engine {
 public:
  // Throws EngineError and then leaves no memory allocated.
  static std::unique_ptr<Engine> create(const EngineOptions& options, const WeightSource& weights);
  virtual ~Engine() = default;

  // Copies the batch to the device and starts it without waiting. Up to two steps may be in flight: the second is prepared while the first runs; a
  // third waits for the first to end. Steps run in the order of their submits. Throws "invalid" for a batch that does not fit (nothing is started),
  // "cuda" if the device is lost. The caller must make all calls from one thread at a time, except `wait`, `project`, `score`, `waitForPages` and
  // `loadAdapter`.
  virtual uint64_t submit(const Batch& batch) = 0;
  // Waits for a step. May be called by any thread, during any other call, and repeatedly while the results are valid.
  virtual Results wait(uint64_t step) = 0;
  // The head's projection of count × hidden states, with the same results as a step's rows. Waits. Any thread may call `project` and `score`; other
  // threads submit steps meanwhile.
  virtual void project(const float* states, int count, int topK, uint32_t* tokens, float* logProbabilities) = 0;
  // tokens[first[r] .. first[r + 1]) are scored for state r.
  virtual void score(const float* states, int count, const uint32_t* tokens, const int* first, float* logProbabilities, float* entropies) = 0;
  // Queues copies between slots, after all earlier steps and before all later ones.
  virtual void copySlots(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs) = 0;
  // Bytes of a page on the host: keys and values, then, if layers have windows, the positions of the page's slots (32-bit integers).
  virtual size_t pageBytes() const = 0;
  // Copies between pages and host memory on a separate stream, overlapped with running steps; the caller guarantees that these steps do not touch the
  // pages. Pinned memory (`allocatePinned`) gives the bus's full rate.
  virtual void readPage(int page, uint8_t* into) = 0;
  virtual void writePage(int page, const uint8_t* from) = 0;
  // The same for `count` pages that are contiguous in host memory: queues all copies, waits once.
  virtual void readPages(const int* pages, int count, uint8_t* into) = 0;
  virtual void writePages(const int* pages, int count, const uint8_t* from) = 0;
  // Queue the copy of one page; later calls are ordered after it. The memory must be pinned. Only queued copies may use it until `settlePages` or a
  // later `waitForPages` returns; both wait for all copies queued before. Any thread may call `waitForPages`, during any other call.
  virtual void queueReadPage(int page, uint8_t* into) = 0;
  virtual void queueWritePage(int page, const uint8_t* from) = 0;
  virtual void settlePages() = 0;
  virtual void waitForPages() = 0;
  // Waits for the copy to the device, but not for steps. Any thread may call it, one at a time.
  virtual std::unique_ptr<Adapter> loadAdapter(const std::vector<AdapterMatrices>& matrices) = 0;
  virtual MemoryReport memory() const = 0;
  virtual GraphReport graphs() const = 0;
  // True if the engine found cuBLASLt and may use it.
  virtual bool hasCublas() const = 0;
  virtual int pageCount() const = 0;
  virtual int tableSlots() const = 0;
};

// Pinned host memory; null if the allocation fails.
void* allocatePinned(size_t bytes);
void freePinned(void*);

// The devices of this machine; empty without a driver.
struct DeviceInfo {
  std::string name;
  size_t memoryBytes;
  int multiprocessors;
  int major, minor;
  bool usable;                        // This build has kernels for it.
  int driverVersion, runtimeVersion;  // 0: unknown.
};
std::vector<DeviceInfo> devices();

}  // namespace pie
