import type { KeyValues } from '#scheduler/key-values/key-values.ts';
import type { Messaging } from '#scheduler/messaging/messaging.ts';
import type { ImageService } from '../images/service.ts';
import type { TextService } from '../texts/service.ts';
import type { HttpClient } from './http/client.ts';
import type { StoreLines } from './store-lines.ts';

/** What a runtime offers to all its inferlets besides devices. */
export interface Services {
  readonly keyValues: KeyValues;
  readonly messaging: Messaging;
  /** Where calls of the two above wait for their turn. */
  readonly storeLines: StoreLines;
  readonly http: HttpClient;
  /** Decodes and resizes pictures. */
  readonly images: Pick<ImageService, 'prepare'>;
  /** Tokenizes, renders chats and checks JSON. */
  readonly texts: Pick<TextService, 'tokenize' | 'render' | 'check'>;
}
