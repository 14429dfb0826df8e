import type { LeaseEnd, Tier, Residency as WireResidency } from 'pie:inferlet/allocate@0.1.0';
import type { FileInfo, Rights } from 'pie:inferlet/kv-files@0.1.0';
import { InferletError } from '../errors.ts';
import type { Distribution } from '../generate/samplers.ts';
import { sleep } from '../io/inferlet.ts';
import { allocate, attempt, File, kvFiles, Queue, settle } from '../raw.ts';
import { model, specialTokens, tokenize, tokenizeContinuation } from './models.ts';
import { range } from './pages.ts';

export type { FileInfo, Rights } from 'pie:inferlet/kv-files@0.1.0';

/** Options for opening a file. */
export interface FileOptions {
  /** One of the models granted to the function; the function's default model if omitted. */
  readonly model?: string;
  /** Open with the file's lock, so that it can be saved back. Throws `unavailable` while another inferlet holds the lock. */
  readonly write?: boolean;
}

/**
 * Computed tokens as a file: a sequence that can be extended, forked, cut, merged and saved under a name of the tenant (Symphony, HotOS
 * '25). Release it with `using` or {@link close}.
 *
 * @example
 * using file = await KvFile.create();
 * const rows = await file.predict('The capital of France is', { topK: 5 });
 * await file.save('facts', { rights: 'readable' });
 */
export class KvFile implements Disposable {
  /** The `file` resource of the WIT contract, for calls that this class omits: `pages`, `reserve` and `filled`. */
  readonly raw: File;
  readonly #model: string;
  /** True when the first token is known to be the begin-of-text token: this object, or the one it is a fork of, has computed it. */
  #hasBos: boolean;

  private constructor(raw: File, model: string, hasBos: boolean) {
    this.raw = raw;
    this.#model = model;
    this.#hasBos = hasBos;
  }

  /** Opens the last saved version of a name. Throws `not-found`, `unsupported` (no right to the file) and `unavailable` (locked). */
  static open(name: string, options: FileOptions = {}): Promise<KvFile> {
    return KvFile.#make(name, options);
  }

  /** Creates an empty file without a name. */
  static create(options: Pick<FileOptions, 'model'> = {}): Promise<KvFile> {
    return KvFile.#make(undefined, options);
  }

  /** The tenant's files of a model whose names begin with `prefix`, in order, and those of operators (`system/…`). */
  static async list(prefix = '', options: Pick<FileOptions, 'model'> = {}): Promise<readonly FileInfo[]> {
    using queue = new Queue(model(options.model).name);
    return await settle(kvFiles.files(queue, prefix));
  }

  /** Removes a name. Inferlets that have the file open keep it. */
  static async remove(name: string, options: Pick<FileOptions, 'model'> = {}): Promise<void> {
    using queue = new Queue(model(options.model).name);
    await settle(kvFiles.remove(queue, name));
  }

  /**
   * Writes the content saved last under a name to the storage that the platform's machines share: the name can then be read also while its GPU
   * host is away, and after that host's loss. A later save or {@link remove} ends the copy. Throws `unsupported` on a platform without shared
   * storage, or without the right to write the file, and `limit-exceeded` beyond the tenant's share of the storage.
   */
  static async makeDurable(name: string, options: Pick<FileOptions, 'model'> = {}): Promise<void> {
    using queue = new Queue(model(options.model).name);
    await settle(kvFiles.makeDurable(queue, name));
  }

  static async #make(name: string | undefined, options: FileOptions): Promise<KvFile> {
    const { name: modelName } = model(options.model);
    using queue = new Queue(modelName);
    return await KvFile.#ready(new File(queue, name, options.write ? 'write' : 'read'), modelName);
  }

  static async #ready(raw: File, modelName: string, hasBos = false): Promise<KvFile> {
    try {
      await settle(raw.ready());
    } catch (error) {
      raw.drop();
      throw error;
    }
    return new KvFile(raw, modelName, hasBos);
  }

  /** Number of tokens. */
  get length(): number {
    return this.raw.tokens();
  }

  /** The first free position. */
  get nextPosition(): number {
    return this.raw.nextPosition();
  }

  /**
   * Computes and appends text or tokens. A text continues the file's text, as in `Context.fill`.
   * @returns one distribution per token: the candidates that may follow it
   */
  predict(
    content: string | ArrayLike<number>,
    options: { readonly topK?: number; readonly positions?: ArrayLike<number> } = {},
  ): Promise<Distribution[]> {
    const { length } = this;
    const continues = length > 0 && !(length === 1 && this.#hasBos);
    const encode = continues ? tokenizeContinuation : tokenize;
    const tokens = typeof content === 'string' ? encode(content, { model: this.#model }) : Uint32Array.from(content);
    const { topK = 1, positions = range(this.nextPosition, tokens.length) } = options;
    if (tokens.length === 0) return Promise.resolve([]);
    if (length === 0) this.#hasBos = tokens[0] === specialTokens(this.#model).bos;
    return settle(this.raw.pred(tokens, Uint32Array.from(positions), topK));
  }

  /** Creates a file without a name with the same content, copy-on-write. */
  fork(): Promise<KvFile> {
    return KvFile.#ready(this.raw.fork(), this.#model, this.#hasBos);
  }

  /**
   * Creates a file without a name that holds the tokens at `indices`, in that order: at their own positions, or from `firstPosition` on.
   * Throws `invalid-argument` for an index out of range.
   */
  extract(indices: ArrayLike<number>, options: { readonly firstPosition?: number } = {}): Promise<KvFile> {
    return KvFile.#ready(this.raw.extract(Uint32Array.from(indices), options.firstPosition), this.#model);
  }

  /** Appends another file's tokens, at the following positions or, with `keepPositions`, at their own. */
  merge(other: KvFile, options: { readonly keepPositions?: boolean } = {}): Promise<void> {
    return settle(this.raw.merge(other.raw, options.keepPositions ?? false));
  }

  /**
   * Saves the file under a name: its own name, if it was opened for writing, or a new one.
   * @param options.durable then calls {@link makeDurable}, whose failure leaves the file saved
   */
  save(
    name: string,
    options: { readonly persistent?: boolean; readonly durable?: boolean; readonly rights?: Rights } = {},
  ): Promise<void> {
    if (name === '') throw new InferletError('invalid-argument', 'A file needs a name to be saved.');
    const { durable = false, persistent = durable, rights = 'private' } = options;
    const saved = settle(this.raw.save(name, persistent, rights));
    return durable ? saved.then(() => KvFile.makeDurable(name, { model: this.#model })) : saved;
  }

  /** Releases the lock; the file stays open. */
  unlock(): void {
    attempt(() => this.raw.unlock());
  }

  /** Releases memory and lock. */
  close(): void {
    this.raw.drop();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

export type { LeaseEnd, Tier } from 'pie:inferlet/allocate@0.1.0';

/** Location of the pages of a saved context, and its lease. */
export interface Residency extends Omit<WireResidency, 'bytes'> {
  /** Bytes of all keys and values. */
  readonly bytes: number;
}

/**
 * Controls the location (device, memory or disk) of the pages of a context that `Context.save` stored under a name. Most calls return the
 * location afterwards. No call changes the saved content, and none makes another inferlet wait for memory. Each call throws `not-found`
 * when no context has this name, and `unsupported` for a name of operators (`system/…`).
 *
 * @example
 * const rules = new SavedContext('rules');
 * await rules.pin(10 * 60_000);
 */
export class SavedContext {
  readonly name: string;
  readonly #model: string;

  /** @param options.model one of the models granted to the function; the function's default model if omitted */
  constructor(name: string, options: { readonly model?: string } = {}) {
    this.name = name;
    this.#model = model(options.model).name;
  }

  /** The location of the pages, the time that the lease still lasts, and the reason for the end of the last lease. */
  residency(): Promise<Residency> {
    return this.#ask((queue) => allocate.exportResidency(queue, this.name));
  }

  /**
   * Brings the pages to the device as far as there is room, and keeps them there for `leaseMs`, even after this inferlet has ended. The lease
   * ends early when a running inferlet needs the memory. A later call replaces the lease. Throws `limit-exceeded` when the context is larger
   * than the tenant may ever pin, and `unavailable` when the tenant may not pin that much now.
   * @param leaseMs 1 ms to 1 hour
   */
  pin(leaseMs: number): Promise<Residency> {
    return this.#ask((queue) => allocate.pinExport(queue, this.name, leaseMs));
  }

  /**
   * Waits until the lease has ended, and returns the reason: `expired`, or `pressure` when the memory was needed before the lease ran out. Returns
   * null before the first lease, and when {@link unpin} has ended it. Asks for the residency once every `everyMs`.
   */
  async leaseEnd({ everyMs = 1000 }: { readonly everyMs?: number } = {}): Promise<LeaseEnd | null> {
    for (;;) {
      const { leaseMs, leaseEnded } = await this.residency();
      if (leaseMs === 0) return leaseEnded;
      await sleep(Math.min(leaseMs, everyMs));
    }
  }

  /** Ends the lease. */
  unpin(): Promise<Residency> {
    return this.#ask((queue) => allocate.unpinExport(queue, this.name));
  }

  /** Hints that the context will be opened in `nextUseMs`: the tenant's contexts without a hint then leave the device first. 0 removes the hint. */
  retain(nextUseMs: number): Promise<Residency> {
    return this.#ask((queue) => allocate.retainExport(queue, this.name, nextUseMs));
  }

  /** Brings the pages to the device ahead of their use, as far as there is room. */
  prefetch(): Promise<Residency> {
    return this.#ask((queue) => allocate.prefetchExport(queue, this.name));
  }

  /**
   * Ends the lease and moves the pages off the device. On `disk` the pages count against no quota; this needs a context that was saved as
   * `persistent` (`unsupported` otherwise).
   */
  demote(tier: Exclude<Tier, 'device'> = 'memory'): Promise<Residency> {
    return this.#ask((queue) => allocate.demoteExport(queue, this.name, tier));
  }

  /**
   * Copies the present content to the storage that the platform's machines share. The name can then be opened even while its GPU host is away
   * or after that host is lost. Removing the name removes the copy. Throws `unsupported` on a platform without shared storage, and
   * `limit-exceeded` beyond the tenant's share of the storage.
   */
  async makeDurable(): Promise<void> {
    using queue = new Queue(this.#model);
    await settle(allocate.makeDurable(queue, this.name));
  }

  async #ask(call: (queue: Queue) => ReturnType<typeof allocate.exportResidency>): Promise<Residency> {
    using queue = new Queue(this.#model);
    const residency = await settle(call(queue));
    return { ...residency, bytes: Number(residency.bytes) };
  }
}
