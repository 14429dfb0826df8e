// Compares low-rank changes with plain sums in double, for rows of several adapters and of none. As in linear.test.cc, bounds are relative to the
// norm of the result: 6e-3 for bf16, which rounds A · x and the result (2⁻⁹ each), and 4e-6 for float, which carries only the errors of two float
// sums.
#include "low-rank.h"
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include "../../testing/device.h"
#include "../../testing/test.h"
#include "../vectors.h"

using namespace pie;
using testing::DeviceArray;
using testing::Random;

namespace {

constexpr float UNTOUCHED = 12352;  // Exact in bf16.

template <typename T>
double wide(T value) {
  return static_cast<double>(static_cast<float>(value));
}

int padded(int rank) { return divideUp(rank, LOW_RANK_STEP) * LOW_RANK_STEP; }

// An adapter's matrices of one place, by projection; rank 0: not changed.
template <typename T>
struct Matrices {
  std::vector<int> ranks;
  std::vector<std::vector<T>> a, b;  // Without padding.

  Matrices(const std::vector<int>& ranks, const LowRankProduct& product, Random& random) : ranks(ranks) {
    for (size_t part = 0; part < ranks.size(); part++) {
      a.push_back(random.normals<T>(static_cast<size_t>(ranks[part]) * product.inputs, 1 / std::sqrt(product.inputs)));
      b.push_back(random.normals<T>(static_cast<size_t>(product.outputs[part]) * ranks[part], 1 / std::sqrt(ranks[part] + 1)));
    }
  }
  double change(int part, int output, const T* x, int inputs) const {
    double sum = 0;
    for (int r = 0; r < ranks[part]; r++) {
      double low = 0;
      for (int i = 0; i < inputs; i++) low += wide(a[part][static_cast<size_t>(r) * inputs + i]) * wide(x[i]);
      sum += wide(b[part][static_cast<size_t>(output) * ranks[part] + r]) * low;
    }
    return sum;
  }
};

// The same matrices on the device, with padded ranks.
template <typename T>
struct OnDevice {
  std::vector<T> down, up;
  std::vector<size_t> upAt;
  int ranks = 0;
  std::unique_ptr<DeviceArray<T>> downs, ups;
  std::unique_ptr<DeviceArray<float>> low;
  std::unique_ptr<DeviceArray<LowRankMatrices<T>>> table;

  OnDevice(const Matrices<T>& from, const LowRankProduct& product, int rows) {
    for (size_t part = 0; part < from.ranks.size(); part++) {
      const int rank = from.ranks[part], width = padded(rank);
      down.insert(down.end(), from.a[part].begin(), from.a[part].end());
      down.resize(down.size() + static_cast<size_t>(width - rank) * product.inputs, T(0.0f));
      upAt.push_back(up.size());
      for (int o = 0; o < product.outputs[part]; o++) {
        up.insert(up.end(), from.b[part].begin() + static_cast<ptrdiff_t>(o) * rank, from.b[part].begin() + static_cast<ptrdiff_t>(o + 1) * rank);
        up.resize(up.size() + width - rank, T(0.0f));
      }
      ranks += width;
    }
    downs = std::make_unique<DeviceArray<T>>(down);
    ups = std::make_unique<DeviceArray<T>>(up);
    low = std::make_unique<DeviceArray<float>>(static_cast<size_t>(rows) * ranks * lowRankSplits(product.inputs));
    LowRankMatrices<T> made{};
    made.down = downs->get(), made.low = low->get(), made.ranks = ranks;
    int column = 0;
    for (size_t part = 0; part < from.ranks.size(); part++) {
      const int rank = padded(from.ranks[part]);
      if (rank > 0) made.ups[part] = {ups->get() + upAt[part], column, rank};
      column += rank;
    }
    // The matrices before `made` belong to other places, and this product must not use them.
    LowRankMatrices<T> other{};
    other.ranks = LOW_RANK_STEP;
    std::vector<LowRankMatrices<T>> all(product.matrices, other);
    all.push_back(made);
    table = std::make_unique<DeviceArray<LowRankMatrices<T>>>(all);
  }
};

// Runs rows whose adapters are `who` (-1: none), and compares all of y. `most`: the maximum number of rows that the launch gets, if larger.
template <typename T>
void check(const LowRankProduct& product, const std::vector<std::vector<int>>& ranks, const std::vector<int>& who, int xGap = 0, int yGap = 0,
           int most = 0) {
  Random random(17);
  const int rows = static_cast<int>(who.size()), width = std::accumulate(product.outputs, product.outputs + product.parts, 0);
  const size_t xStride = product.inputs + xGap, yStride = width + yGap;
  std::vector<T> x = random.normals<T>(rows * xStride), before = random.normals<T>(rows * yStride);
  for (int r = 0; r < rows; r++) {
    for (int i = 0; i < xGap; i++) x[r * xStride + product.inputs + i] = T(NAN);
    for (int i = 0; i < yGap; i++) before[r * yStride + width + i] = T(UNTOUCHED);
  }
  std::vector<Matrices<T>> matrices;
  std::vector<std::unique_ptr<OnDevice<T>>> adapters;
  for (const std::vector<int>& each : ranks) {
    matrices.emplace_back(each, product, random);
    adapters.push_back(std::make_unique<OnDevice<T>>(matrices.back(), product, rows));
  }
  // Tasks follow the order of the adapters. Each has up to LOW_RANK_ROWS rows of its adapter, from the last row backwards. Rows without an adapter
  // have tasks only if the product alternates.
  std::vector<LowRankTask> tasks;
  std::vector<int> order;
  for (int a = product.alternating ? -1 : 0; a < static_cast<int>(ranks.size()); a++) {
    int count = 0;
    for (int r = rows - 1; r >= 0; r--) {
      if (who[r] != a) continue;
      if (count++ % LOW_RANK_ROWS == 0) tasks.push_back({a < 0 ? nullptr : adapters[a]->table->get(), static_cast<int>(order.size()), 0});
      tasks.back().count++;
      order.push_back(r);
    }
  }
  const int taskCount = static_cast<int>(tasks.size());
  tasks.resize(std::max(rows, most));
  const std::vector<T> ungated(product.alternating ? static_cast<size_t>(rows) * product.outputs[0] : 0, T(UNTOUCHED));
  const DeviceArray<T> xs(x), ys(before), gated(ungated);
  const DeviceArray<int> count(std::vector<int>{taskCount}), rowList(order);
  const DeviceArray<LowRankTask> taskList(tasks);
  launchLowRank<T>(product, {count, taskList, rowList}, xs, xStride, ys, yStride, gated, std::max(rows, most), nullptr);
  const std::vector<T> after = ys.host(), outs = gated.host();
  testing::cudaOk(cudaGetLastError());

  double error = 0, norm = 0;
  size_t touched = 0;
  for (int r = 0; r < rows; r++) {
    for (size_t o = 0; o < yStride; o++) {
      const double had = wide(before[r * yStride + o]), has = wide(after[r * yStride + o]);
      int part = 0, output = static_cast<int>(o);
      while (part < product.parts && output >= product.outputs[part]) output -= product.outputs[part++];
      const bool changed = !product.alternating && who[r] >= 0 && o < static_cast<size_t>(width) && ranks[who[r]][part] > 0;
      if (!changed) {
        if (has != had) touched++;
        continue;
      }
      const double change = matrices[who[r]].change(part, output, x.data() + r * xStride, product.inputs);
      error += std::pow(has - had - change, 2), norm += (had + change) * (had + change);
    }
  }
  for (size_t at = 0; at < outs.size(); at++) {
    const int r = static_cast<int>(at) / product.outputs[0], output = static_cast<int>(at) % product.outputs[0];
    double both[2];
    for (int part = 0; part < 2; part++) {
      both[part] = wide(before[r * yStride + 2 * output + part]);
      if (who[r] >= 0) both[part] += matrices[who[r]].change(part, output, x.data() + r * xStride, product.inputs);
    }
    const double gate = both[0], inner = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
    const double expected = (product.gelu ? gate / 2 * (1 + std::tanh(inner)) : gate / (1 + std::exp(-gate))) * both[1];
    error += std::pow(wide(outs[at]) - expected, 2), norm += expected * expected;
  }
  CHECK_EQUAL(touched, size_t{0});
  const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  CHECK_CLOSE(relative, 0, sizeof(T) == 2 ? 6e-3 : 4e-6);
}

std::vector<int> mixed(int rows, int adapters) {
  Random random(23);
  std::vector<int> who;
  for (int i = 0; i < rows; i++) who.push_back(static_cast<int>(random.integer(-1, adapters - 1)));
  return who;
}

const std::vector<std::vector<int>> QKV_RANKS = {{3, 0, 16}, {40, 8, 1}, {0, 0, 0}, {0, 17, 0}};

template <typename T>
void checkPlaces() {
  for (const int rows : {1, 5, 40}) {
    const LowRankProduct qkv{2, 96, 3, {80, 16, 24}, false};
    check<T>(qkv, QKV_RANKS, mixed(rows, 4));
    check<T>(qkv, QKV_RANKS, std::vector<int>(rows, 1), 8, 8);
    for (const bool gelu : {false, true})
      check<T>({1, 320, 2, {104, 104}, true, gelu}, {{5, 33}, {0, 2}, {16, 0}}, mixed(rows, 3), 8, 16);
    check<T>({0, 40, 1, {600}, false}, {{8}, {90}}, mixed(rows, 2), 0, 0, 60);
  }
  // Several splits, the last of them partial, and more ranks than shared memory holds.
  check<T>({0, 2104, 2, {40, 40}, true}, {{100, 70}, {1, 0}}, mixed(20, 2));
  // No row has an adapter.
  check<T>({0, 24, 1, {32}, false}, {{8}}, {-1, -1, -1});
  check<T>({0, 24, 2, {32, 32}, true}, {{8, 8}}, {-1, -1, -1});
  // More splits than a thread loads at once.
  check<T>({0, 17416, 1, {16}, false}, {{200}}, {0, 0, -1});
}

}  // namespace

TEST("low rank, bf16: every kind of place computes rows of several adapters of different ranks, and of none") { checkPlaces<bf16>(); }

TEST("low rank, float: every kind of place computes rows of several adapters of different ranks, and of none") { checkPlaces<float>(); }

TEST("low rank: bf16 shapes that tensor cores do not support are computed") {
  const std::vector<int> who = mixed(7, 4);
  check<bf16>({2, 33, 3, {14, 6, 8}, false}, QKV_RANKS, who);
  check<bf16>({2, 40, 3, {15, 7, 2}, false}, QKV_RANKS, who);
  check<bf16>({2, 40, 3, {16, 8, 8}, false}, QKV_RANKS, who, 3, 0);
  check<bf16>({1, 40, 2, {16, 16}, true}, {{5, 33}, {0, 2}, {16, 0}, {1, 1}}, who, 0, 5);
}

TEST("low rank: blocks take turns if there are more tasks than blocks") {
  std::vector<std::vector<int>> ranks;
  std::vector<int> who;
  for (int i = 0; i < 280; i++) ranks.push_back({1 + i % 20, i % 3}), who.push_back(279 - i);
  for (const bool alternating : {false, true}) {
    check<bf16>({0, 16, 2, {16, 16}, alternating}, ranks, who);
    check<float>({0, 16, 2, {16, 16}, alternating}, ranks, who);
  }
}
