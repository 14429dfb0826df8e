import type { InferenceSession } from 'onnxruntime-node';
import { EXTERNAL_DATA_ROOT } from './graph-builder.ts';

/**
 * Time for which a session's thread spins before it sleeps. Spinning is off: the gateway, the runtimes and Redis share
 * the cores. Both measurements had 1 / 8 / 32 clients that streamed over HTTP.
 *
 * In the first, on two cores, the clients got 400 / 1,090 / 1,950 tokens/s without spinning, 330 / 960 / 1,700 with
 * 100 µs and 260 / 860 / 1,520 with 300 µs.
 *
 * Before the second, the platform had changed: it sends tokens in slices, several at once, and the runtime itself sends
 * the text of a completion. The machine was slower that day, so compare no numbers of the two measurements. The clients
 * got 329 / 1,344 / 1,922 tokens/s without spinning. With `force_spinning_stop` of ONNX Runtime, threads spin only
 * while the model runs. It gave 333 / 1,435 / 1,934 tokens/s, and took 5 to 10 % more of the GPU host's processor time.
 */
const SPIN_MICROSECONDS = 0;
/** ONNX Runtime's level of errors, which also reach the caller. Warnings (2) report unused initializers and so on. */
const LOG_ERRORS = 3;
/**
 * Bytes up to which a session computes a constant once instead of in every run. ONNX Runtime's default is below the widened head of a model with
 * a large vocabulary: 151,936 × 4,096 values in bfloat16 were widened in every step, which added 0.5 s and 2.5 GB.
 */
const MOST_CONSTANT_BYTES = 2 ** 40;

/** Options of every session of this backend. ONNX Runtime's default is the fastest for every option except spinning. */
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
      optimization: { constant_folding_max_output_size_in_bytes: String(MOST_CONSTANT_BYTES) },
    },
  };
}

/** A session that the first `get` creates. If the creation fails, this call and concurrent ones reject, and the next call tries again. */
export class LazySession {
  readonly #make: () => Promise<InferenceSession>;
  #session: Promise<InferenceSession> | null = null;

  constructor(make: () => Promise<InferenceSession>) {
    this.#make = make;
  }

  get(): Promise<InferenceSession> {
    if (this.#session === null) {
      this.#session = this.#make();
      this.#session.catch(() => {
        this.#session = null;
      });
    }
    return this.#session;
  }

  /** Frees the session, if there is one. A creation that fails rejects `get`, not this method. */
  async release(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    await (await session?.catch(() => null))?.release();
  }
}
