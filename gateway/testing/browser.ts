import assert from 'node:assert/strict';
import { type Frame, readFrames } from '../client/event-source.ts';

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

/** A browser that follows no redirects. */
export class Browser {
  readonly url: string;
  cookie = '';

  constructor(url: string) {
    this.url = url;
  }

  get(path: string, headers: Record<string, string> = {}): Promise<Response> {
    return this.#send(path, { headers });
  }

  head(path: string, headers: Record<string, string>): Promise<Response> {
    return this.#send(path, { method: 'HEAD', headers });
  }

  post(
    path: string,
    fields: Record<string, string> | string[][],
    headers: Record<string, string> = {},
  ): Promise<Response> {
    const body = new URLSearchParams(fields).toString();
    return this.#send(path, { method: 'POST', body, headers: { ...FORM, origin: this.url, ...headers } });
  }

  async signIn(key: string): Promise<this> {
    const response = await this.post('/dashboard/sign-in', { key });
    assert.equal(response.status, 303, await response.text());
    this.cookie = response.headers.get('set-cookie')?.split(';', 1)[0] ?? '';
    return this;
  }

  async page(path: string): Promise<string> {
    const response = await this.get(path);
    const text = await response.text();
    assert.equal(response.status, 200, text);
    return text;
  }

  /** The token that the forms of this session carry. */
  async token(): Promise<string> {
    return /name="token" value="([\w-]+)"/.exec(await this.page('/dashboard/functions'))?.[1] ?? '';
  }

  async *follow(path: string): AsyncGenerator<Frame> {
    const leaving = new AbortController();
    const response = await this.#send(path, { headers: { accept: 'text/event-stream' }, signal: leaving.signal });
    assert.equal(response.status, 200);
    assert.ok(response.body);
    try {
      yield* readFrames(response.body, { idleTimeoutMs: 60_000, signal: leaving.signal });
    } finally {
      leaving.abort();
    }
  }

  #send(path: string, init: RequestInit): Promise<Response> {
    return fetch(this.url + path, {
      ...init,
      redirect: 'manual',
      headers: { ...(this.cookie === '' ? {} : { cookie: this.cookie }), ...(init.headers as Record<string, string>) },
    });
  }
}
