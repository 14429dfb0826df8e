import type { Usage } from '#scheduler/invocations/types.ts';
import type { Inferlet } from '../host/inferlet.ts';
import type { HeldTime } from './held-time.ts';
import type { GuestRun } from './launch.ts';

/** The parts of an attempt that usage is read from. */
export interface UsageParts {
  readonly inferlet: Pick<
    Inferlet,
    'inputTokens' | 'outputTokens' | 'cachedTokens' | 'deviceUsage' | 'pagesPeak' | 'session'
  >;
  readonly run: Pick<GuestRun, 'cpuMs' | 'calls' | 'memoryBytes'>;
  /** Milliseconds that the invocation waited in the queue before this attempt began. */
  readonly queuedMs: number;
  /** Time during which the family was preempted. */
  readonly held: Pick<HeldTime, 'totalMs'>;
}

/** Usage of one attempt. Each number counts from the beginning of the attempt and never decreases. */
export class AttemptUsage {
  readonly #parts: UsageParts;
  readonly #ranFrom = performance.now();
  readonly #heldBeforeMs: number;
  #endTimes: { readonly wallMs: number; readonly heldMs: number } | null = null;
  #input = 0;
  #output = 0;
  #cached = 0;

  constructor(parts: UsageParts) {
    this.#parts = parts;
    this.#heldBeforeMs = parts.held.totalMs;
  }

  /** Freezes the wall time: the guest has ended. */
  returned(): void {
    this.#endTimes = this.#times;
  }

  /** Milliseconds of the run in which its family was preempted and had calls to make. `wallMs` does not include them. */
  get preemptedMs(): number {
    return rounded((this.#endTimes ?? this.#times).heldMs);
  }

  get #times(): { readonly wallMs: number; readonly heldMs: number } {
    const heldMs = this.#parts.held.totalMs - this.#heldBeforeMs;
    return { wallMs: performance.now() - this.#ranFrom - heldMs, heldMs };
  }

  /** Assigns the tokens counted so far to the next write. It copies three numbers only, because it runs for each event. */
  mark(): void {
    const { inferlet } = this.#parts;
    this.#input = inferlet.inputTokens;
    this.#output = inferlet.outputTokens;
    this.#cached = inferlet.cachedTokens;
  }

  snapshot(): Usage {
    this.mark();
    return this.marked();
  }

  /** Usage up to now, with the tokens of the last mark: no written event covers later tokens. */
  marked(): Usage {
    const { inferlet, run, queuedMs } = this.#parts;
    const { gpuUs, pageMs } = inferlet.deviceUsage;
    return {
      inputTokens: this.#input,
      outputTokens: this.#output,
      cachedTokens: this.#cached,
      cpuMs: rounded(run.cpuMs),
      gpuMs: gpuUs / 1000,
      wallMs: rounded((this.#endTimes ?? this.#times).wallMs),
      queuedMs,
      pageSeconds: pageMs / 1000,
      kvPagesPeak: Math.max(0, ...inferlet.pagesPeak.values()),
      memoryBytes: run.memoryBytes,
      messages: inferlet.session.messages,
      calls: run.calls,
    };
  }
}

/** Rounds milliseconds to the microsecond. */
export const rounded = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;

/** Token counts of an attempt that has reported nothing to the store. */
export const NOTHING_COUNTED = { inputTokens: 0, outputTokens: 0, cachedTokens: 0 };

export const tokensOf = ({ inputTokens = 0, outputTokens = 0, cachedTokens = 0 }: Usage): typeof NOTHING_COUNTED => ({
  inputTokens,
  outputTokens,
  cachedTokens,
});
