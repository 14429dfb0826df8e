import type { Channels } from '../store/channels.ts';
import type { Store } from '../store/store.ts';
import { Broadcasts } from './broadcasts.ts';
import { Lines } from './lines.ts';

/** Messages between the inferlets of a tenant: broadcasts to all present subscribers, and lines whose messages each go to one puller. */
export class Messaging {
  readonly broadcasts: Broadcasts;
  readonly lines: Lines;

  constructor(store: Store, channels: Channels) {
    this.broadcasts = new Broadcasts(store, channels);
    this.lines = new Lines(store, channels);
  }

  /** Ends every wait and every subscription of this process. */
  close(): void {
    this.broadcasts.close();
    this.lines.close();
  }
}
