// Answers measuring commands, one per line, with one line of JSON each, so that a driving program can alternate between this program and a peer.
#pragma once
#include <string>

namespace pie::harness {

// Reads commands from standard input until it ends or a line says "quit". Returns the process's exit code.
int bench();

extern const char* const BENCH_HELP;

}  // namespace pie::harness
