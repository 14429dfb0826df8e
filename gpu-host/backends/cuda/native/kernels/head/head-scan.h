// The first pass over logits.
#pragma once
#include "head-rows.h"

namespace pie {

// Fills the workspace for all rows. The rows of `logits` are contiguous.
void launchScan(const HeadWorkspace& workspace, const float* logits, const HeadRow* rows, const uint32_t* allowed, int count, int vocabulary,
                cudaStream_t stream);

}  // namespace pie
