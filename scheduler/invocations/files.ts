import { setTimeout as sleep } from 'node:timers/promises';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import { type Channels, Wakeup } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { unexpected } from './replies.ts';
import { fileFault, MAX_FAMILY_FILES_BYTES, MAX_FILES, MAX_FILES_BYTES, MAX_TENANT_FILES_BYTES } from './types.ts';

/** A file of an invocation, put by its client or its inferlet. */
export interface FileInfo {
  readonly name: string;
  readonly mediaType: string;
  /** Bytes. */
  readonly size: number;
}

export interface StoredFile extends FileInfo {
  readonly content: Uint8Array;
}

/**
 * `unknown`: there is no such invocation. `ended`: the invocation has its terminal event, or the attempt that puts the file is over. The other
 * outcomes name a bound that the file would exceed: the number of the invocation's files (`too-many`), the bytes of all its files (`too-large`),
 * those of its family (`family-full`; see `NewChild.root`), or those of its tenant (`tenant-full`).
 */
export type PutFileOutcome = 'ok' | 'unknown' | 'ended' | 'too-many' | 'too-large' | 'family-full' | 'tenant-full';

const SCRIPTS = {
  get: loadScript(new URL('./files.lua', import.meta.url), 'file-get'),
  put: loadScript(new URL('./files.lua', import.meta.url), 'file-put'),
  look: loadScript(new URL('./files.lua', import.meta.url), 'file-look'),
};

const PUT_OUTCOMES: Readonly<Record<string, PutFileOutcome>> = {
  1: 'ok',
  0: 'unknown',
  [-1]: 'ended',
  [-2]: 'too-many',
  [-3]: 'too-large',
  [-4]: 'family-full',
  [-5]: 'tenant-full',
};

/** First element of the reply when the tenant's storage quota has no room. */
const NO_QUOTA = -6;

/** Deadline of calls that carry a file, which may take longer than other calls. */
const FILE_DEADLINE_MS = 15_000;
/** Interval at which a waiter looks for its file, in case a wake-up is lost. */
const IDLE_LOOK_MS = 5000;
const RETRY_MS = 200;

/** Bounds on stored files, in bytes. */
export interface FileBounds {
  /** All files of an invocation and its children. */
  readonly familyBytes: number;
  /** All files of one tenant. */
  readonly tenantBytes: number;
}

const DEFAULT_BOUNDS: FileBounds = { familyBytes: MAX_FAMILY_FILES_BYTES, tenantBytes: MAX_TENANT_FILES_BYTES };

/** Files between clients and their invocations: bounded, and kept for `Retention.filesMs` after an invocation's end. */
export class Files {
  readonly #store: Store;
  readonly #channels: Channels;
  readonly #bounds: FileBounds;

  constructor(store: Store, channels: Channels, bounds: FileBounds = DEFAULT_BOUNDS) {
    this.#store = store;
    this.#channels = channels;
    this.#bounds = bounds;
  }

  /**
   * Puts a file, replacing one of the same name. After `store-unavailable` make the call again: a repeated put changes nothing.
   *
   * @param epoch of the attempt that puts the file; absent for a file of the client.
   * @throws StoreError `invalid-argument` for an invalid name, media type or size.
   * @throws QuotaExceeded when the tenant may store no more bytes.
   */
  async put(id: string, name: string, mediaType: string, content: Uint8Array, epoch?: number): Promise<PutFileOutcome> {
    const fault = fileFault(name, mediaType, content.length);
    if (fault !== null) throw new StoreError('invalid-argument', fault);
    const { keys } = this.#store;
    const info: FileInfo = { name, mediaType, size: content.length };
    const bytes = Buffer.from(content.buffer, content.byteOffset, content.length);
    const reply = await this.#store.script(
      SCRIPTS.put,
      [keys.invocation(id), keys.files(id), keys.fileContents(id)],
      [
        ...[keys.inboxChannel(id), name, bytes, JSON.stringify(info), epoch ?? '', this.#store.clock()],
        ...[MAX_FILES, MAX_FILES_BYTES, this.#bounds.familyBytes, this.#bounds.tenantBytes],
      ],
      FILE_DEADLINE_MS,
    );
    if (Array.isArray(reply) && reply[0] === NO_QUOTA) {
      throw QuotaExceeded.ofBytes(reply[1], reply[2], reply[3], this.#store.clock());
    }
    const outcome = PUT_OUTCOMES[String(reply)];
    if (outcome === undefined) throw unexpected('file-put', reply);
    return outcome;
  }

  /** A file, or null when the invocation has none of that name. */
  async get(id: string, name: string): Promise<StoredFile | null> {
    const { keys } = this.#store;
    const found = await this.#store.scriptBuffers(
      SCRIPTS.get,
      [keys.files(id), keys.fileContents(id)],
      [name],
      FILE_DEADLINE_MS,
    );
    const [info, content] = found;
    if (!Buffer.isBuffer(info) || !Buffer.isBuffer(content)) return null;
    return { ...parseInfo(info.toString('utf8')), content };
  }

  /** The invocation's current files, sorted by name. */
  async list(id: string): Promise<FileInfo[]> {
    const descriptions = await this.#store.call((redis) => redis.hvals(this.#store.keys.files(id)));
    return descriptions.map(parseInfo).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /**
   * Resolves to true once the file exists, and to false when the file cannot come any more (the client has closed the session, or the invocation
   * has ended) or the signal aborts. While Redis is unavailable, the call goes on waiting.
   */
  async appears(id: string, name: string, signal: AbortSignal): Promise<boolean> {
    const wakeup = new Wakeup();
    const wake = () => wakeup.set();
    const stop = await this.#channels.listen(this.#store.keys.inboxChannel(id), { message: wake, resumed: wake });
    try {
      while (!signal.aborted) {
        const found = await this.#look(id, name);
        if (found === 'unavailable') await sleep(RETRY_MS);
        else if (found === 'later') await wakeup.wait(IDLE_LOOK_MS, signal);
        else return found === 'there';
      }
      return false;
    } finally {
      stop();
    }
  }

  async #look(id: string, name: string): Promise<'there' | 'later' | 'never' | 'unavailable'> {
    const { keys } = this.#store;
    try {
      const reply = await this.#store.script(SCRIPTS.look, [keys.invocation(id), keys.files(id)], [name]);
      if (reply === 1) return 'there';
      return reply === 0 ? 'later' : 'never';
    } catch (error) {
      // A connection that its owner closed does not come back.
      const isClosed = this.#store.redis.status === 'end';
      if (isClosed || StoreError.from(error).code !== 'store-unavailable') throw error;
      return 'unavailable';
    }
  }
}

function parseInfo(text: string): FileInfo {
  try {
    return JSON.parse(text) as FileInfo;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The stored description of a file is not JSON.', { cause });
  }
}
