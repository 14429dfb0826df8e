import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { CheckedFunction } from '#scheduler/functions/input-check.ts';
import { Account } from '../workers/account.ts';
import { type Job, WorkerPool } from '../workers/pool.ts';
import { parseJson } from './json.ts';
import type { Conversation, TextJob, TextValue } from './messages.ts';

/** Each has a default. */
export interface TextOptions {
  /** Worker threads at once, all of which stay: 2. Each has the tokenizers of all models that it was asked for. */
  readonly maxWorkers?: number;
  /** For one text, once its turn has come, and to load a tokenizer for it: 10 s. */
  readonly deadlineMs?: number;
}

/** Who asks, and answers for it. */
export type TextUser = Pick<Job<TextJob>, 'tenant' | 'account' | 'signal'>;

/** The model that a text is for. */
export interface TextModel {
  readonly directory: string;
  readonly tokenizer: Tokenizer;
}

/** Up to so many bytes of UTF-8 a text is tokenized at once: 0.05 ms as a rule and 0.3 ms at most, and a worker would answer later. */
const SMALL_TEXT_BYTES = 192;
/** The same of JSON that no schema is held against. */
const SMALL_JSON_CHARACTERS = 4096;
/** Bytes of texts that wait or are worked on, of all tenants. */
const MAX_BYTES = 256 << 20;
/** Of a text besides its characters. */
const JOB_BYTES = 256;
/** JavaScript heap: a tokenizer of 128k tokens takes up to 80 MB, parsed JSON of 4 Mi characters some hundred. */
const HEAP_MB = 1024;
const PROGRAM = new URL('./worker.ts', import.meta.url);
const local = (...paths: readonly string[]) => paths.map((path) => fileURLToPath(new URL(path, import.meta.url)));
const packageAt = (name: string, file: string) => dirname(fileURLToPath(import.meta.resolve(`${name}${file}`)));
const CODE = [
  ...local('.', '../workers', '../../gpu-host/models', '../../gpu-host/protocol', '../../scheduler/functions'),
  ...local('../../package.json'),
  ...['zod', '@cfworker/json-schema'].map((name) => packageAt(name, '/package.json')),
  // Their packages export nothing but the code, which is in a folder of its own.
  ...['@huggingface/jinja', '@huggingface/tokenizers'].map((name) => dirname(packageAt(name, ''))),
];

/**
 * Tokenizes, renders chat templates and checks JSON for strangers, in worker threads: each of these takes up to some hundred milliseconds, during
 * which no other guest of this process would get a token. Small texts are tokenized at once.
 */
export class TextService {
  readonly #pool: WorkerPool<TextJob, TextValue>;
  readonly #maxWorkers: number;
  /** Of the models whose files a worker may read. */
  readonly #directories = new Set<string>();

  constructor({ maxWorkers = 2, deadlineMs = 10_000 }: TextOptions = {}) {
    this.#maxWorkers = maxWorkers;
    this.#pool = new WorkerPool({
      ...{ program: PROGRAM, noun: 'the text', heapMb: HEAP_MB, maxWorkers, keptWorkers: maxWorkers },
      // A worker that is ended has to load its tokenizers again, and no job here is long.
      ...{ deadlineMs, idleMs: 0, maxBytes: MAX_BYTES, endCancelled: false },
      readable: () => [...CODE, ...this.#directories],
    });
  }

  /** Worker threads that exist. */
  get workers(): number {
    return this.#pool.workers;
  }

  /** Starts all workers and loads the tokenizers of these models in each. Errors are told again by the first job that meets them. */
  async warm(directories: readonly string[]): Promise<void> {
    this.#learn(directories);
    const user = { tenant: '', account: new Account() };
    const load = () => this.#pool.run({ ...user, request: { kind: 'load', directories }, bytes: 0 });
    await Promise.all(Array.from({ length: this.#maxWorkers }, load));
  }

  /** Token ids of a text; a small one's are answered at once. */
  tokenize(
    user: TextUser,
    { directory, tokenizer }: TextModel,
    text: string,
    special: boolean,
  ): Outcome<Uint32Array> | Promise<Outcome<Uint32Array>> {
    // A character has three bytes at most.
    if (text.length <= SMALL_TEXT_BYTES && Buffer.byteLength(text) <= SMALL_TEXT_BYTES) {
      return ok(tokenizer.encode(text, { special }));
    }
    this.#learn([directory]);
    return this.#run(user, { kind: 'tokenize', directory, text, special }, JOB_BYTES + 2 * text.length);
  }

  /** A conversation as text. Never on this thread: how long that takes is a matter of the model's template. */
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
   * Whether a text is JSON, and what the input schema of a function takes: else `invalid-argument`. `limit-exceeded` when to find that out takes
   * too long or too much memory.
   */
  async check(user: TextUser, text: string, fn?: CheckedFunction): Promise<Outcome<undefined>> {
    const checked = fn?.manifest.input === undefined ? undefined : slim(fn);
    if (checked || text.length > SMALL_JSON_CHARACTERS) {
      // The text is there anyway until it has been checked: it is never turned away.
      return this.#run(user, { kind: 'check', text, fn: checked }, 0);
    }
    const parsed = parseJson(text);
    return parsed.tag === 'ok' ? ok(undefined) : parsed;
  }

  /** Ends all workers; what waits is answered `closed`. */
  close(): Promise<void> {
    return this.#pool.close();
  }

  /** What a worker may read is decided when it starts. */
  #learn(directories: readonly string[]): void {
    const known = this.#directories.size;
    for (const directory of directories) this.#directories.add(directory);
    if (this.#directories.size > known) this.#pool.renew();
  }

  #run<Value extends TextValue>(user: TextUser, request: TextJob, bytes: number): Promise<Outcome<Value>> {
    return this.#pool.run({ ...user, request, bytes }) as Promise<Outcome<Value>>;
  }
}

/** What a worker needs of a function. */
const slim = ({ name, version, manifest }: CheckedFunction): CheckedFunction => ({
  ...{ name, version },
  manifest: { input: manifest.input },
});
