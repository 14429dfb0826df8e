// Products with weights of 8 or 4 bits, which halve or quarter the bytes read. Activations stay bf16; the kernels convert weights to bf16 in
// registers, exactly. Products of many rows convert the weights in memory first.
#pragma once
#include "linear.h"

namespace pie {

// Weight formats.
//   Int8    integers to ±127, one scale per output.
//   Float8  e4m3 (Micikevicius et al., "FP8 formats for deep learning", 2022), one scale per output: small values keep three fraction bits.
//   Int4    integers from -8 to 7, one scale per output and group of inputs. Groups have 128 inputs, as in GPTQ (Frantar et al., 2023) and AWQ
//           (Lin et al., 2024): the scales then take a 32nd of the bytes. If 128 does not divide the inputs, groups have 64 or 32.
enum class WeightFormat { Int8, Float8, Int4 };

// y = (x · Wᵀ) * scales + b. W is `outputs × inputs` in the order of linear-weights.h; launchQuantise creates it.
struct LinearNarrow {
  WeightFormat format = WeightFormat::Int8;
  uint8_t* weight = nullptr;
  float* scales = nullptr;       // Int8 and Float8: `outputs` values.
  bf16* groupScales = nullptr;   // Int4: narrowGroupStride values per group of inputs.
  const bf16* bias = nullptr;    // `outputs` values, or null.
  int outputs = 0;
  int inputs = 0;
};

// True if a matrix with this many inputs can be stored in the format.
constexpr bool narrowTakes(WeightFormat format, int inputs) { return inputs % (format == WeightFormat::Int4 ? 32 : 16) == 0; }
constexpr size_t narrowWeightBytes(WeightFormat format, int outputs, int inputs) {
  return static_cast<size_t>(outputs) * inputs / (format == WeightFormat::Int4 ? 2 : 1);
}
// Inputs per Int4 scale.
constexpr int narrowGroup(int inputs) { return inputs % 128 == 0 ? 128 : inputs % 64 == 0 ? 64 : 32; }
// Scales per group, padded so that 8 scales (16 bytes) can always be read.
constexpr int narrowGroupStride(int outputs) { return (outputs + 7) / 8 * 8; }
constexpr size_t narrowGroupScales(int outputs, int inputs) { return static_cast<size_t>(inputs / narrowGroup(inputs)) * narrowGroupStride(outputs); }

// Quantises `lines` lines of `from` to lines [firstLine, firstLine + lines) of `to`, rounding to nearest. The largest value of a line (Int4: of a
// group) maps to the largest code (Int4: -8). A group's scale is rounded to five significant bits, so that scale × code is exact in bf16. An infinite
// or NaN weight makes its line or group NaN.
void launchQuantise(const LinearNarrow& to, const bf16* from, int firstLine, int lines, cudaStream_t stream);

// Has the contract of launchLinear in linear.h, but takes cuBLASLt only from LINEAR_WIDENED_ROWS rows on (linear-widen.h), and never for
// Epilogue::Wide.
void launchLinear(const LinearNarrow& linear, const bf16* x, size_t xStride, void* y, size_t yStride, int rows, Epilogue epilogue,
                  const LinearContext& context, cudaStream_t stream);
bool linearSupports(LinearKernel kernel, const LinearNarrow& linear, const bf16* x, size_t xStride, int rows, const LinearContext& context);

}  // namespace pie
