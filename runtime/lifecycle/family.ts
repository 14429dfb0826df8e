import { SharedPages } from '#gpu-host/protocol/client.ts';
import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { Peak } from '#scheduler/admission/admission.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { Redactions } from '../host/environment/redact.ts';
import type { SharedLimits } from '../host/own.ts';
import { FamilyMemory } from './family-memory.ts';

/** Children that one root may have at once, theirs included. */
export const MAX_CHILDREN = 64;
/** Children that one root may have in all, those that have ended included: each leaves a record and a log behind. */
export const MAX_LAUNCHES = 4096;
/** Generations below a root. */
export const MAX_DEPTH = 8;

/**
 * A root and all its children. Only the root was admitted, so all of them together stay within what it may use: its pages (of each model)
 * and its tokens are shared. Everything else is bounded for each by itself.
 */
export class Family implements SharedLimits {
  readonly root: InvocationJob;
  readonly pages: SharedPages;
  readonly memory = new FamilyMemory();
  /** Secrets of all of them: what a child was told is not to stand in its log either. */
  readonly redactions = new Redactions();
  /** When it was decided which GPU host serves the root, and so all of them; milliseconds since the Unix epoch. */
  placedAt: number | undefined;
  #tokens = 0;
  #children = 0;
  #launches = 0;

  constructor(root: InvocationJob) {
    this.root = root;
    this.pages = new SharedPages(root.id, root.limits.pages);
  }

  /** Children that run. */
  get children(): number {
    return this.#children;
  }

  /** What all of them held at most, at one time. */
  get peak(): Peak {
    return { pages: Object.fromEntries(this.pages.peak), memoryMb: this.memory.peakMb };
  }

  count(tokens: number): void {
    this.#tokens += tokens;
  }

  refuseTokens(): HandlerError | null {
    const { tokens } = this.root.limits;
    if (this.#tokens <= tokens) return null;
    const text = `the ${tokens} tokens of ${this.root.function} and all its children are used up (manifest: limits.tokens)`;
    return handlerError('limit-exceeded', text);
  }

  /** Takes a place for a child of somebody `depth` generations below the root; null, or why there is none. */
  enter(depth: number): HandlerError | null {
    if (depth >= MAX_DEPTH) {
      return handlerError('limit-exceeded', `children may be nested ${MAX_DEPTH} deep; this inferlet may have none`);
    }
    if (this.#children >= MAX_CHILDREN) {
      const text = `${MAX_CHILDREN} children of ${this.root.function} run already; wait for some of them to end`;
      return handlerError('limit-exceeded', text);
    }
    if (this.#launches >= MAX_LAUNCHES) {
      const text = `${this.root.function} and its children have launched ${MAX_LAUNCHES} children; no root may have more in all`;
      return handlerError('limit-exceeded', text);
    }
    this.#children++;
    this.#launches++;
    return null;
  }

  /** Gives a place back. @param begun whether a child began there; otherwise it counts as never launched */
  leave(begun: boolean): void {
    this.#children--;
    if (!begun) this.#launches--;
  }
}
