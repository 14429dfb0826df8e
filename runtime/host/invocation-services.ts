import type { SharedPages } from '#gpu-host/protocol/client.ts';
import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { FileInfo, PutFileOutcome, StoredFile } from '#scheduler/invocations/files.ts';
import type { ChildLauncher } from './children.ts';

/** Limits that a root and all its children share. */
export interface SharedLimits {
  readonly pages: SharedPages;
  /** Counts input and output tokens of models and encoders. */
  count(tokens: number): void;
  /** The error when the family may request no more tokens, or null. */
  refuseTokens(): HandlerError | null;
}

/** The files of one invocation. Every method may reject with `StoreError`. */
export interface InvocationFiles {
  put(name: string, mediaType: string, content: Uint8Array): Promise<PutFileOutcome>;
  /** Resolves with true once the file exists; with false when no more files can come, or the signal aborts. */
  appears(name: string, signal: AbortSignal): Promise<boolean>;
  get(name: string): Promise<StoredFile | null>;
  list(): Promise<readonly FileInfo[]>;
}

/** Services of one invocation; an inferlet without an invocation has none. */
export interface InvocationServices {
  readonly children: ChildLauncher;
  readonly files: InvocationFiles;
  readonly shared: SharedLimits;
}
