import { fileURLToPath } from 'node:url';
import type { EncoderShape } from '#gpu-host/models/encoder/tokenizer.ts';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { packagePaths } from '#infra/install.ts';
import type { CheckedFunction } from '#scheduler/functions/input-check.ts';
import { Account } from '../workers/account.ts';
import { type Job, WorkerPool } from '../workers/pool.ts';
import { type Conversation, type EncodedTexts, parseJson, type TextJob, type TextValue } from './messages.ts';

export interface TextOptions {
  /** Maximum worker threads; 2 by default. One of them stays when idle. Each keeps the tokenizers of all models that it has used. */
  readonly maxWorkers?: number;
  /** Time limit for one text, from the start of its turn, and for loading its tokenizer; 10 s by default. */
  readonly deadlineMs?: number;
}

/** The user of a text: its tenant, and the account that pays. */
export type TextUser = Pick<Job<TextJob>, 'tenant' | 'account' | 'signal'>;

/** A model for texts, with its tokenizer. */
export interface TextModel {
  readonly directory: string;
  readonly tokenizer: Tokenizer;
}

/** Texts up to this many bytes of UTF-8 are tokenized on this thread. That takes typically 0.05 ms, at most 0.3 ms, less than in a worker. */
const SMALL_TEXT_BYTES = 192;
/** JSON up to this length is parsed on this thread, when there is no schema. */
const SMALL_JSON_CHARACTERS = 4096;
/** Maximum bytes of waiting and running jobs, of all tenants. */
const MAX_BYTES = 256 << 20;
/** Bytes of a job besides its characters. */
const JOB_BYTES = 256;
/** JavaScript heap: a tokenizer of 128k tokens takes up to 80 MB, parsed JSON of 4 Mi characters a few hundred MB. */
const HEAP_MB = 1024;
/** Time after which an idle worker ends; one worker stays. A worker with the tokenizers of both bundled models takes 50 MB. */
const IDLE_MS = 30_000;
const PROGRAM = new URL('./worker.ts', import.meta.url);
const local = (...paths: readonly string[]) => paths.map((path) => fileURLToPath(new URL(path, import.meta.url)));
const CODE = [
  ...local(
    '.',
    '../workers',
    '../../gpu-host/models',
    '../../gpu-host/protocol',
    '../../scheduler/functions',
    '../../scheduler/policies',
  ),
  ...local('../../package.json'),
  ...['zod', '@cfworker/json-schema', '@huggingface/tokenizers'].flatMap(packagePaths),
];

/**
 * Tokenizes, renders chat templates and checks JSON from untrusted guests. A job may take a few hundred milliseconds; on this thread, it would
 * hold up the tokens of all other guests. Jobs therefore run in worker threads, except for small texts.
 */
export class TextService {
  readonly #pool: WorkerPool<TextJob, TextValue>;
  /** Directories of the models whose files a worker may read. */
  readonly #directories = new Set<string>();

  constructor({ maxWorkers = 2, deadlineMs = 10_000 }: TextOptions = {}) {
    this.#pool = new WorkerPool({
      program: PROGRAM,
      noun: 'the text',
      heapMb: HEAP_MB,
      maxWorkers,
      keptWorkers: 1,
      deadlineMs,
      idleMs: IDLE_MS,
      maxBytes: MAX_BYTES,
      // Do not end workers for cancelled jobs: a new worker must load its tokenizers again, and jobs are short.
      endCancelled: false,
      readable: () => [...CODE, ...this.#directories],
    });
  }

  get workers(): number {
    return this.#pool.workers;
  }

  /** Starts a worker and loads the tokenizers of these models in it. Ignores errors: a job that needs a tokenizer loads it again and reports them. */
  async warm(directories: readonly string[]): Promise<void> {
    this.#learn(directories);
    const user = { tenant: '', account: new Account() };
    await this.#pool.run({ ...user, request: { kind: 'load', directories }, bytes: 0 });
  }

  /** Token ids of a text; answered synchronously for a small text. For `special`, see `Tokenizer.encode`. */
  tokenize(
    user: TextUser,
    { directory, tokenizer }: TextModel,
    text: string,
    special: boolean,
  ): Outcome<Uint32Array> | Promise<Outcome<Uint32Array>> {
    // Compare the length first: a text has at least as many bytes as UTF-16 units.
    if (text.length <= SMALL_TEXT_BYTES && Buffer.byteLength(text) <= SMALL_TEXT_BYTES) {
      return ok(tokenizer.encode(text, { special }));
    }
    this.#learn([directory]);
    return this.#run(user, { kind: 'tokenize', directory, text, special }, JOB_BYTES + 2 * text.length);
  }

  /** Inputs of an encoder for texts, or for a query with each of its documents. Always in a worker. */
  encode(
    user: TextUser,
    { directory, contextLength, tokenTypes }: EncoderShape & { readonly directory: string },
    texts: readonly string[],
    query?: string,
  ): Promise<Outcome<EncodedTexts>> {
    this.#learn([directory]);
    const bytes = texts.reduce((sum, text) => sum + JOB_BYTES + 2 * text.length, 2 * (query?.length ?? 0));
    return this.#run(user, { kind: 'encode', directory, shape: { contextLength, tokenTypes }, texts, query }, bytes);
  }

  /** Renders a conversation. Always in a worker: the time depends on the model's template. */
  render(user: TextUser, { directory }: TextModel, conversation: Conversation, maxCharacters: number) {
    this.#learn([directory]);
    const bytes =
      'variables' in conversation
        ? JOB_BYTES + 2 * conversation.variables.length
        : conversation.messages.reduce(
            (sum, { role, content }) => sum + JOB_BYTES + 2 * (role.length + content.length),
            0,
          );
    return this.#run<string>(user, { kind: 'render', directory, conversation, maxCharacters }, bytes);
  }

  /**
   * Checks that a text is JSON and matches the function's input schema; returns `invalid-argument` otherwise, and `limit-exceeded` when the
   * check takes too long or too much memory.
   */
  async check(user: TextUser, text: string, fn?: CheckedFunction): Promise<Outcome<undefined>> {
    const fnWithSchema = fn?.manifest.input === undefined ? undefined : workerFields(fn);
    if (fnWithSchema || text.length > SMALL_JSON_CHARACTERS) {
      // Count 0 bytes, so that the pool never refuses the job for its size: the caller keeps the text in memory anyway.
      return this.#run(user, { kind: 'check', text, fn: fnWithSchema }, 0);
    }
    const parsed = parseJson(text);
    return parsed.tag === 'ok' ? ok(undefined) : parsed;
  }

  /** Ends all workers; waiting jobs get `closed`. */
  close(): Promise<void> {
    return this.#pool.close();
  }

  /** Adds readable directories. Renews the workers if any directory is new, because a worker's permissions are fixed when it starts. */
  #learn(directories: readonly string[]): void {
    const knownCount = this.#directories.size;
    for (const directory of directories) this.#directories.add(directory);
    if (this.#directories.size > knownCount) this.#pool.renew();
  }

  #run<Value extends TextValue>(user: TextUser, request: TextJob, bytes: number): Promise<Outcome<Value>> {
    return this.#pool.run({ ...user, request, bytes }) as Promise<Outcome<Value>>;
  }
}

/** The fields of a function that a worker needs. */
const workerFields = ({ name, version, tenant, platform, manifest }: CheckedFunction): CheckedFunction => ({
  name,
  version,
  tenant,
  platform,
  manifest: { input: manifest.input },
});
