import type { Usage } from '#scheduler/invocations/types.ts';
import type { Inferlet } from '../host/inferlet.ts';
import type { GuestRun } from './launch.ts';

/** What is asked of the parts of an attempt. */
export interface UsageParts {
  readonly inferlet: Pick<
    Inferlet,
    'inputTokens' | 'outputTokens' | 'cachedTokens' | 'deviceUsage' | 'pagesPeak' | 'session'
  >;
  readonly run: Pick<GuestRun, 'cpuMs' | 'calls' | 'memoryBytes'>;
  /** From its submission to the beginning of this attempt. */
  readonly queuedMs: number;
}

/** What one attempt has used: each number only ever grows, and says all since the attempt began. */
export class AttemptUsage {
  readonly #parts: UsageParts;
  readonly #ranFrom = performance.now();
  #wallMs: number | null = null;
  #input = 0;
  #output = 0;
  #cached = 0;

  constructor(parts: UsageParts) {
    this.#parts = parts;
  }

  /** The guest has ended: its wall time stands. */
  returned(): void {
    this.#wallMs = performance.now() - this.#ranFrom;
  }

  /** Tokens that have been counted until here belong to what is written next. For each event, so it only takes these down. */
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

  /** What has been used by now, with the tokens of the last mark: those past it are in nothing that was written. */
  marked(): Usage {
    const { inferlet, run, queuedMs } = this.#parts;
    const { gpuUs, pageMs } = inferlet.deviceUsage;
    return {
      inputTokens: this.#input,
      outputTokens: this.#output,
      cachedTokens: this.#cached,
      cpuMs: rounded(run.cpuMs),
      gpuMs: gpuUs / 1000,
      wallMs: rounded(this.#wallMs ?? performance.now() - this.#ranFrom),
      queuedMs,
      pageSeconds: pageMs / 1000,
      kvPagesPeak: Math.max(0, ...inferlet.pagesPeak.values()),
      memoryBytes: run.memoryBytes,
      messages: inferlet.session.messages,
      calls: run.calls,
    };
  }
}

/** Milliseconds, to the microsecond. */
export const rounded = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;

/** Tokens of an attempt of which the store has heard nothing. */
export const NOTHING_COUNTED = { inputTokens: 0, outputTokens: 0, cachedTokens: 0 };

export const tokensOf = ({ inputTokens = 0, outputTokens = 0, cachedTokens = 0 }: Usage): typeof NOTHING_COUNTED => ({
  inputTokens,
  outputTokens,
  cachedTokens,
});
