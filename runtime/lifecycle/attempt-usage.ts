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
  /** Time during which GPU hosts held calls of the family; see `HeldTime`. */
  readonly held: Pick<HeldTime, 'totalMs'>;
}

/** Usage of one attempt. Each number but `queuedMs` counts from the beginning of the attempt; none decreases. */
export class AttemptUsage {
  readonly #parts: UsageParts;
  readonly #beganAtMs = performance.now();
  /** Held time of the family before this attempt. */
  readonly #heldBeforeMs: number;
  /** Wall and held time when the guest ended; null while it runs. */
  #endTimes: { readonly wallMs: number; readonly heldMs: number } | null = null;
  #input = 0;
  #output = 0;
  #cached = 0;

  constructor(parts: UsageParts) {
    this.#parts = parts;
    this.#heldBeforeMs = parts.held.totalMs;
  }

  /** Freezes wall and preempted time: the guest has ended. */
  returned(): void {
    this.#endTimes = this.#times;
  }

  /** Milliseconds of the run during which GPU hosts held calls of the family. `wallMs` does not include them. */
  get preemptedMs(): number {
    return rounded((this.#endTimes ?? this.#times).heldMs);
  }

  get #times(): { readonly wallMs: number; readonly heldMs: number } {
    const heldMs = this.#parts.held.totalMs - this.#heldBeforeMs;
    return { wallMs: performance.now() - this.#beganAtMs - heldMs, heldMs };
  }

  /** Copies the present token counts for the next write. It copies nothing else, because it runs for each event. */
  mark(): void {
    const { inferlet } = this.#parts;
    this.#input = inferlet.inputTokens;
    this.#output = inferlet.outputTokens;
    this.#cached = inferlet.cachedTokens;
  }

  /** Usage up to now. Marks the token counts, too. */
  snapshot(): Usage {
    this.mark();
    return this.marked();
  }

  /** Usage up to now, with the token counts of the last mark: the tokens after it belong to a later event. */
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

/** The tokens in a usage that quotas count. */
export const chargedIn = ({ inputTokens = 0, outputTokens = 0, cachedTokens = 0 }: Usage): number =>
  inputTokens - cachedTokens + outputTokens;
