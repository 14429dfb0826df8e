import type { SharedPages } from '#gpu-host/protocol/client.ts';
import type { HandlerError, Outcome } from '#gpu-host/protocol/errors.ts';
import type { FileInfo, PutFileOutcome, StoredFile } from '#scheduler/invocations/files.ts';
import type { KeyValues } from '#scheduler/key-values/key-values.ts';
import type { Messaging } from '#scheduler/messaging/messaging.ts';
import type { Shares } from '#scheduler/policies/shares.ts';
import type { Ending, Message } from '#wit/generated/host.ts';
import type { ImageService } from '../../images/service.ts';
import type { TextService } from '../../texts/service.ts';
import type { SharedNames } from '../memory/shared-names.ts';
import type { StoreQueues } from './ask.ts';
import type { HttpClient } from './http-client.ts';
import type { Indexes } from './indexes.ts';

/** Services of a runtime for all its inferlets, besides devices. */
export interface Services {
  readonly keyValues: KeyValues;
  readonly messaging: Messaging;
  /** Queues the inferlets' short calls to the store, by tenant. */
  readonly storeQueues: StoreQueues;
  /** The bytes that all inferlets hold in this process. */
  readonly bytes: Shares;
  readonly indexes: Indexes;
  /** The names that the GPU hosts share; undefined when each host has its own names. */
  readonly names?: SharedNames | undefined;
  readonly http: HttpClient;
  /** Decodes and resizes images. */
  readonly images: Pick<ImageService, 'prepare'>;
  /** Tokenizes, renders chats and checks JSON. */
  readonly texts: Pick<TextService, 'tokenize' | 'encode' | 'render' | 'check'>;
}

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

/** A running child, as its parent sees it. */
export interface RunningChild {
  /** Id of the child's invocation. */
  readonly id: string;
  /** Resolves when the child has its terminal event. Never rejects. */
  readonly ended: Promise<unknown>;
  /**
   * Resolves with the child's ending once the child has ended. A long result is read from the store when the tenant's queue has room.
   *
   * @param refusal called with the size of a long result right before it is read; an error refuses the read and becomes the outcome
   * @throws StoreError
   */
  ending(refusal: (bytes: number) => HandlerError | null): Promise<Outcome<Ending>>;
  /** Puts a message into the child's inbox. */
  send(message: Message): Promise<Outcome<undefined>>;
  /** Tells the child that no more messages follow, once the store can be reached. */
  closeInbox(): Promise<void>;
  /** Reads the child's messages from the first to the last, or until the signal aborts. */
  messages(signal: AbortSignal): MessageReader;
  cancel(reason: string): void;
}

/** Reads the messages of a child. The holder must close it. */
export interface MessageReader {
  /** The next message; null after the last. Calls must not overlap. @throws StoreError */
  next(): Promise<Message | null>;
  close(): void;
}

/** Launches the children of one inferlet; `lifecycle/children.ts` implements it. */
export interface ChildLauncher {
  launch(name: string, input: string): Promise<Outcome<RunningChild>>;
  /** Stops every child with this reason, and launches no more. */
  stop(reason: HandlerError): void;
}
