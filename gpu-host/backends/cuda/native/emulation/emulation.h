// CUDA on a CPU, for tests: the part of the language and of the runtime's API that this backend uses. It is made to find faults, not to be fast:
// device memory starts as NaN and ends at a page that cannot be touched, threads run in varying orders, what is asynchronous is asynchronous, copies
// with cp.async arrive when they are waited for, divergence at a barrier and deadlock end the run with a message.
#pragma once
#define PIE_EMULATED 1
// The standard library first, before its names meet CUDA's.
#include <math.h>
#include <cmath>
#include <cstdint>
#include <cstring>
// These name what the others use.
#include "language.h"
#include "vectors.h"
#include "bf16.h"
#include "faults.h"
#include "float16.h"
#include "grids.h"
#include "intrinsics.h"
#include "launch.h"
#include "mathematics.h"
#include "matrices.h"
#include "runtime.h"
#include "threads.h"
