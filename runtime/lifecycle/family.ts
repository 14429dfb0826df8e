import { SharedPages } from '#gpu-host/protocol/client.ts';
import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob, Peak } from '#scheduler/admission/job.ts';
import type { SharedLimits } from '../host/services/services.ts';
import { Redactor } from '../host/session/redact.ts';
import { INSTANCE_OVERHEAD_BYTES } from '../pool/pool.ts';
import { HeldTime } from './wall-time.ts';

/** Descendants that one root may have at once. */
export const MAX_CHILDREN = 64;
/** Descendants that one root may launch in all, including ended ones: each leaves a record and a log behind. */
export const MAX_LAUNCHES = 4096;
/** Maximum number of generations below a root. */
export const MAX_DEPTH = 8;

/**
 * A root and all its descendants. Only the root was admitted, so the family shares the root's pages (of each model) and tokens. Every other
 * limit applies to each inferlet separately.
 */
export class Family implements SharedLimits {
  #root: InvocationJob;
  readonly pages: SharedPages;
  readonly memory = new FamilyMemory();
  /** Time during which GPU hosts held calls of the family. */
  readonly heldTime = new HeldTime();
  /** Secrets of the whole family: a child must not log a secret that its parent told it. */
  readonly redactor = new Redactor();
  /** When a GPU host was chosen for the root, and so for the whole family; by `performance.now`, which no step of the clock moves. */
  placedAtMs: number | undefined;
  #tokens = 0;
  #children = 0;
  #launches = 0;

  constructor(root: InvocationJob) {
    this.#root = root;
    this.pages = new SharedPages(root.id, root.limits.pages);
  }

  get root(): InvocationJob {
    return this.#root;
  }

  /** Sets the pages of each model that the family may hold, once its models are known and before any of its inferlets is opened. */
  bound(pages: number): void {
    this.#root = { ...this.#root, limits: { ...this.#root.limits, pages } };
    this.pages.maxPages = pages;
  }

  /** Number of descendants that run or are being launched. */
  get children(): number {
    return this.#children;
  }

  /** The most that the whole family held at one time. */
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

  /** Counts a new child of an inferlet that is `depth` generations below the root; returns an error when a limit forbids the child. */
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

  /** Stops counting a child as running. @param begun false when the child never began; it then does not count as launched either */
  leave(begun: boolean): void {
    this.#children--;
    if (!begun) this.#launches--;
  }
}

/** An instance. Its memory never shrinks. */
interface Instance {
  readonly memoryBytes: number;
}

const MIB = 1024 * 1024;

/** Memory that the instances of one family take together. */
export class FamilyMemory {
  readonly #running = new Set<Instance>();
  #peakBytes = 0;

  enter(instance: Instance): void {
    this.#running.add(instance);
  }

  /** Removes an ended instance and returns its memory. The family's memory peaks just before such an end, because instances only grow. */
  leave(instance: Instance): number {
    let bytes = 0;
    for (const { memoryBytes } of this.#running) bytes += memoryBytes + INSTANCE_OVERHEAD_BYTES;
    this.#peakBytes = Math.max(this.#peakBytes, bytes);
    this.#running.delete(instance);
    return instance.memoryBytes;
  }

  /** The largest sum seen at the end of an instance, MiB. */
  get peakMb(): number {
    return Math.ceil(this.#peakBytes / MIB);
  }
}
