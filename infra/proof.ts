import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, gatewayUrl } from './config.ts';
import type { ClaimedMachine } from './machine-lease.ts';

/** Longest wait for the whole answer of one model. Text that came before the deadline proves the model all the same. */
const ANSWER_MS = 60_000;
/** Tokens of the answer that a start shows, and of the answers that it does not show. */
const SHOWN_TOKENS = 64;
const HIDDEN_TOKENS = 8;
/** Pauses before a model whose proof failed is asked again; each is twice the one before. */
const FIRST_PAUSE_MS = 60_000;
const LONGEST_PAUSE_MS = 30 * 60_000;
/** Characters of a reason that are kept. */
const MAX_REASON = 500;

/** A model or encoder as `GET /v1/models/{id}` describes it. */
export interface ListedModel {
  readonly id: string;
  readonly kind: 'causal' | 'embedding' | 'reranker';
  /** True when the model has a chat template. */
  readonly chat?: boolean;
}

/** A request whose answer proves that a model works. */
interface ProofRequest {
  readonly path: string;
  /** The bundled function behind the route. */
  readonly functionName: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Text for models without a chat template. It is not empty, because some models have no token with which a text could begin. */
const BEGINNING = 'Once upon a time';

/**
 * The request that suits a model: a chat for a model with a chat template, the continuation of a text for other models that generate text, and
 * one short text for an encoder.
 */
export function proofRequest({ id: model, kind, chat = false }: ListedModel, maxTokens: number): ProofRequest {
  const generation = { model, max_tokens: maxTokens, temperature: 0, stream: true };
  if (kind === 'embedding')
    return { path: '/v1/embeddings', functionName: 'openai-embeddings', body: { model, input: BEGINNING } };
  if (kind === 'reranker') {
    const body = { model, query: BEGINNING, documents: [BEGINNING] };
    return { path: '/v1/rerank', functionName: 'rerank', body };
  }
  if (!chat) {
    const body = { ...generation, prompt: BEGINNING };
    return { path: '/v1/completions', functionName: 'openai-completions', body };
  }
  const body = { ...generation, messages: [{ role: 'user', content: 'Tell me a short story.' }] };
  return { path: '/v1/chat/completions', functionName: 'openai-chat', body };
}

interface ProofOptions {
  /** Names of the functions that this start deployed. A model whose route needs another function is not asked. */
  readonly functions: readonly string[];
  /** Keeps an outcome for readers of the platform's state. */
  readonly note: ClaimedMachine['noteProof'];
  /** Gets each outcome that differs from the model's earlier one: the reason of a failure, or null. */
  readonly report: (model: string, fault: string | null) => void;
  readonly signal: AbortSignal;
}

/**
 * Asks the models of this machine for an answer, to prove that they work through the routes that clients use. A failed proof is a warning: the
 * platform serves the model, and marks it as unproven until a later proof succeeds.
 */
export class Proofs {
  readonly #config: Config;
  readonly #options: ProofOptions;
  /** Models that were not asked yet. */
  readonly #waiting: string[];
  /** Reason of the failure of each model that was asked; null for a model that has answered. */
  readonly #outcomes = new Map<string, string | null>();

  constructor(config: Config, options: ProofOptions) {
    this.#config = config;
    this.#options = options;
    const models = options.functions.length === 0 ? [] : [...config.models, ...config.encoders];
    this.#waiting = models.map(({ name }) => name);
  }

  /** Asks the first model. `write` gets what to show: a heading, then the answer piece by piece. */
  async show(write: (text: string) => void): Promise<void> {
    const name = this.#waiting.shift();
    if (name !== undefined) await this.#prove(name, write);
  }

  /** Asks all models that were not asked yet. Asks again, with growing pauses, those whose proof failed, until the signal aborts. */
  async rest(): Promise<void> {
    const { signal } = this.#options;
    for (const name of this.#waiting.splice(0)) await this.#prove(name);
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      const unproven = [...this.#outcomes].filter(([, fault]) => fault !== null);
      if (unproven.length === 0) return;
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
      for (const [name] of unproven) await this.#prove(name);
    }
  }

  async #prove(name: string, write?: (text: string) => void): Promise<void> {
    const { functions, note, report, signal } = this.#options;
    let fault: string | null = null;
    try {
      const model = await this.#describe(name);
      const request = proofRequest(model, write ? SHOWN_TOKENS : HIDDEN_TOKENS);
      if (!functions.includes(request.functionName)) return;
      write?.(`\n${headingOf(model)}\n\n${request.body.prompt ?? ''}`);
      await this.#ask(request, write);
    } catch (error) {
      fault = (error instanceof Error ? error.message : String(error)).slice(0, MAX_REASON);
    }
    if (signal.aborted) return;
    const isNew = this.#outcomes.get(name) !== fault;
    this.#outcomes.set(name, fault);
    await note(name, { at: Date.now(), fault });
    if (isNew) report(name, fault);
  }

  async #describe(name: string): Promise<ListedModel> {
    const response = await this.#fetch(`/v1/models/${encodeURIComponent(name)}`);
    return (await response.json()) as ListedModel;
  }

  /** Returns once the answer is complete, or has begun before the deadline. @throws Error with the reason of a failure */
  async #ask({ path: route, body }: ProofRequest, write?: (text: string) => void): Promise<void> {
    const response = await this.#fetch(route, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (body.stream !== true) {
      await response.text();
      return;
    }
    let hasText = false;
    try {
      for await (const data of dataOf(response)) {
        const { error, choices = [] } = JSON.parse(data) as Frame;
        if (error !== undefined) throw new Error(error.message);
        const text = choices[0]?.text ?? choices[0]?.delta?.content ?? '';
        if (text === '') continue;
        hasText = true;
        write?.(printable(text));
      }
    } catch (error) {
      if (!isTimeout(error)) throw error;
      if (!hasText) throw late();
    }
    write?.('\n');
  }

  /** @throws Error with the answer's message when the status is that of a failure; and when the deadline passes */
  async #fetch(route: string, init: RequestInit = {}): Promise<Response> {
    const file = path.join(this.#config.home, 'credentials.json');
    const { apiKey } = JSON.parse(readFileSync(file, 'utf8')) as { apiKey: string };
    const response = await fetch(`${gatewayUrl(this.#config)}${route}`, {
      ...init,
      headers: { ...init.headers, authorization: `Bearer ${apiKey}` },
      signal: AbortSignal.any([this.#options.signal, AbortSignal.timeout(ANSWER_MS)]),
    }).catch((error: unknown) => {
      throw isTimeout(error) ? late() : error;
    });
    if (response.ok) return response;
    const text = await response.text();
    throw new Error(messageIn(text) ?? `the gateway answered with status ${response.status}`);
  }
}

/** A frame of a streamed answer, as OpenAI's API has it. */
interface Frame {
  readonly error?: { readonly message: string };
  readonly choices?: readonly { readonly text?: string; readonly delta?: { readonly content?: string | null } }[];
}

function headingOf({ id, chat }: ListedModel): string {
  return chat ? `An answer of ${id}, straight from an inferlet:` : 'A story, straight from an inferlet:';
}

/** The data of each event of a stream, without the end mark. */
async function* dataOf(response: Response): AsyncGenerator<string> {
  let rest = '';
  for await (const text of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const data = line.startsWith('data:') ? line.slice(5).trim() : '[DONE]';
      if (data !== '[DONE]') yield data;
    }
  }
}

function messageIn(text: string): string | undefined {
  try {
    return (JSON.parse(text) as Frame).error?.message;
  } catch {
    return undefined;
  }
}

const late = (): Error => new Error(`no answer came within ${ANSWER_MS / 1000} s`);

const isTimeout = (error: unknown): boolean => error instanceof Error && error.name === 'TimeoutError';

/** Text of a model for a terminal: without control characters other than tabs and line breaks. */
const printable = (text: string): string => text.replaceAll(/[^\P{Cc}\t\n]/gu, '');
