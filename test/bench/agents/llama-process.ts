/**
 * node-llama-cpp behind HTTP: `node llama-process.ts FILE THREADS SEQUENCES CONTEXT_LENGTH`. Takes token ids as `/v1/completions` does and
 * answers `{tokens}`. Each `session` has a sequence, which keeps what it computed, so that only the tokens behind the common beginning are
 * computed. Sequences are batched.
 */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { importPeer } from '../engine/install-peers.ts';
import { announce } from './child-server.ts';

/** The part of node-llama-cpp that this module uses. */
interface Llama {
  loadModel(options: { modelPath: string }): Promise<LlamaModel>;
}
interface LlamaModel {
  createContext(options: object): Promise<{ getSequence(): LlamaSequence }>;
}
interface LlamaSequence {
  readonly nextTokenIndex: number;
  adaptStateToTokens(tokens: readonly number[], allowShift: boolean): Promise<void>;
  evaluate(tokens: readonly number[], options?: object): AsyncGenerator<number>;
}

interface Asked {
  readonly session: number;
  readonly prompt: readonly number[];
  readonly max_tokens: number;
}

const [file = '', threads = '2', sequences = '1', contextLength = '256'] = process.argv.slice(2);
const { getLlama } = (await importPeer('node-llama-cpp/dist/index.js')) as {
  getLlama(options: object): Promise<Llama>;
};
const llama = await getLlama({ gpu: false, build: 'never', maxThreads: Number(threads), logLevel: 'error' });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({
  sequences: Number(sequences),
  contextSize: Number(contextLength),
  batchSize: 512,
  threads: Number(threads),
});
const sessions = Array.from({ length: Number(sequences) }, () => context.getSequence());

async function* complete({ session, prompt, max_tokens: most }: Asked): AsyncGenerator<number> {
  const sequence = sessions[session];
  if (sequence === undefined) throw new RangeError(`there is no session ${session}`);
  // The last token of the prompt is computed again: its output is the first new token.
  await sequence.adaptStateToTokens(prompt.slice(0, -1), false);
  const rest = prompt.slice(sequence.nextTokenIndex);
  let count = 0;
  for await (const token of sequence.evaluate(rest, { temperature: 0, yieldEogToken: true })) {
    yield token;
    if (++count === most) break;
  }
}

async function answer(asked: Asked, response: http.ServerResponse): Promise<void> {
  response.end(JSON.stringify({ tokens: await Array.fromAsync(complete(asked)) }));
}

const server = http.createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    answer(JSON.parse(Buffer.concat(chunks).toString()), response).catch((error: unknown) => {
      response.writeHead(500).end(String(error));
    });
  });
});
server.listen(0, '127.0.0.1', () => announce([(server.address() as AddressInfo).port]));
