/**
 * node-llama-cpp behind HTTP: `node llama-process.ts FILE THREADS CONTEXT_LENGTH SEQUENCES GUESSING_SEQUENCES`. Takes token ids as
 * `/v1/completions` does and answers `{tokens}`, or with `stream` the events of a completion with the ids of each piece. A sequence keeps its
 * KV cache, so that only the tokens after the common prefix are computed. Each `session` has its own sequence. A request without a session
 * takes the free sequence that shares the longest prefix with its prompt, or waits for a free sequence. Requests with `lookup` have
 * GUESSING_SEQUENCES further sequences, which guess tokens. llama.cpp batches the running sequences.
 */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { importPeer } from '../engine/install-peers.ts';
import { firstDifference } from '../rounds.ts';
import { announce } from './child-server.ts';

/** The part of node-llama-cpp that this module uses. */
interface PeerModule {
  getLlama(options: object): Promise<Llama>;
  InputLookupTokenPredictor: new (options: object) => Predictor;
  LlamaGrammarEvaluationState: new (options: object) => object;
}
interface Llama {
  loadModel(options: { modelPath: string }): Promise<LlamaModel>;
  createGrammar(options: { grammar: string }): Promise<object>;
}
interface LlamaModel {
  createContext(options: object): Promise<{ getSequence(options?: object): LlamaSequence }>;
}
interface LlamaSequence {
  readonly nextTokenIndex: number;
  readonly contextTokens: readonly number[];
  readonly tokenPredictor?: Predictor;
  adaptStateToTokens(tokens: readonly number[], allowShift: boolean): Promise<void>;
  evaluate(tokens: readonly number[], options?: object): AsyncGenerator<number>;
}
interface Predictor {
  updateInputTokens(tokens: readonly number[]): void;
}

interface CompletionRequest {
  readonly session?: number;
  readonly prompt: readonly number[];
  readonly max_tokens: number;
  readonly stream?: boolean;
  /** GBNF; the text ends where the grammar allows no further token. */
  readonly grammar?: string;
  /** Speculates by prompt lookup: tokens that followed the latest tokens earlier in the prompt are guessed to follow again. */
  readonly lookup?: boolean;
}

const [file = '', ...numbers] = process.argv.slice(2);
const [threads = 2, contextLength = 256, sequences = 1, guessingCount = 0] = numbers.map(Number);
const peer = (await importPeer('node-llama-cpp/dist/index.js')) as unknown as PeerModule;
const llama = await peer.getLlama({ gpu: false, build: 'never', maxThreads: threads, logLevel: 'error' });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({
  sequences: sequences + guessingCount,
  contextSize: contextLength,
  batchSize: 512,
  threads,
});
const sessions = Array.from({ length: sequences }, () => context.getSequence());
const guessingSequences = Array.from({ length: guessingCount }, () =>
  context.getSequence({ tokenPredictor: new peer.InputLookupTokenPredictor({ predictionLength: { max: 8 } }) }),
);

/** Sequences that no request uses, the one that was used longest ago first. */
class FreeSequences {
  readonly #sequences: LlamaSequence[];
  readonly #waiting: ((sequence: LlamaSequence) => void)[] = [];

  constructor(all: readonly LlamaSequence[]) {
    this.#sequences = [...all];
  }

  async take(prompt: readonly number[]): Promise<LlamaSequence> {
    if (this.#sequences.length === 0) return new Promise((resolve) => this.#waiting.push(resolve));
    const common = this.#sequences.map(({ contextTokens }) => commonLength(contextTokens, prompt));
    const [taken] = this.#sequences.splice(common.indexOf(Math.max(...common)), 1);
    return taken as LlamaSequence;
  }

  give(sequence: LlamaSequence): void {
    const next = this.#waiting.shift();
    if (next) next(sequence);
    else this.#sequences.push(sequence);
  }
}

function commonLength(a: readonly number[], b: readonly number[]): number {
  const at = firstDifference(a, b);
  return at < 0 ? a.length : at;
}

const free = new FreeSequences(sessions);
const freeGuessing = new FreeSequences(guessingSequences);

async function* complete(asked: CompletionRequest): AsyncGenerator<number> {
  if (asked.session !== undefined) {
    const sequence = sessions[asked.session];
    if (sequence === undefined) throw new RangeError(`there is no session ${asked.session}`);
    yield* generate(sequence, asked);
    return;
  }
  const pool = asked.lookup ? freeGuessing : free;
  const sequence = await pool.take(asked.prompt);
  try {
    yield* generate(sequence, asked);
  } finally {
    pool.give(sequence);
  }
}

async function* generate(
  sequence: LlamaSequence,
  { prompt, max_tokens: maxTokens, grammar }: CompletionRequest,
): AsyncGenerator<number> {
  // The last token of the prompt is computed again: its output is the first new token.
  await sequence.adaptStateToTokens(prompt.slice(0, -1), false);
  const rest = prompt.slice(sequence.nextTokenIndex);
  sequence.tokenPredictor?.updateInputTokens(prompt);
  const grammarOptions = grammar === undefined ? {} : { grammarEvaluationState: await grammarStateOf(grammar) };
  const isUnconstrained = grammar === undefined;
  let count = 0;
  const options = { temperature: 0, yieldEogToken: isUnconstrained, ...grammarOptions };
  for await (const token of sequence.evaluate(rest, options)) {
    yield token;
    if (++count === maxTokens) break;
  }
}

const grammars = new Map<string, Promise<object>>();

async function grammarStateOf(text: string): Promise<object> {
  const grammar = grammars.get(text) ?? llama.createGrammar({ grammar: text });
  grammars.set(text, grammar);
  return new peer.LlamaGrammarEvaluationState({ model, grammar: await grammar });
}

async function answer(asked: CompletionRequest, response: http.ServerResponse): Promise<void> {
  if (!asked.stream) {
    response.end(JSON.stringify({ tokens: await Array.fromAsync(complete(asked)) }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for await (const token of complete(asked)) {
    const choice = { text: '', index: 0, finish_reason: null, token_ids: [token] };
    response.write(`data: ${JSON.stringify({ choices: [choice] })}\n\n`);
  }
  response.end('data: [DONE]\n\n');
}

const server = http.createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    answer(JSON.parse(Buffer.concat(chunks).toString()), response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else response.writeHead(500).end(String(error));
    });
  });
});
// Connections stay open until the processes end: a keep-alive timeout could close an idle connection just as a client sends a request.
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => announce([(server.address() as AddressInfo).port]));
