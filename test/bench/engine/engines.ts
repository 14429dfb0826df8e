/** A measurement task for one engine; the engine's process answers with a {@link Measurement}. */
export type Task =
  | {
      readonly kind: 'decode';
      /** Sequences that decode together. */
      readonly batch: number;
      /** Tokens in each cache before the first measured step. */
      readonly context: number;
      readonly steps: number;
    }
  | { readonly kind: 'prefill'; readonly tokens: number; readonly times: number };

/** Result of a task. `ms` is the time of one step, or of one prefill. */
export interface Measurement {
  readonly ms: number;
  /** Greedy tokens of the first sequence in a decoding task, to check that both engines compute the same function. */
  readonly tokens?: readonly number[];
  /** `resident`: bytes of the process's resident memory after the task. `accounted`: the part that its weights and its pool of pages need. */
  readonly memory?: { readonly resident: number; readonly accounted: number };
}

/** Environment that makes a platform compute with 32-bit weights like the peer, even if the user's environment sets another backend. */
export const LIKE_THE_PEER = { PIE_BACKEND: 'onnx', PIE_BITS: '32' } as const;

export interface Engine {
  measure(task: Task): Promise<Measurement>;
}

/** Serves the tasks that the parent sends over the IPC channel, one after another. */
export function serve(engine: Engine): void {
  process.on('message', (task: Task) => {
    engine.measure(task).then(
      (measured) => process.send?.(measured),
      (error: unknown) => process.send?.({ error: error instanceof Error ? error.message : String(error) }),
    );
  });
  process.once('disconnect', () => process.exit(0));
  process.send?.({ ready: true });
}
