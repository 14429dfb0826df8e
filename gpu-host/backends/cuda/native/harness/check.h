// Plays fixtures to the engine and compares.
#pragma once
#include <string>

namespace pie::harness {

struct CheckOptions {
  std::string folder;
  std::string only;  // Fixtures whose names contain this.
  bool bf16 = true, float32 = true;
  bool float8Kv = false;  // Keys and values in float8, beside bf16.
  bool graphs = true, dependent = true, fuse = true, cublas = true;
  std::string json;  // File for all numbers, or empty.
};

// Prints a table; 0 when all errors are within the aims.
int check(const CheckOptions& options);

}  // namespace pie::harness
