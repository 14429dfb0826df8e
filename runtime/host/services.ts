import type { KeyValues } from '#scheduler/key-values/key-values.ts';
import type { Messaging } from '#scheduler/messaging/messaging.ts';
import type { Shares } from '#scheduler/policies/shares.ts';
import type { ImageService } from '../images/service.ts';
import type { TextService } from '../texts/service.ts';
import type { HttpClient } from './http/client.ts';
import type { Indexes } from './indexes.ts';
import type { SharedNames } from './names/shared-names.ts';
import type { StoreQueues } from './store-queues.ts';

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
