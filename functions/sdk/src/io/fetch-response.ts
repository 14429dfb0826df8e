import type { Header } from 'pie:inferlet/http@0.1.0';
import { type AbortSignalLike, abortable, throwIfAborted } from '../abort.ts';
import { concatenate, textStream, toText } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { type Exchange, settle } from '../raw.ts';

/** Headers of a response. Lookup ignores the case of names. */
export class Headers implements Iterable<readonly [string, string]> {
  readonly #list: readonly Header[];

  /** @internal Names in lower case. */
  constructor(list: readonly Header[]) {
    this.#list = list;
  }

  /** The value of a header, several values joined with a comma; null if the header is missing. */
  get(name: string): string | null {
    const all = this.getAll(name);
    return all.length === 0 ? null : all.join(', ');
  }

  /** Each value of a header that may come more than once, such as `set-cookie`. */
  getAll(name: string): string[] {
    const wanted = name.toLowerCase();
    return this.#list.filter((header) => header.name === wanted).map(({ value }) => value);
  }

  has(name: string): boolean {
    return this.getAll(name).length > 0;
  }

  *[Symbol.iterator](): Generator<readonly [string, string], void, void> {
    for (const { name, value } of this.#list) yield [name, value];
  }
}

const CLOSED_EARLY =
  'The response was closed while its body was read. Await it (`return await response.json()`) before the scope of `using` ends.';
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/**
 * A response. The body can be read once: iterate the response for pieces of bytes as they arrive, use {@link lines} for lines of text, or
 * read the whole body. The connection closes at the end of the body, or with `using` at the end of the scope.
 */
export class Response implements AsyncIterable<Uint8Array>, Disposable {
  readonly status: number;
  /** URL of the response, after redirects. */
  readonly url: string;
  readonly headers: Headers;
  readonly #exchange: Exchange;
  readonly #signal: AbortSignalLike | undefined;
  #used = false;
  #closed = false;

  /** @internal Constructed by {@link fetch}. */
  constructor(exchange: Exchange, status: number, url: string, headers: Headers, signal: AbortSignalLike | undefined) {
    this.#exchange = exchange;
    this.status = status;
    this.url = url;
    this.headers = headers;
    this.#signal = signal;
  }

  /** True when the status is from 200 to 299. */
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** True when the response is a redirect with a location. */
  get isRedirect(): boolean {
    return REDIRECTS.has(this.status) && this.headers.has('location');
  }

  /** True when the body has been read, at least in part. */
  get bodyUsed(): boolean {
    return this.#used;
  }

  /** The body in pieces of at most 64 KiB. Leaving the loop closes the connection. */
  get body(): AsyncIterable<Uint8Array> {
    return this;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    if (this.#used || this.#closed) {
      const text = this.#used ? 'The body of this response was read already.' : 'This response was closed.';
      throw new InferletError('closed', text);
    }
    this.#used = true;
    try {
      for (;;) {
        throwIfAborted(this.#signal);
        const piece = await abortable(settle(this.#exchange.read()), this.#signal);
        if (piece === null) return;
        yield piece;
      }
    } catch (error) {
      throw this.#closed ? new InferletError('closed', CLOSED_EARLY) : error;
    } finally {
      this.close();
    }
  }

  /** Lines of text, without line ends, as they arrive. */
  async *lines(): AsyncGenerator<string, void, void> {
    const text = textStream();
    let incompleteLine = '';
    for await (const piece of this) {
      const lines = (incompleteLine + text.push(piece)).split(/\r\n|\n/);
      incompleteLine = lines.pop() ?? '';
      yield* lines;
    }
    incompleteLine += text.finish();
    if (incompleteLine !== '') yield incompleteLine;
  }

  async bytes(): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this) pieces.push(piece);
    return concatenate(pieces);
  }

  async text(): Promise<string> {
    return toText(await this.bytes());
  }

  /** Parses the body as JSON. Throws `unavailable` when it is not JSON. */
  async json<T = unknown>(): Promise<T> {
    const text = await this.text();
    try {
      return JSON.parse(text) as T;
    } catch {
      const begin = JSON.stringify(text.slice(0, 80));
      throw new InferletError(
        'unavailable',
        `${this.url} answered ${this.status} with a body that is not JSON: ${begin}.`,
      );
    }
  }

  /** Closes the connection. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#exchange.drop();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
