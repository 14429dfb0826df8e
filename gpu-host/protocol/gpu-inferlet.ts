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

/** Highest and, negated, lowest priority of a queue unless the tenant has another. */
export const DEFAULT_MAX_PRIORITY = 10;
/** Whose exports and files an inferlet sees that names no tenant. */
export const DEFAULT_TENANT = 'default';

export interface InferletOptions {
  /** The invocation's id. */
  readonly id: string;
  /**
   * Which attempt of the invocation it is, 0 by default: when a newer one opens an inferlet on the host, those of older ones are ended, and
   * older ones open none any more. A whole number up to 2^53.
   */
  readonly epoch?: number;
  /** Whose exports, files and cached prefixes it sees: `DEFAULT_TENANT` by default. */
  readonly tenant?: string;
  /** Most pages that it may hold, per model. */
  readonly maxPages: number;
  /** Pages that it holds together with others, up to their common limit. */
  readonly sharedPages?: SharedPages;
  /** Priorities of its queues are held within ±`maxPriority`: `DEFAULT_MAX_PRIORITY` by default. */
  readonly maxPriority?: number;
  /** Its place in line: when memory must be taken back, the newest goes first. Milliseconds since the Unix epoch, or any other order. */
  readonly arrival: number;
  /** Most pages of all that its tenant has on the host; without it there is no limit, unless somebody else tells one. */
  readonly tenantPages?: TenantLimit;
  /** The function that runs, for those of its tenant that give way to it. */
  readonly functionName?: string;
  /** W3C trace context, when it is recorded. */
  readonly traceparent?: string;
  /** Told once when the host has taken its memory; its pending calls have been answered `terminated` then. */
  readonly onTerminated?: (termination: Termination) => void;
}

/**
 * One inferlet's calls to the device; the methods mirror `wit/*.wit`. Methods that return nothing never throw for reasons of the device:
 * their failures surface in later futures of the same queue and in `synchronize`. Lists may be views of a guest's memory.
 */
export interface GpuInferlet {
  /** A queue of calls on `model`. With an unknown model, every call on it fails with `not-found`. */
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
   * Encodes a picture into `embeds`. Its place in the queue is taken at once; `pixels`, `imageSize × imageSize` of three bytes each, may come
   * later, or an error, with which it fails and all that needs its embeds.
   */
  embedImage(
    queue: number,
    positions: List,
    embeds: List,
    pixels: Promise<Outcome<Uint8Array>>,
  ): Promise<Outcome<undefined>>;
  forward(queue: number, inPages: List, inEmbeds: List, outPages: List, outEmbeds: List, mask: Mask | undefined): void;
  /** `forward`, and what each slot of the in-pages, then each input, received of its attention. */
  forwardScores(
    queue: number,
    inPages: List,
    inEmbeds: List,
    outPages: List,
    outEmbeds: List,
    mask: Mask | undefined,
  ): Promise<Outcome<Float32Array>>;
  /** `forward` with a low-rank adapter of the model's. */
  forwardWithAdapter(
    queue: number,
    adapter: string,
    inPages: List,
    inEmbeds: List,
    outPages: List,
    outEmbeds: List,
    mask: Mask | undefined,
  ): void;
  /** The low-rank adapters of the queue's model, by name. */
  listAdapters(queue: number): Promise<Outcome<readonly AdapterInfo[]>>;
  /** Brings an adapter into the device's memory before a call waits for it. */
  loadAdapter(queue: number, name: string): Promise<Outcome<undefined>>;
  maskPage(queue: number, page: number, slots: number): void;
  nextDistribution(queue: number, embed: number, topK: number): Promise<Outcome<Distribution>>;
  logProbabilities(queue: number, embed: number, tokens: List): Promise<Outcome<Float32Array>>;
  /** In nats. */
  entropy(queue: number, embed: number): Promise<Outcome<number>>;
  /** As many values as the model's hidden size. */
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
  /** Gives the lock back. */
  unlockFile(queue: number, name: string): Promise<Outcome<undefined>>;
  removeFile(queue: number, name: string, functionName: string): Promise<Outcome<undefined>>;
  listFiles(queue: number, prefix: string, functionName: string): Promise<Outcome<readonly FileInfo[]>>;
  /** Says whether it waits for something other than the device, so that its pages may be swapped out. Its next call says that it does not. */
  setWaiting(waiting: boolean): void;
  /** The calls that follow belong to this span: the high and low word of its id, 0 and 0 for none. */
  setSpan(high: number, low: number): void;
  /** Tells how many pages its tenant may hold on the host from now on. */
  setTenantLimit(limit: TenantLimit): void;
  /** What it has used, as of the host's last word: every 250 ms while that changes, every 10 s while it holds pages, and when it ends. */
  readonly usage: DeviceUsage;
  /** Pages that it holds by the client's own count. */
  readonly heldPages: number;
  /** Those of one model. */
  heldPagesOf(model: string): number;
  /** Calls whose result is awaited, but for pictures whose pixels have not come. */
  readonly pendingCalls: number;
  /** Calls issued since it was opened. */
  readonly issuedCalls: number;
  /** Grows with each call issued on that queue. */
  callsOn(queue: number): number;
  /** Why its host is gone, and all that it held with it; undefined while it can be called, and once it was closed. */
  readonly lost: string | undefined;
  /** Releases everything held; pending futures answer `cancelled`. Resolves when the host has released it, or is gone, or after 30 s. */
  close(): Promise<void>;
}

type List = Uint32Array;
