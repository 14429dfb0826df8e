import type { InferenceSession } from 'onnxruntime-node';
import { EXTERNAL_DATA_ROOT } from './graph-builder.ts';

/** How long idle threads of the session spin before they sleep: the gateway and the runtimes share those cores. */
const SPIN_MICROSECONDS = 100;
/** Warnings of ONNX Runtime (2) tell of unused initializers and the like; errors (3) reach the caller as well. */
const LOG_ERRORS = 3;

/** Options of every session here. ONNX Runtime's defaults are the fastest but for the spinning. */
export function sessionOptions(threads: number | undefined): InferenceSession.SessionOptions {
  return {
    executionProviders: ['cpu'],
    logSeverityLevel: LOG_ERRORS,
    ...(threads === undefined ? {} : { intraOpNumThreads: threads }),
    extra: {
      session: {
        model_external_initializers_file_folder_path: EXTERNAL_DATA_ROOT,
        'session.intra_op.spin_duration_us': String(SPIN_MICROSECONDS),
      },
    },
  };
}
