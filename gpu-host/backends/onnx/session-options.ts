import type { InferenceSession } from 'onnxruntime-node';
import { EXTERNAL_DATA_ROOT } from './graph-builder.ts';

/**
 * Time for which a session's thread spins before it sleeps. The gateway, the runtimes and Redis share the cores. On two cores, streams over
 * HTTP got 400 / 1,090 / 1,950 tokens/s at 1 / 8 / 32 clients without spinning, 330 / 960 / 1,700 at 100 µs, 260 / 860 / 1,520 at 300 µs.
 * A later measurement, with tokens in slices and piped texts, on a slower day: 329 / 1,344 / 1,922 without; spinning within a run only
 * (`force_spinning_stop`) 333 / 1,435 / 1,934, with 5 to 10 % more of the GPU host's processor time.
 */
const SPIN_MICROSECONDS = 0;
/** Logs errors only. ONNX Runtime's warnings (2) report unused initializers and the like; errors (3) reach the caller, too. */
const LOG_ERRORS = 3;

/** Options of every session of this backend. ONNX Runtime's defaults are the fastest, except for the spinning. */
export function sessionOptions(threads: number | undefined): InferenceSession.SessionOptions {
  return {
    executionProviders: ['cpu'],
    logSeverityLevel: LOG_ERRORS,
    ...(threads === undefined ? {} : { intraOpNumThreads: threads }),
    extra: {
      session: {
        model_external_initializers_file_folder_path: EXTERNAL_DATA_ROOT,
        // ONNX Runtime joins the names of nested keys to `session.intra_op.spin_duration_us`, and ignores a key that it does not know.
        'intra_op.spin_duration_us': String(SPIN_MICROSECONDS),
      },
    },
  };
}
