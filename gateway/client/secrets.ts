import type { Secret } from '../app/resources/secrets.ts';
import { type CallOptions, common, withBody } from './calls.ts';
import type { Http } from './http.ts';

/** Secrets of the key's tenant. The API never returns their values. */
export class SecretsClient {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Lists secrets by name. */
  async list(options: CallOptions = {}): Promise<readonly Secret[]> {
    return (await this.#http.json<{ secrets: Secret[] }>('/v1/secrets', common(options))).secrets;
  }

  /** Stores a new revision of a secret. Deployed versions keep the revision that they were deployed with. */
  async set(name: string, value: string, options: CallOptions = {}): Promise<Secret> {
    return this.#http.json(secretPath(name), withBody(options, 'PUT', { value }));
  }

  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.request(secretPath(name), { ...common(options), method: 'DELETE' });
  }
}

function secretPath(name: string): string {
  return `/v1/secrets/${encodeURIComponent(name)}`;
}
