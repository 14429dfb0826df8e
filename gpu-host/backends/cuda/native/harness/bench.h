// Takes measuring commands, one a line, and answers each with one line of JSON: a program beside it can measure in turn with another.
#pragma once
#include <string>

namespace pie::harness {

// Reads commands from standard input until it ends or says "quit". Returns the process's exit code.
int bench();

extern const char* const BENCH_HELP;

}  // namespace pie::harness
