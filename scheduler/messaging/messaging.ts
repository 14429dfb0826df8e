import type { Channels } from '../store/channels.ts';
import type { Store } from '../store/store.ts';
import { Broadcasts } from './broadcasts.ts';
import { MessageQueues } from './queues.ts';

/** Messages between the inferlets of a tenant: broadcasts to all present subscribers, and queues whose messages each go to one puller. */
export class Messaging {
  readonly broadcasts: Broadcasts;
  readonly queues: MessageQueues;

  constructor(store: Store, channels: Channels) {
    this.broadcasts = new Broadcasts(store, channels);
    this.queues = new MessageQueues(store, channels);
  }

  /** Ends every wait and every subscription of this process. */
  close(): void {
    this.broadcasts.close();
    this.queues.close();
  }
}
