import type { SharedPages } from '#gpu-host/protocol/client.ts';
import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { FileInfo, PutFileOutcome, StoredFile } from '#scheduler/invocations/files.ts';
import type { ChildLauncher } from './children.ts';

/** What a root and all its children may use together. */
export interface SharedLimits {
  readonly pages: SharedPages;
  /** Counts tokens that go in and come out of a model. */
  count(tokens: number): void;
  /** Why no more tokens may be asked for, or null. */
  refuseTokens(): HandlerError | null;
}

/** The files of one invocation. Every method throws `StoreError`. */
export interface OwnFiles {
  put(name: string, mediaType: string, content: Uint8Array): Promise<PutFileOutcome>;
  /** Resolves once a file is there; false when none can come any more, or the signal aborts. */
  appears(name: string, signal: AbortSignal): Promise<boolean>;
  get(name: string): Promise<StoredFile | null>;
  list(): Promise<readonly FileInfo[]>;
}

/** What one invocation has of the platform for itself; an inferlet without an invocation has none of it. */
export interface OwnServices {
  readonly children: ChildLauncher;
  readonly files: OwnFiles;
  readonly shared: SharedLimits;
}
