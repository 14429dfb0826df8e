/**
 * Arguments and results of the device calls: records of the contract (`wit/*.wit`), and the fields that only the platform sets. Lists handed
 * to a call are copied before it returns, so they may be views of a guest's memory.
 */
import type {
  FinishReason,
  LogitChanges,
  Residency,
  Rights,
  Tier,
  RunRequest as WitRunRequest,
  StepRequest as WitStepRequest,
  StepResult as WitStepResult,
} from '#wit/generated/host.ts';

export type {
  AdapterInfo,
  Distribution,
  ExportInfo,
  FinishReason,
  Imported,
  KvFilesFileInfo as FileInfo,
  LogitChanges,
  Mask,
  Output as StepOutput,
  Residency,
  Rights as FileRights,
  RunChunk,
  Sampler,
  Tier,
} from '#wit/generated/host.ts';

export interface StepRequest extends WitStepRequest {
  /**
   * Allowed tokens, one row of `ceil(vocabularySize / 32)` words per output row: bit `t % 32` of word `t / 32`. Without it, all tokens are allowed.
   */
  readonly allowed?: Uint32Array | undefined;
  /** Name of the low-rank adapter to compute with. */
  readonly adapter?: string | undefined;
}

export interface RunRequest extends WitRunRequest {
  /** Changes of the logits, for a run that `penalties.start-run` starts. */
  readonly changes?: LogitChanges | undefined;
}

export interface StepResult extends WitStepResult {
  /** Inputs taken from the prefix cache instead of computed. */
  readonly cachedTokens: number;
}

/** In the order of their wire codes, from 1. */
export const FINISH_REASONS = ['stop-token', 'max-tokens', 'stopped'] as const satisfies readonly FinishReason[];

/** In the order of their wire codes, from 0. */
export const FILE_RIGHTS = ['private', 'readable', 'writable'] as const satisfies readonly Rights[];

/** In the order of their wire codes, from 0, and from the fastest on. */
export const TIERS = ['device', 'memory', 'disk'] as const satisfies readonly Tier[];

/** A residency as it travels: JSON has no numbers of 64 bits. */
export type WireResidency = Omit<Residency, 'bytes'> & { readonly bytes: number };

/** The content that a name has now. */
export interface NameVersion {
  /** Random text, which no other content has: a save, or a restart of the host, gives another one. */
  readonly version: string;
}

/** Layout of the pages of one model. */
export interface PageLayout {
  /** Slots of a page. */
  readonly pageSize: number;
  /** Bytes of the keys and values of a page. */
  readonly pageBytes: number;
}

/** The model that made pages, and their layout: only pages of an equal maker can be used. */
export interface PagesMaker extends PageLayout {
  /** `Fingerprint.hash` of the model. */
  readonly fingerprint: string;
}

/** Pages that a host has frozen and sends piece by piece. */
export interface SentPages extends PagesMaker {
  /** Names the sending in later calls of the inferlet. */
  readonly sending: number;
  readonly pages: number;
  /** Bytes of all pieces together. */
  readonly bytes: number;
}

/** Maximum pages that a tenant holds on one host, as read at some time. */
export interface TenantLimit {
  /** Null for no limit. */
  readonly pages: number | null;
  /** Time of the reading, ms since the epoch by the clock of the limit's store: of two limits the later reading counts. */
  readonly readAt: number;
}
