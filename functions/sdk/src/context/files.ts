import type { FileInfo, Rights } from 'pie:inferlet/kv-files@0.1.0';
import { InferletError } from '../errors.ts';
import type { Distribution } from '../generate/samplers.ts';
import { attempt, File, kvFiles, Queue, settle } from '../raw.ts';
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
