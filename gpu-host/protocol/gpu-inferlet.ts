import type {
  AdapterInfo,
  Distribution,
  ExportInfo,
  FileInfo,
  FileSave,
  Imported,
  Mask,
  RunRequest,
  StepRequest,
  StepResult,
  TenantLimit,
} from './calls.ts';
import type { Outcome } from './errors.ts';
import type { SharedPages } from './page-budget.ts';
import type { DeviceUsage, Termination } from './results.ts';
import type { RunHandle } from './run.ts';

/** Bound of a queue's priorities, ±, unless the tenant has another. */
export const DEFAULT_MAX_PRIORITY = 10;
/** Tenant of an inferlet that names none. */
export const DEFAULT_TENANT = 'default';

export interface InferletOptions {
  /** The invocation's id. */
  readonly id: string;
  /**
   * Attempt of the invocation, 0 by default. When a newer attempt opens an inferlet on the host, the host ends those of older attempts and
   * refuses later ones. A whole number up to 2^53.
   */
  readonly epoch?: number;
  /** Tenant whose exports, files and cached prefixes the inferlet sees: `DEFAULT_TENANT` by default. */
  readonly tenant?: string;
  /** Maximum pages that the inferlet may hold, per model. */
  readonly maxPages: number;
  /** Budget of pages that the inferlet shares with others. */
  readonly sharedPages?: SharedPages;
  /** Priorities of the queues are clamped to ±`maxPriority`: `DEFAULT_MAX_PRIORITY` by default. */
  readonly maxPriority?: number;
  /** Age of the inferlet: when memory must be taken back, the newest goes first. Milliseconds since the Unix epoch, or any other order. */
  readonly arrival: number;
  /** Maximum pages of the tenant on the host; without it there is no limit, unless another inferlet of the tenant brings one. */
  readonly tenantPages?: TenantLimit;
  /** Name of the function that runs, shown to inferlets of the tenant that give way to it. */
  readonly functionName?: string;
  /** W3C trace context, when the inferlet is traced. */
  readonly traceparent?: string;
  /** Called once when the host has taken the inferlet's memory; its pending calls have been answered `terminated` by then. */
  readonly onTerminated?: (termination: Termination) => void;
}

/**
 * One inferlet's calls to the device; the methods mirror `wit/*.wit`. Methods that return nothing never throw for device errors: these
 * surface in later futures of the same queue and in `synchronize`. Lists may be views of a guest's memory.
 */
export interface GpuInferlet {
  /** Opens a queue of calls on `model`. With an unknown model, every call on the queue fails with `not-found`. */
  createQueue(model: string): number;
  setPriority(queue: number, priority: number): void;
  closeQueue(queue: number): void;
  allocatePages(queue: number, count: number): Outcome<Uint32Array>;
  freePages(queue: number, pages: List): void;
  allocateEmbeds(queue: number, count: number): Outcome<Uint32Array>;
  freeEmbeds(queue: number, embeds: List): void;
  sharePages(queue: number, pages: List): Outcome<Uint32Array>;
  /** `shift`, a signed whole number, is added to the copied slots' positions. */
  copySlots(
    queue: number,
    source: number,
    sourceOffset: number,
    destination: number,
    destinationOffset: number,
    count: number,
    shift?: number,
  ): void;
  copyTokens(queue: number, sources: List, indices: List, destinations: List, positions: List): void;
  copyEmbeds(queue: number, sources: List, destinations: List): void;
  embedText(queue: number, tokens: List, positions: List, embeds: List): void;
  /**
   * Encodes an image into `embeds`. The call takes its place in the queue at once. `pixels`, `imageSize × imageSize` of three bytes each,
   * may come later; so may an error, with which the call and all that needs its embeds fail.
   */
  embedImage(
    queue: number,
    positions: List,
    embeds: List,
    pixels: Promise<Outcome<Uint8Array>>,
  ): Promise<Outcome<undefined>>;
  forward(queue: number, inPages: List, inEmbeds: List, outPages: List, outEmbeds: List, mask: Mask | undefined): void;
  /** `forward`, plus the attention that each slot of the in-pages, then each input, received. */
  forwardScores(
    queue: number,
    inPages: List,
    inEmbeds: List,
    outPages: List,
    outEmbeds: List,
    mask: Mask | undefined,
  ): Promise<Outcome<Float32Array>>;
  /** `forward` with one of the model's low-rank adapters. */
  forwardWithAdapter(
    queue: number,
    adapter: string,
    inPages: List,
    inEmbeds: List,
    outPages: List,
    outEmbeds: List,
    mask: Mask | undefined,
  ): void;
  /** The low-rank adapters of the queue's model, sorted by name. */
  listAdapters(queue: number): Promise<Outcome<readonly AdapterInfo[]>>;
  /** Brings an adapter into the device's memory before a call waits for it. */
  loadAdapter(queue: number, name: string): Promise<Outcome<undefined>>;
  maskPage(queue: number, page: number, slots: number): void;
  nextDistribution(queue: number, embed: number, topK: number): Promise<Outcome<Distribution>>;
  logProbabilities(queue: number, embed: number, tokens: List): Promise<Outcome<Float32Array>>;
  /** The entropy in nats. */
  entropy(queue: number, embed: number): Promise<Outcome<number>>;
  /** The embed's values, as many as the model's hidden size. */
  readEmbed(queue: number, embed: number): Promise<Outcome<Float32Array>>;
  step(queue: number, request: StepRequest): Promise<Outcome<StepResult>>;
  run(queue: number, request: RunRequest): RunHandle;
  synchronize(queue: number): Promise<Outcome<undefined>>;
  exportPages(queue: number, pages: List, name: string, persistent: boolean): Promise<Outcome<undefined>>;
  importPages(queue: number, name: string): Promise<Outcome<Imported>>;
  unexport(queue: number, name: string): Promise<Outcome<undefined>>;
  listExports(queue: number): Promise<Outcome<readonly ExportInfo[]>>;
  /** Maps a file's pages; with `write` its lock is held until `unlockFile` or the inferlet's end. */
  openFile(queue: number, name: string, write: boolean, functionName: string): Promise<Outcome<Imported>>;
  saveFile(queue: number, name: string, pages: List, save: FileSave): Promise<Outcome<undefined>>;
  unlockFile(queue: number, name: string): Promise<Outcome<undefined>>;
  removeFile(queue: number, name: string, functionName: string): Promise<Outcome<undefined>>;
  listFiles(queue: number, prefix: string, functionName: string): Promise<Outcome<readonly FileInfo[]>>;
  /** Sets whether the inferlet waits for something other than the device: its pages may then be swapped out. Any call ends the wait. */
  setWaiting(waiting: boolean): void;
  /** Sets the span of the following calls: the high and low word of its id, 0 and 0 for none. */
  setSpan(high: number, low: number): void;
  /** Sets the maximum pages of the tenant on the host. */
  setTenantLimit(limit: TenantLimit): void;
  /** Usage last reported by the host: every 250 ms while it changes, every 10 s while the inferlet holds pages, and at its end. */
  readonly usage: DeviceUsage;
  /** Pages held, by the client's own count. */
  readonly heldPages: number;
  /** Pages held on one model, by the client's own count. */
  heldPagesOf(model: string): number;
  /** Calls whose result is awaited, except images whose pixels have not come. */
  readonly pendingCalls: number;
  /** Calls issued so far. */
  readonly issuedCalls: number;
  /** Counter that grows with each call issued on that queue. */
  callsOn(queue: number): number;
  /** Cause of the host's loss, with all that the inferlet held; undefined while the host can be called, and after `close`. */
  readonly lost: string | undefined;
  /** Releases everything held; pending futures answer `cancelled`. Resolves when the host has released it, is gone, or after 30 s. */
  close(): Promise<void>;
}

type List = Uint32Array;
