// Measures each kernel of a step alone, to show where a step's time goes.
#pragma once
#include "json.h"
#include "shapes.h"

namespace pie::harness {

// Kernels of one decode step, or with `rows` > 0 of a prefill of that many rows of one sequence. Times are per launch within a graph of successive
// launches that rotate through several buffers. `narrowKv`: float8 keys and values.
JsonObject measureKernels(const NamedShape& named, int batch, int context, int rows, bool cublas, Precision precision, bool narrowKv);

// Measures every matrix of a shape × numbers of rows from `least` to `most` × ways to compute the product.
JsonArray measureLinears(const NamedShape& named, int least, int most, Precision precision);

}  // namespace pie::harness
