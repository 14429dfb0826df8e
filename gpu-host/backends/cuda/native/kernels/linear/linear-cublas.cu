#include "linear-cublas.h"
#include <dlfcn.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>

namespace pie {
namespace {

// Maximum number of cached plans. Steps with prompts have any number of rows, so the number of shapes is unbounded. A full cache is cleared.
constexpr size_t MOST_PLANS = 1024;

// The library's descriptors for one shape, and the algorithm for it.
struct Plan {
  void *operation = nullptr, *layoutX = nullptr, *layoutW = nullptr, *layoutY = nullptr;
  CublasLtHeuristic heuristic{};
  bool works = false;
};

// A heuristic query costs the host more than a launch, so row counts that differ by at most an eighth share one algorithm. Returns the largest row
// count that shares an algorithm with `rows`.
uint64_t rowsAskedFor(uint64_t rows) {
  uint64_t step = 1;
  while (step * 16 <= rows) step *= 2;
  return (rows + step - 1) / step * step;
}

struct Key {
  uint64_t rows, outputs, inputs, xStride, yStride, wide, bias, alignments, workspaceBytes;
  bool operator<(const Key& other) const { return asArray() < other.asArray(); }

 private:
  std::array<uint64_t, 9> asArray() const { return {rows, outputs, inputs, xStride, yStride, wide, bias, alignments, workspaceBytes}; }
};

// Alignment of all rows from an address on, at most 256: the library does not distinguish larger alignments.
uint32_t alignmentOf(const void* pointer, size_t strideBytes) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | strideBytes | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

}  // namespace

struct CublasLt {
  CublasLtFunctions functions;
  void* library;
  void* handle = nullptr;
  std::map<Key, Plan> plans;
  std::map<Key, CublasLtHeuristic> algorithms;  // Keyed by rowsAskedFor; a nonzero status means that the library has no algorithm.
};

namespace {

// Returns false if the library rejects a description.
bool describe(const CublasLtFunctions& f, const Key& key, Plan& plan) {
  using namespace cublaslt;
  const int typeY = key.wide ? R_32F : R_16BF;
  // The library is column-major: there W is inputs × outputs (and transposed), x is inputs × rows, y is outputs × rows.
  const int transposed = TRANSPOSE, withBias = EPILOGUE_BIAS, biasType = R_16BF;
  if (f.createOperation(&plan.operation, COMPUTE_32F, R_32F) != 0) return false;
  if (f.createLayout(&plan.layoutW, R_16BF, key.inputs, key.outputs, static_cast<int64_t>(key.inputs)) != 0) return false;
  if (f.createLayout(&plan.layoutX, R_16BF, key.inputs, key.rows, static_cast<int64_t>(key.xStride)) != 0) return false;
  if (f.createLayout(&plan.layoutY, typeY, key.outputs, key.rows, static_cast<int64_t>(key.yStride)) != 0) return false;
  if (f.setOperation(plan.operation, OPERATION_TRANSA, &transposed, sizeof transposed) != 0) return false;
  if (!key.bias) return true;
  return f.setOperation(plan.operation, OPERATION_EPILOGUE, &withBias, sizeof withBias) == 0 &&
         f.setOperation(plan.operation, OPERATION_BIAS_TYPE, &biasType, sizeof biasType) == 0;
}

void destroy(const CublasLtFunctions& f, const Plan& plan) {
  for (void* layout : {plan.layoutX, plan.layoutW, plan.layoutY})
    if (layout) f.destroyLayout(layout);
  if (plan.operation) f.destroyOperation(plan.operation);
}

bool ask(const CublasLt& lt, const Plan& plan, size_t workspaceBytes, const std::array<uint32_t, 3>& alignments, CublasLtHeuristic& result) {
  using namespace cublaslt;
  const CublasLtFunctions& f = lt.functions;
  void* made = nullptr;
  if (f.createPreference(&made) != 0) return false;
  const std::unique_ptr<void, int (*)(void*)> preference(made, f.destroyPreference);
  if (f.setPreference(made, PREFERENCE_WORKSPACE, &workspaceBytes, sizeof workspaceBytes) != 0) return false;
  const uint32_t each[4] = {alignments[0], alignments[1], alignments[2], alignments[2]};
  for (int i = 0; i < 4; i++)
    if (f.setPreference(made, PREFERENCE_ALIGNMENT_A + i, &each[i], sizeof each[i]) != 0) return false;
  int found = 0;
  if (f.heuristic(lt.handle, plan.operation, plan.layoutW, plan.layoutX, plan.layoutY, plan.layoutY, made, 1, &result, &found) != 0) return false;
  return found > 0 && result.status == 0 && result.workspaceBytes <= workspaceBytes;
}

const CublasLtHeuristic& algorithmOf(CublasLt& lt, Key key, const std::array<uint32_t, 3>& alignments) {
  key.rows = rowsAskedFor(key.rows);
  const auto [at, isNew] = lt.algorithms.try_emplace(key);
  if (!isNew) return at->second;
  Plan plan;
  const bool found = describe(lt.functions, key, plan) && ask(lt, plan, key.workspaceBytes, alignments, at->second);
  if (!found) at->second.status = -1;
  destroy(lt.functions, plan);
  return at->second;
}

void makePlan(CublasLt& lt, const Key& key, const std::array<uint32_t, 3>& alignments, Plan& plan) {
  plan.heuristic = algorithmOf(lt, key, alignments);
  plan.works = plan.heuristic.status == 0 && describe(lt.functions, key, plan);
}

void forgetPlans(CublasLt& lt) {
  for (const auto& [key, plan] : lt.plans) destroy(lt.functions, plan);
  lt.plans.clear();
  lt.algorithms.clear();
}

template <typename F>
bool take(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

CublasLt* makeCublasLt(const CublasLtFunctions& functions, void* library) {
  auto lt = std::make_unique<CublasLt>();
  lt->functions = functions;
  lt->library = library;
  return functions.create(&lt->handle) == 0 ? lt.release() : nullptr;
}

CublasLt* openCublasLt() {
#ifdef PIE_EMULATED
  return nullptr;  // cuBLASLt cannot access emulated device memory.
#else
  const char* named = std::getenv("PIE_CUBLASLT");
  void* library = nullptr;
  if (named) {
    library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) return nullptr;
  CublasLtFunctions f{};
  const bool complete = take(library, "cublasLtCreate", f.create) && take(library, "cublasLtDestroy", f.destroy) && take(library, "cublasLtMatmul", f.matmul) &&
                        take(library, "cublasLtMatmulDescCreate", f.createOperation) && take(library, "cublasLtMatmulDescDestroy", f.destroyOperation) &&
                        take(library, "cublasLtMatmulDescSetAttribute", f.setOperation) && take(library, "cublasLtMatrixLayoutCreate", f.createLayout) &&
                        take(library, "cublasLtMatrixLayoutDestroy", f.destroyLayout) && take(library, "cublasLtMatmulPreferenceCreate", f.createPreference) &&
                        take(library, "cublasLtMatmulPreferenceDestroy", f.destroyPreference) &&
                        take(library, "cublasLtMatmulPreferenceSetAttribute", f.setPreference) && take(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic);
  CublasLt* lt = complete ? makeCublasLt(f, library) : nullptr;
  if (!lt) dlclose(library);
  return lt;
#endif
}

void closeCublasLt(CublasLt* lt) {
  if (!lt) return;
  const std::unique_ptr<CublasLt> owned(lt);
  forgetPlans(*lt);
  lt->functions.destroy(lt->handle);
  if (lt->library) dlclose(lt->library);
}

bool launchLinearCublas(CublasLt* lt, const Linear<bf16>& linear, const bf16* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue,
                        void* workspace, size_t workspaceBytes, cudaStream_t stream) {
  const bool wide = epilogue == Epilogue::Wide;
  const std::array<uint32_t, 3> alignments = {alignmentOf(linear.weight, linear.inputs * sizeof(bf16)), alignmentOf(x, xStride * sizeof(bf16)),
                                              alignmentOf(y, yStride * (wide ? sizeof(float) : sizeof(bf16)))};
  const uint64_t aligned = alignments[0] | static_cast<uint64_t>(alignments[1]) << 16 | static_cast<uint64_t>(alignments[2]) << 32;
  const Key key{static_cast<uint64_t>(rows), static_cast<uint64_t>(linear.outputs), static_cast<uint64_t>(linear.inputs), xStride, yStride, wide,
                linear.bias != nullptr, aligned, workspaceBytes};
  if (lt->plans.size() >= MOST_PLANS && lt->plans.find(key) == lt->plans.end()) forgetPlans(*lt);
  const auto [at, isNew] = lt->plans.try_emplace(key);
  Plan& plan = at->second;
  if (isNew) makePlan(*lt, key, alignments, plan);
  if (!plan.works) return false;
  if (linear.bias && lt->functions.setOperation(plan.operation, cublaslt::OPERATION_BIAS_POINTER, &linear.bias, sizeof linear.bias) != 0) return false;
  const float one = 1, zero = 0;
  const int status = lt->functions.matmul(lt->handle, plan.operation, &one, linear.weight, plan.layoutW, x, plan.layoutX, &zero, y, plan.layoutY, y,
                                          plan.layoutY, plan.heuristic.algorithm, workspace, workspaceBytes, stream);
  // After one of these statuses the library would refuse the product in every step, so the plan remembers the refusal. A failed launch, such as one
  // in a capture that the driver has ended, says nothing about the product.
  plan.works = status != cublaslt::INVALID_VALUE && status != cublaslt::ARCHITECTURE_MISMATCH && status != cublaslt::NOT_SUPPORTED;
  return status == 0;
}

}  // namespace pie
