import type { InvocationPage, InvocationQuery, Operations, PlatformLoad } from '../app/control/operations.ts';
import type { Call } from '../app/control.ts';
import { type ClientOf, options, translating } from './origin.ts';

/** What the origin says of what goes on. */
export class OriginOperations implements Operations {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage> {
    return translating(() => this.#client(call).operations.invocations({ ...options(call), ...query }));
  }

  load(call: Call): Promise<PlatformLoad> {
    return translating(() => this.#client(call).operations.load(options(call)));
  }

  webhookSecret(call: Call, rotate: boolean): Promise<string> {
    return translating(() => this.#client(call).operations.webhookSecret({ ...options(call), rotate }));
  }
}
