// CUDA on a CPU, for tests: the part of the language and of the runtime API that this backend uses. It aims to find faults, not to be fast: device
// memory starts as NaN and ends at an inaccessible page, threads run in varying orders, asynchronous operations really are asynchronous, cp.async
// copies arrive only when they are waited for, and divergence at a barrier and deadlock end the run with a message.
#pragma once
#define PIE_EMULATED 1
// Include the standard library before CUDA's names are defined.
#include <math.h>
#include <cmath>
#include <cstdint>
#include <cstring>
// The other headers use these two.
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
