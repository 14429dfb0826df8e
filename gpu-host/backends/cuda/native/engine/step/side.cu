#include "side.h"
#include <algorithm>
#include <cstring>
#include "../../kernels/rows/rows.h"

namespace pie {

namespace {

// Limits of one round: tokens to score, and pairs of slots to copy. Their lists take a few megabytes.
constexpr int SCORED_TOKENS = 1 << 18;
constexpr int COPIED_PAIRS = 1 << 14;

// Offsets in the block of a projection: inputs, then results.
struct ProjectLayout {
  size_t states = 0, rows, tokens, logProbabilities, bytes;
  ProjectLayout(int hidden, int topK)
      : rows(aligned(size_t{HEAD_ROWS} * hidden * sizeof(float))), tokens(rows + aligned(HEAD_ROWS * sizeof(HeadRow))),
        logProbabilities(tokens + aligned(size_t{HEAD_ROWS} * topK * sizeof(uint32_t))),
        bytes(logProbabilities + aligned(size_t{HEAD_ROWS} * topK * sizeof(float))) {}
};

// The same for scores.
struct ScoreLayout {
  size_t states = 0, first, tokens, logProbabilities, entropies, bytes;
  explicit ScoreLayout(int hidden)
      : first(aligned(size_t{HEAD_ROWS} * hidden * sizeof(float))), tokens(first + aligned((HEAD_ROWS + 1) * sizeof(int))),
        logProbabilities(tokens + aligned(SCORED_TOKENS * sizeof(uint32_t))), entropies(logProbabilities + aligned(SCORED_TOKENS * sizeof(float))),
        bytes(entropies + aligned(HEAD_ROWS * sizeof(float))) {}
};

struct CopyLayout {
  size_t sources = 0, destinations = aligned(COPIED_PAIRS * sizeof(int)), shifts = 2 * destinations, bytes = 3 * destinations;
};

}  // namespace

template <typename T>
size_t SideWork<T>::deviceBytes(const PlanContext& context) {
  const ModelShape& shape = context.limits.shape;
  return std::max({ProjectLayout(shape.hidden, std::min(MAX_TOP_K, shape.vocabulary)).bytes, ScoreLayout(shape.hidden).bytes, CopyLayout().bytes});
}

template <typename T>
SideWork<T>::SideWork(const DeviceModel<T>& model, uint8_t* memory, const Stream& computing, std::mutex& calls)
    : model_(model), memory_(memory), computing_(computing), calls_(calls), host_(deviceBytes(model.context)), lists_(COPIES * CopyLayout().bytes) {}

template <typename T>
template <typename Queue>
void SideWork<T>::round(const Queue& queue) {
  {
    const std::lock_guard<std::mutex> lock(calls_);
    queue();
    checkLaunches();
    ended_.record(computing_);
  }
  ended_.synchronize();
}

template <typename T>
uint8_t* SideWork<T>::upload(size_t at, const void* from, size_t bytes) {
  std::memcpy(host_.get() + at, from, bytes);
  if (bytes > 0) CUDA_CALL(cudaMemcpyAsync(memory_ + at, host_.get() + at, bytes, cudaMemcpyHostToDevice, computing_));
  return memory_ + at;
}

// The returned memory holds the bytes only after the round has ended.
template <typename T>
const uint8_t* SideWork<T>::download(size_t at, size_t bytes) {
  if (bytes > 0) CUDA_CALL(cudaMemcpyAsync(host_.get() + at, memory_ + at, bytes, cudaMemcpyDeviceToHost, computing_));
  return host_.get() + at;
}

template <typename T>
void SideWork<T>::logitsOf(const float* states, int count) {
  const int hidden = model_.shape().hidden;
  const size_t values = static_cast<size_t>(count) * hidden;
  const float* wide = reinterpret_cast<const float*>(upload(0, states, values * sizeof(float)));
  launchNarrow<T>(model_.scratch.states, wide, values, computing_);
  launchLogits(model_, model_.scratch.states, count, computing_);
}

template <typename T>
void SideWork<T>::project(const float* states, int count, int topK, uint32_t* tokens, float* logProbabilities) {
  const ModelShape& shape = model_.shape();
  if (count < 0) refuse("The number of states must not be negative.");
  if (topK < 1 || topK > std::min(MAX_TOP_K, shape.vocabulary)) refuse("A state cannot return " + std::to_string(topK) + " tokens.");
  const ProjectLayout at(shape.hidden, topK);
  const std::lock_guard<std::mutex> lock(waiting_);
  for (int from = 0; from < count; from += HEAD_ROWS) {
    const int rows = std::min(HEAD_ROWS, count - from);
    const size_t results = static_cast<size_t>(rows) * topK;
    const uint8_t* found = nullptr;
    round([&] {
      logitsOf(states + static_cast<size_t>(from) * shape.hidden, rows);
      HeadRow wanted[HEAD_ROWS];
      for (int i = 0; i < rows; i++) wanted[i] = {topK, -1, i * topK, -1};
      const HeadRow* onDevice = reinterpret_cast<const HeadRow*>(upload(at.rows, wanted, rows * sizeof(HeadRow)));
      launchTop({reinterpret_cast<uint32_t*>(memory_ + at.tokens), reinterpret_cast<float*>(memory_ + at.logProbabilities), nullptr},
                model_.scratch.logits(), onDevice, nullptr, nullptr, rows, shape.vocabulary, topK, model_.scratch.headWorkspace, computing_);
      found = download(at.tokens, at.logProbabilities - at.tokens + results * sizeof(float));
    });
    std::memcpy(tokens + static_cast<size_t>(from) * topK, found, results * sizeof(uint32_t));
    std::memcpy(logProbabilities + static_cast<size_t>(from) * topK, found + (at.logProbabilities - at.tokens), results * sizeof(float));
  }
}

template <typename T>
void SideWork<T>::score(const float* states, int count, const uint32_t* tokens, const int* first, float* logProbabilities, float* entropies) {
  const ModelShape& shape = model_.shape();
  if (count < 0) refuse("The number of states must not be negative.");
  for (int i = 0; i < count; i++)
    if (first[i] < 0 || first[i + 1] < first[i]) refuse("The offsets of the token lists to score must not be negative or decrease.");
  const ScoreLayout at(shape.hidden);
  const std::lock_guard<std::mutex> lock(waiting_);
  for (int from = 0; from < count; from += HEAD_ROWS) {
    const int rows = std::min(HEAD_ROWS, count - from);
    // Scores the rows' lists in chunks: the whole lists of several rows, or a part of one row's list.
    int row = 0, token = first[from];
    while (row < rows) {
      int starts[HEAD_ROWS + 1] = {0};
      const int firstRow = row, firstToken = token;
      while (row < rows) {
        const int left = SCORED_TOKENS - (token - firstToken), wanted = first[from + row + 1] - token;
        if (wanted > left && row > firstRow) break;
        token += std::min(wanted, left);
        starts[++row - firstRow] = token - firstToken;
        if (wanted > left) break;
      }
      const int launched = row - firstRow, scored = token - firstToken;
      const uint8_t *scores = nullptr, *spreads = nullptr;
      round([&] {
        logitsOf(states + static_cast<size_t>(from + firstRow) * shape.hidden, launched);
        const int* starting = reinterpret_cast<const int*>(upload(at.first, starts, (launched + 1) * sizeof(int)));
        const uint32_t* asked = reinterpret_cast<const uint32_t*>(upload(at.tokens, tokens + firstToken, scored * sizeof(uint32_t)));
        launchScore(reinterpret_cast<float*>(memory_ + at.logProbabilities), reinterpret_cast<float*>(memory_ + at.entropies),
                    model_.scratch.logits(), asked, starting, launched, shape.vocabulary, computing_);
        scores = download(at.logProbabilities, scored * sizeof(float));
        spreads = download(at.entropies, launched * sizeof(float));
      });
      std::memcpy(logProbabilities + firstToken, scores, scored * sizeof(float));
      std::memcpy(entropies + from + firstRow, spreads, launched * sizeof(float));
      // Continues with the rest of a list that was cut.
      if (token < first[from + row]) row--;
    }
  }
}

template <typename T>
int SideWork<T>::pairsAtOnce() const {
  const size_t slotBytes = model_.shape().layers * model_.context.limits.slotBytes;
  return static_cast<int>(std::min<size_t>(model_.scratch.wideBytes / slotBytes, COPIED_PAIRS));
}

template <typename T>
void SideWork<T>::copySlots(const uint32_t* sources, const uint32_t* destinations, const int32_t* shifts, int pairs) {
  const StepLimits& limits = model_.context.limits;
  for (int i = 0; i < pairs; i++)
    if (std::max(sources[i], destinations[i]) >= static_cast<uint32_t>(limits.slots))
      refuse("A copy names slot " + std::to_string(std::max(sources[i], destinations[i])) + " of " + std::to_string(limits.slots) + ".");
  for (const CopyRound& round : planCopies(sources, destinations, shifts, pairs, pairsAtOnce(), limits.slots)) copyRound(round, shifts != nullptr);
  if (pairs > 0) copied_.record(computing_);
}

template <typename T>
void SideWork<T>::copyRound(const CopyRound& round, bool shifts) {
  const CopyLayout at;
  const int pairs = static_cast<int>(round.sources.size());
  uint8_t* const lists = lists_.get() + place_ * at.bytes;
  listsRead_[place_].synchronize();
  const auto list = [&](size_t offset, const std::vector<int>& values) {
    std::memcpy(lists + offset, values.data(), pairs * sizeof(int));
    CUDA_CALL(cudaMemcpyAsync(memory_ + offset, lists + offset, pairs * sizeof(int), cudaMemcpyHostToDevice, computing_));
    return reinterpret_cast<const int*>(memory_ + offset);
  };
  const int* from = list(at.sources, round.sources);
  const int* to = list(at.destinations, round.destinations);
  const int* by = shifts ? list(at.shifts, round.shifts) : nullptr;
  listsRead_[place_].record(computing_);
  place_ = (place_ + 1) % COPIES;
  const StepLimits& limits = model_.context.limits;
  model_.withPool([&](auto* pool) {
    const auto scratch = static_cast<decltype(pool)>(model_.scratch.wide);
    launchCopySlots(pool, scratch, from, to, by, model_.scratch.frequencies, pairs, limits.totalSlots(), limits.shape, computing_,
                    model_.scratch.rotationOf);
  });
  checkLaunches();
}

template class SideWork<bf16>;
template class SideWork<float>;

}  // namespace pie
