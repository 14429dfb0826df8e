// Each kernel of a step alone, so that a short time on the card tells where a step's time goes.
#pragma once
#include "json.h"
#include "shapes.h"

namespace pie::harness {

// Kernels of one decode step, or with `rows` > 0 of a prefill of so many rows of one sequence. Times are of launches that follow each other in a graph, over
// buffers that take turns. `narrowKv`: keys and values of float8.
JsonObject measureKernels(const NamedShape& named, int batch, int context, int rows, bool cublas, Precision precision, bool narrowKv);

// Every matrix of a shape × numbers of rows from `least` to `most` × ways to compute the product.
JsonArray measureLinears(const NamedShape& named, int least, int most, Precision precision);

}  // namespace pie::harness
