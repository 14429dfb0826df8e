import { mkdir } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { partNames } from '../convert/gguf/split.ts';
import { SENTENCE_FILES } from '../encoder/config.ts';
import { causeText, ModelError } from '../errors.ts';
import { isShardName, readJson } from '../load.ts';
import {
  ATTEMPTS,
  type Checksum,
  type DownloadProgress,
  download,
  HttpStatusError,
  isTemporary,
  pauseMs,
} from './download.ts';

const REQUIRED = ['config.json', 'tokenizer.json'];
const OPTIONAL = [
  'generation_config.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'chat_template.jinja',
  'chat_template.json',
  'preprocessor_config.json',
  ...SENTENCE_FILES,
];
const SINGLE = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';
/** Limit on the search for one file, with redirects and repeated requests. */
const FIND_TIMEOUT_MS = 30_000;
/** Maximum redirects on the way to one file: a repository may have been renamed more than once. */
const MAX_REDIRECTS = 5;
const MAX_SHARDS = 1_000;

export interface FetchFromHubOptions {
  /** `OWNER/MODEL`. */
  readonly id: string;
  /** Branch, tag or commit. */
  readonly revision: string;
  /** The file that holds the whole model, or the first of its parts; by default a model in Hugging Face layout is fetched. */
  readonly file?: string;
  /** Path prefix of partial downloads, which a later fetch resumes. Only one fetch at a time may use it. */
  readonly partPrefix: string;
  /** Folder for the files. */
  readonly directory: string;
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

interface HubFile {
  readonly name: string;
  readonly url: string;
  readonly commit: string | null;
  readonly checksum: Checksum | null;
  readonly bytes: number | null;
}

/**
 * Fetches a model from the Hugging Face hub, or from a mirror named by `HF_ENDPOINT`, with `HF_TOKEN` when set. All files come from one
 * commit: the commit that the revision named at the first request.
 *
 * @returns the commit; null when the hub did not report one
 * @throws ModelError `unknown-model`, `access-denied`, `unreachable`, `download-failed`, `checksum-mismatch` or `cancelled`
 */
export async function fetchFromHub(options: FetchFromHubOptions): Promise<{ commit: string | null }> {
  const hub = new Hub(options);
  if (options.file !== undefined) {
    const modelFile = await hub.require(options.file);
    hub.revision = modelFile.commit ?? options.revision;
    await hub.fetch(modelFile);
    const folder = posix.dirname(options.file);
    for (const part of (partNames(posix.basename(options.file)) ?? []).slice(1))
      await hub.fetch(await hub.require(posix.join(folder, part)));
    return { commit: modelFile.commit };
  }
  const config = await hub.require('config.json');
  // Request the later files by commit, so that a push in between cannot mix two versions.
  hub.revision = config.commit ?? options.revision;
  await hub.fetch(config);
  for (const name of REQUIRED.slice(1)) await hub.fetch(await hub.require(name));
  for (const name of OPTIONAL) {
    const file = await hub.find(name);
    if (file !== null) await hub.fetch(file);
  }
  const single = await hub.find(SINGLE);
  if (single !== null) {
    await hub.fetch(single);
    return { commit: config.commit };
  }
  const index = await hub.find(INDEX);
  if (index === null) {
    throw new ModelError('unsupported-model', `${options.id} has no safetensors weights`, {
      hint: 'look for a repository of the same model with model.safetensors, or name a GGUF file as hf:OWNER/MODEL/FILE.gguf',
    });
  }
  await hub.fetch(index);
  for (const shard of await shardsOf(join(options.directory, INDEX))) await hub.fetch(await hub.require(shard));
  return { commit: config.commit };
}

class Hub {
  revision: string;
  readonly #options: FetchFromHubOptions;
  readonly #endpoint: string;
  readonly #headers: Record<string, string>;

  constructor(options: FetchFromHubOptions) {
    const env = options.env ?? process.env;
    this.#options = options;
    this.revision = options.revision;
    this.#endpoint = (env.HF_ENDPOINT || 'https://huggingface.co').replace(/\/+$/, '');
    this.#headers = env.HF_TOKEN ? { authorization: `Bearer ${env.HF_TOKEN}` } : {};
  }

  async require(name: string): Promise<HubFile> {
    const file = await this.find(name);
    if (file === null) {
      const { id, revision } = this.#options;
      throw new ModelError('unknown-model', `the hub has no file ${name} in ${id} at "${revision}"`, {
        hint: 'check the spelling of OWNER/MODEL and of the revision; a GGUF file is named as hf:OWNER/MODEL/FILE.gguf',
      });
    }
    return file;
  }

  /** Requests a file's size, checksum and commit; null when the hub has no such file. */
  async find(name: string): Promise<HubFile | null> {
    const { id, signal } = this.#options;
    let url = `${this.#endpoint}/${id}/resolve/${encodeURIComponent(this.revision)}/${name}`;
    const timeout = AbortSignal.timeout(FIND_TIMEOUT_MS);
    const abortSignal = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
    let response = await this.#head(url, abortSignal);
    for (let redirects = 0; ; redirects++) {
      const renamedUrl = renamedTo(response, url);
      if (renamedUrl === null) break;
      if (redirects === MAX_REDIRECTS)
        throw new ModelError('download-failed', `the hub redirects ${id} more than ${MAX_REDIRECTS} times`, {
          hint: 'check the spelling of OWNER/MODEL, and HF_ENDPOINT if it is set',
        });
      url = renamedUrl;
      response = await this.#head(url, abortSignal);
    }
    if (response.status === 404) return null;
    if (response.status >= 400) throw this.#refusal(response.status);
    const header = (key: string) => response.headers.get(key);
    const isRedirected = response.status >= 300;
    const bytes = header('x-linked-size') ?? (isRedirected ? null : header('content-length'));
    return {
      name,
      url,
      commit: header('x-repo-commit'),
      checksum: checksumOf(header('x-linked-etag') ?? header('etag')),
      bytes: bytes === null ? null : Number(bytes),
    };
  }

  async #head(url: string, abortSignal: AbortSignal): Promise<Response> {
    const { id, signal } = this.#options;
    for (let tries = 1; ; tries++) {
      try {
        const response = await fetch(url, {
          method: 'HEAD',
          redirect: 'manual',
          headers: { ...this.#headers, 'accept-encoding': 'identity' },
          signal: abortSignal,
        });
        if (tries === ATTEMPTS || !isTemporary(response.status)) return response;
      } catch (cause) {
        if (signal?.aborted) throw new ModelError('cancelled', `${id}: cancelled`);
        if (tries === ATTEMPTS || abortSignal.aborted) {
          throw new ModelError('unreachable', `the hub cannot be reached: ${causeText(cause)}`, {
            hint: `tried ${this.#endpoint}; set HF_ENDPOINT to use another hub`,
            cause,
          });
        }
      }
      // After an abort, the next request fails at once with the abort's reason.
      await delay(pauseMs(tries), undefined, { signal: abortSignal }).catch(() => undefined);
    }
  }

  async fetch(file: HubFile): Promise<void> {
    const { id, partPrefix, directory, onProgress, signal } = this.#options;
    await mkdir(dirname(join(directory, file.name)), { recursive: true });
    const identity = file.checksum?.hex ?? `${id}-${this.revision}-${file.name}`.replaceAll('/', '-');
    try {
      await download({
        url: file.url,
        headers: this.#headers,
        destination: join(directory, file.name),
        partFile: `${partPrefix}${identity.slice(0, 100)}.part`,
        checksum: file.checksum,
        expectedBytes: file.bytes,
        label: file.name,
        onProgress,
        signal,
      });
    } catch (error) {
      if (error instanceof HttpStatusError) throw this.#refusal(error.status);
      throw error;
    }
  }

  #refusal(status: number): ModelError {
    const { id } = this.#options;
    if (status === 401 || status === 403) {
      return new ModelError(
        'access-denied',
        `the hub refused access to ${id} (${status}): it is private, gated, or does not exist`,
        {
          hint: 'accept the licence on the model’s page if it asks for that, and set HF_TOKEN to a token that may read it',
        },
      );
    }
    return new ModelError('download-failed', `the hub answered ${status} for ${id}`, { hint: 'try again later' });
  }
}

/**
 * The address to which the hub redirects a request for a renamed repository; null for any other response. Such a redirect has a relative location
 * on the same host. A redirect to the hub's storage instead names another host, or carries the file's checksum.
 */
function renamedTo({ status, headers }: Response, url: string): string | null {
  const location = headers.get('location');
  if (status < 300 || status >= 400 || location === null || headers.has('x-linked-etag')) return null;
  if (URL.canParse(location) || !URL.canParse(location, url)) return null;
  const next = new URL(location, url);
  return next.origin === new URL(url).origin ? next.href : null;
}

/** The hub's etag is the SHA-256 of large files, and git's own hash of small files. */
function checksumOf(etag: string | null): Checksum | null {
  const hex = /^(?:W\/)?"?([0-9a-f]{64}|[0-9a-f]{40})"?$/.exec(etag ?? '')?.[1];
  if (hex === undefined) return null;
  return { algorithm: hex.length === 64 ? 'sha256' : 'git-blob', hex };
}

async function shardsOf(indexFile: string): Promise<string[]> {
  const schema = z.looseObject({ weight_map: z.record(z.string(), z.string()) });
  let shards: string[];
  try {
    shards = [...new Set(Object.values(schema.parse(await readJson(indexFile)).weight_map))];
  } catch (cause) {
    throw new ModelError('malformed-weights', `${INDEX} cannot be read: ${causeText(cause)}`, { cause });
  }
  const badName = shards.find((name) => !isShardName(name));
  if (badName !== undefined) throw new ModelError('malformed-weights', `${INDEX}: "${badName}" is not a shard's name`);
  if (shards.length > MAX_SHARDS) throw new ModelError('malformed-weights', `${INDEX} names ${shards.length} shards`);
  return shards.sort();
}
