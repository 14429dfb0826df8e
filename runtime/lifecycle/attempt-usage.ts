import type { Usage } from '#scheduler/invocations/types.ts';
import type { Inferlet } from '../host/inferlet.ts';
import type { Execution } from '../lowering/execution.ts';

/** What is asked of the parts of an attempt. */
export interface UsageParts {
  readonly inferlet: Pick<
    Inferlet,
    'inputTokens' | 'outputTokens' | 'cachedTokens' | 'deviceUsage' | 'pagesPeak' | 'session'
  >;
  readonly execution: Pick<Execution, 'cpuMs'> & { readonly guest: { readonly calls: number; memoryBytes: number } };
  /** From its submission to the beginning of this attempt. */
  readonly queuedMs: number;
}

/** What one attempt has used: each number only ever grows, and says all since the attempt began. */
export class AttemptUsage {
  readonly #parts: UsageParts;
  readonly #ranFrom = performance.now();
  #wallMs: number | null = null;
  #memoryBytes = 0;

  constructor(parts: UsageParts) {
    this.#parts = parts;
  }

  /** The guest runs no more; its memory is about to go. */
  returned(): void {
    this.#wallMs = performance.now() - this.#ranFrom;
    this.#memoryBytes = this.#parts.execution.guest.memoryBytes;
  }

  snapshot(): Usage {
    const { inferlet, execution, queuedMs } = this.#parts;
    const { gpuUs, pageMs } = inferlet.deviceUsage;
    const returned = this.#wallMs !== null;
    return {
      inputTokens: inferlet.inputTokens,
      outputTokens: inferlet.outputTokens,
      cachedTokens: inferlet.cachedTokens,
      cpuMs: rounded(execution.cpuMs),
      gpuMs: gpuUs / 1000,
      wallMs: rounded(this.#wallMs ?? performance.now() - this.#ranFrom),
      queuedMs,
      pageSeconds: pageMs / 1000,
      kvPagesPeak: Math.max(0, ...inferlet.pagesPeak.values()),
      memoryBytes: returned ? this.#memoryBytes : execution.guest.memoryBytes,
      messages: inferlet.session.messages,
      calls: execution.guest.calls,
    };
  }
}

/** Milliseconds, to the microsecond. */
export const rounded = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;
