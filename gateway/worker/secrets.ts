import type { Call } from '../app/control.ts';
import type { Secret, Secrets } from '../app/resources/secrets.ts';
import { type ClientOf, isFound, options, translating } from './origin.ts';

/** Secrets by HTTP: the origin stores them. */
export class OriginSecrets implements Secrets {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  list(call: Call): Promise<readonly Secret[]> {
    return translating(() => this.#client(call).secrets.list(options(call)));
  }

  set(call: Call, name: string, value: string): Promise<Secret> {
    return translating(() => this.#client(call).secrets.set(name, value, options(call)));
  }

  remove(call: Call, name: string): Promise<boolean> {
    return isFound('unknown-secret', () => this.#client(call).secrets.remove(name, options(call)));
  }
}
