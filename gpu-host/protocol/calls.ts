/**
 * Arguments and results of the device calls: records of the contract (`wit/*.wit`), and fields that only the platform sets. A call copies the
 * lists of its arguments before it returns, so they may be views of a guest's memory.
 */
import type {
  LogitChanges,
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
   * Allowed tokens: `ceil(vocabularySize / 32)` words for each output row, in which bit `t % 32` of word `t / 32` allows token `t`. Without this
   * field, all tokens are allowed.
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

/** The version of the present content of an export or file. */
export interface NameVersion {
  /** Random text that no other content has. It changes with each save and with a restart of the host. */
  readonly version: string;
}

/** Layout of the pages of one model. */
export interface PageLayout {
  /** Slots of a page. */
  readonly pageSize: number;
  /** Bytes of the keys and values of a page. */
  readonly pageBytes: number;
}

/** The model that made pages, and their layout. A host can use pages only if they come from the same model in the same layout. */
export interface PagesMaker extends PageLayout {
  /** `Fingerprint.hash` of the model. */
  readonly fingerprint: string;
}

/** Pages that a host has frozen and sends piece by piece. */
export interface SentPages extends PagesMaker {
  /** Id by which later calls of the inferlet name this transfer. */
  readonly sending: number;
  readonly pages: number;
  /** Bytes of all pieces together. */
  readonly bytes: number;
}

/** Maximum pages that a tenant may hold on one host, as read from the store of limits at some time. */
export interface TenantLimit {
  /** Null for no limit. */
  readonly pages: number | null;
  /** Time of the reading, milliseconds since the Unix epoch by the store's clock. Of two limits, the one that was read later counts. */
  readonly readAt: number;
}
