// Replays fixtures on the engine and compares the results.
#pragma once
#include <string>

namespace pie::harness {

struct CheckOptions {
  std::string folder;
  std::string only;  // Only fixtures whose names contain this.
  bool bf16 = true, float32 = true;
  bool float8Kv = false;  // Keys and values in float8, with bf16 activations.
  bool graphs = true, dependent = true, cublas = true, sharedPrefixes = true;
  std::string json;  // Output file for all numbers; empty: none.
};

// Prints a table; returns 0 if all errors are within the targets.
int check(const CheckOptions& options);

}  // namespace pie::harness
