import type { FileInfo, Rights } from 'pie:inferlet/kv-files@0.1.0';
import { InferletError } from './errors.ts';
import { model, tokenize } from './models.ts';
import { range } from './pages.ts';
import { attempt, File, kvFiles, Queue, settle } from './raw.ts';
import type { Distribution } from './samplers.ts';

export type { FileInfo, Rights } from 'pie:inferlet/kv-files@0.1.0';

/** Which file of which model is opened. */
export interface FileOptions {
  /** One of the models granted to the function; its default without it. */
  readonly model?: string;
  /** With the file's lock, so that it can be saved back; throws `unavailable` while another inferlet holds it. */
  readonly write?: boolean;
}

/**
 * Computed tokens as a file: a sequence that can be computed on, forked, cut up, joined and saved under a name of the tenant's (Symphony,
 * HotOS '25). Give it back with `using` or {@link close}.
 *
 * @example
 * using file = await KvFile.create();
 * const rows = await file.predict('The capital of France is', { topK: 5 });
 * await file.save('facts', { rights: 'readable' });
 */
export class KvFile implements Disposable {
  /** The file as it is in the contract, for calls that are not here: `pages`, `reserve` and `filled`. */
  readonly raw: File;
  readonly #model: string;

  private constructor(raw: File, model: string) {
    this.raw = raw;
    this.#model = model;
  }

  /** Opens what was saved last under a name. Throws `not-found`, `unsupported` (no right to it) and `unavailable` (locked). */
  static open(name: string, options: FileOptions = {}): Promise<KvFile> {
    return KvFile.#make(name, options);
  }

  /** A file without a name that holds nothing yet. */
  static create(options: Pick<FileOptions, 'model'> = {}): Promise<KvFile> {
    return KvFile.#make(undefined, options);
  }

  /** The tenant's files of a model whose names begin with `prefix`, in order, and those of operators (`system/…`). */
  static async list(prefix = '', options: Pick<FileOptions, 'model'> = {}): Promise<readonly FileInfo[]> {
    using queue = new Queue(model(options.model).name);
    return await settle(kvFiles.files(queue, prefix));
  }

  /** Removes a name; who has the file open keeps it. */
  static async remove(name: string, options: Pick<FileOptions, 'model'> = {}): Promise<void> {
    using queue = new Queue(model(options.model).name);
    await settle(kvFiles.remove(queue, name));
  }

  static async #make(name: string | undefined, options: FileOptions): Promise<KvFile> {
    const { name: modelName } = model(options.model);
    using queue = new Queue(modelName);
    return await KvFile.#ready(new File(queue, name, options.write ? 'write' : 'read'), modelName);
  }

  static async #ready(raw: File, modelName: string): Promise<KvFile> {
    try {
      await settle(raw.ready());
    } catch (error) {
      raw.drop();
      throw error;
    }
    return new KvFile(raw, modelName);
  }

  /** Tokens that it holds. */
  get length(): number {
    return this.raw.tokens();
  }

  /** The first position that is free. */
  get nextPosition(): number {
    return this.raw.nextPosition();
  }

  /** Computes text or tokens, appends them, and hands out what may follow each: one distribution a token. */
  predict(
    content: string | ArrayLike<number>,
    options: { readonly topK?: number; readonly positions?: ArrayLike<number> } = {},
  ): Promise<Distribution[]> {
    const tokens = typeof content === 'string' ? tokenize(content, { model: this.#model }) : Uint32Array.from(content);
    const { topK = 1, positions = range(this.nextPosition, tokens.length) } = options;
    if (tokens.length === 0) return Promise.resolve([]);
    return settle(this.raw.pred(tokens, Uint32Array.from(positions), topK));
  }

  /** A file without a name with the same content, copy-on-write. */
  fork(): Promise<KvFile> {
    return KvFile.#ready(this.raw.fork(), this.#model);
  }

  /**
   * A file without a name that holds the tokens at `indices`, in that order: at their own positions, or from `firstPosition` on. Throws
   * `invalid-argument` for a token that is not there.
   */
  extract(indices: ArrayLike<number>, options: { readonly firstPosition?: number } = {}): Promise<KvFile> {
    return KvFile.#ready(this.raw.extract(Uint32Array.from(indices), options.firstPosition), this.#model);
  }

  /** Appends another file's tokens, at the positions that follow, or at their own. */
  merge(other: KvFile, options: { readonly keepPositions?: boolean } = {}): Promise<void> {
    return settle(this.raw.merge(other.raw, options.keepPositions ?? false));
  }

  /** Saves under a name: its own, when it was opened for writing, or a new one. */
  save(name: string, options: { readonly persistent?: boolean; readonly rights?: Rights } = {}): Promise<void> {
    if (name === '') throw new InferletError('invalid-argument', 'A file needs a name to be saved.');
    return settle(this.raw.save(name, options.persistent ?? false, options.rights ?? 'private'));
  }

  /** Gives the lock back; the file stays open. */
  unlock(): void {
    attempt(() => this.raw.unlock());
  }

  /** Gives memory and lock back. */
  close(): void {
    this.raw.drop();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
