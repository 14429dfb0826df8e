// Measures each kernel of a step alone, to show where a step's time goes.
#pragma once
#include "json.h"
#include "shapes.h"

namespace pie::harness {

// Settings to measure the kernels of one decode step or, with `rows` > 0, of a prefill of one sequence of `rows` rows. Times are per launch within a
// graph of successive launches that rotate through several buffers. `narrowKv`: float8 keys and values. `prefix`: number of slots with which all
// sequences of a decode step begin. `shared`: the keys of these slots are read once for several sequences.
struct KernelRun {
  int batch, context, rows, prefix;
  bool cublas, narrowKv, shared;
  Precision precision;
};
JsonObject measureKernels(const NamedShape& named, const KernelRun& run);

// Measures every matrix of a shape × numbers of rows from `least` to `most` × ways to compute the product.
JsonArray measureLinears(const NamedShape& named, int least, int most, Precision precision);

}  // namespace pie::harness
