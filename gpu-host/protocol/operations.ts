import type { FileRights, Mask, RunRequest, StepRequest, TenantLimit } from './calls.ts';
import type { HandlerError } from './errors.ts';

/** The inferlet's handle on this connection, its queue, and the id of the result. */
export interface CallHeader {
  readonly inferlet: number;
  readonly queue: number;
  /** 0 when the client wants no result. */
  readonly id: number;
}

/** One call as the host reads it. Lists are copies. The decoder checks only the frame's shape: handlers check the values. */
export type DecodedCall = CallHeader &
  (
    | OpenInferletOperation
    | { readonly op: 'close-inferlet' }
    | { readonly op: 'close-queue' }
    | { readonly op: 'run-stop' }
    | { readonly op: 'create-queue'; readonly model: number }
    | { readonly op: 'set-priority'; readonly priority: number }
    | { readonly op: 'run-consumed'; readonly tokens: number }
    | { readonly op: 'set-waiting'; readonly waiting: boolean }
    | { readonly op: 'set-tenant-limit'; readonly tenantPages: TenantLimit }
    | { readonly op: 'set-span'; readonly high: number; readonly low: number }
    | { readonly op: 'image-pixels'; readonly pixels: Uint8Array }
    | { readonly op: 'image-failed'; readonly why: HandlerError }
    | QueuedOperation
  );

export interface OpenInferletOperation {
  readonly op: 'open-inferlet';
  /** Maximum pages on each model. */
  readonly maxPages: number;
  /** Priorities of the queues are clamped to ±`maxPriority`. */
  readonly maxPriority: number;
  readonly arrival: number;
  /** The invocation's id. */
  readonly name: string;
  /** Attempt of the invocation: a newer attempt replaces earlier ones. */
  readonly epoch: number;
  readonly tenant: string;
  /** Family whose pages are counted together; empty for none. */
  readonly family: string;
  /** Attempt of the family's root. */
  readonly familyEpoch: number;
  /** Maximum pages of the whole family on each model. */
  readonly familyPages: number;
  /** Maximum pages of the tenant on the host. */
  readonly tenantPages: TenantLimit;
  /** The function that runs. */
  readonly functionName: string;
  /** W3C trace context; empty when the inferlet is not traced. */
  readonly traceparent: string;
}

/** The calls that are ordered by a queue. */
export type QueuedOperation =
  | { readonly op: 'allocate-pages' | 'allocate-embeds'; readonly first: number; readonly count: number }
  | { readonly op: 'free-pages'; readonly pages: Uint32Array }
  | { readonly op: 'free-embeds'; readonly embeds: Uint32Array }
  | { readonly op: 'share-pages'; readonly first: number; readonly pages: Uint32Array }
  | CopySlotsOperation
  | { readonly op: 'copy-embeds'; readonly sources: Uint32Array; readonly destinations: Uint32Array }
  | EmbedTextOperation
  | ForwardOperation
  | { readonly op: 'mask-page'; readonly page: number; readonly slots: number }
  | NextDistributionOperation
  | StepOperation
  | RunOperation
  | { readonly op: 'synchronize' }
  | CopyTokensOperation
  | ExportPagesOperation
  | { readonly op: 'import-pages'; readonly first: number; readonly name: string }
  | { readonly op: 'unexport'; readonly name: string }
  | { readonly op: 'list-exports' }
  | LogProbabilitiesOperation
  | { readonly op: 'entropy' | 'read-embed'; readonly embed: number }
  | FileOperation
  | AdapterOperation
  | EmbedImageOperation;

export interface CopySlotsOperation {
  readonly op: 'copy-slots';
  readonly source: number;
  readonly sourceOffset: number;
  readonly destination: number;
  readonly destinationOffset: number;
  readonly count: number;
  /** Added to each copied slot's position. */
  readonly shift: number;
}

export interface CopyTokensOperation {
  readonly op: 'copy-tokens';
  readonly sources: Uint32Array;
  /** Indices of filled slots of `sources`, in order. */
  readonly indices: Uint32Array;
  readonly destinations: Uint32Array;
  /** One per token; empty keeps the old ones. */
  readonly positions: Uint32Array;
}

export interface ExportPagesOperation {
  readonly op: 'export-pages';
  readonly persistent: boolean;
  readonly name: string;
  readonly pages: Uint32Array;
}

export interface LogProbabilitiesOperation {
  readonly op: 'log-probabilities';
  readonly embed: number;
  readonly tokens: Uint32Array;
}

export type FileOperation =
  | FileOpenOperation
  | FileSaveOperation
  | { readonly op: 'file-unlock'; readonly name: string }
  | { readonly op: 'file-remove'; readonly name: string; readonly functionName: string }
  | { readonly op: 'file-list'; readonly prefix: string; readonly functionName: string };

export type AdapterOperation =
  | { readonly op: 'list-adapters' }
  | { readonly op: 'load-adapter'; readonly name: string };

export interface FileOpenOperation {
  readonly op: 'file-open';
  /** Address of the first page. */
  readonly first: number;
  readonly name: string;
  /** True to take the file's lock. */
  readonly write: boolean;
  /** The function that opens the file. */
  readonly functionName: string;
}

export interface FileSaveOperation {
  readonly op: 'file-save';
  readonly name: string;
  readonly persistent: boolean;
  readonly rights: FileRights;
  /** The function that saves: the owner of a new file. */
  readonly functionName: string;
  readonly pages: Uint32Array;
}

export interface EmbedTextOperation {
  readonly op: 'embed-text';
  readonly tokens: Uint32Array;
  readonly positions: Uint32Array;
  readonly embeds: Uint32Array;
}

/** The pixels, or an error, follow with the same id; until then the call keeps its place in its queue. */
export interface EmbedImageOperation {
  readonly op: 'embed-image';
  readonly positions: Uint32Array;
  readonly embeds: Uint32Array;
}

export interface ForwardOperation {
  /** `forward-scores` answers with the attention received as well. */
  readonly op: 'forward' | 'forward-scores';
  readonly inPages: Uint32Array;
  readonly inEmbeds: Uint32Array;
  readonly outPages: Uint32Array;
  readonly outEmbeds: Uint32Array;
  readonly mask: Mask | undefined;
  /** Name of the low-rank adapter to compute with; a `forward-scores` has none. */
  readonly adapter?: string;
}

export interface NextDistributionOperation {
  readonly op: 'next-distribution';
  readonly embed: number;
  readonly topK: number;
}

export interface StepOperation {
  readonly op: 'step';
  readonly request: StepRequest;
}

export interface RunOperation {
  readonly op: 'run';
  readonly request: RunRequest;
}
