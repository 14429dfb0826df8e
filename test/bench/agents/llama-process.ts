/**
 * node-llama-cpp behind HTTP: `node llama-process.ts FILE THREADS SEQUENCES CONTEXT_LENGTH`. Takes token ids as `/v1/completions` does and
 * answers `{tokens}`, or streams as that route with `stream`. A `session` has a sequence of its own, which keeps what it computed, so that
 * only the tokens behind the common beginning are computed; requests without one share all sequences and wait for a free one. Sequences
 * are batched.
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
  readonly session?: number;
  readonly prompt: readonly number[];
  readonly max_tokens: number;
  readonly stream?: boolean;
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
const free = [...sessions];
const waiting: ((sequence: LlamaSequence) => void)[] = [];

/** The sequence of a session, or a free one, which goes back at the end of the scope. */
async function take(session: number | undefined): Promise<{ sequence: LlamaSequence } & Disposable> {
  if (session !== undefined) {
    const sequence = sessions[session];
    if (sequence === undefined) throw new RangeError(`there is no session ${session}`);
    return { sequence, [Symbol.dispose]: () => undefined };
  }
  const sequence = free.pop() ?? (await new Promise<LlamaSequence>((resolve) => waiting.push(resolve)));
  return {
    sequence,
    [Symbol.dispose]: () => {
      const next = waiting.shift();
      if (next) next(sequence);
      else free.push(sequence);
    },
  };
}

async function* complete({ session, prompt, max_tokens: most }: Asked): AsyncGenerator<number> {
  using taken = await take(session);
  const { sequence } = taken;
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
  if (!asked.stream) {
    response.end(JSON.stringify({ tokens: await Array.fromAsync(complete(asked)) }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const frame = (data: object) => response.write(`data: ${JSON.stringify(data)}\n\n`);
  let count = 0;
  for await (const token of complete(asked)) {
    count++;
    // The file has no real vocabulary, so an id stands for its text.
    frame({ choices: [{ index: 0, text: ` ${token}` }] });
  }
  frame({ choices: [], usage: { completion_tokens: count } });
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
server.listen(0, '127.0.0.1', () => announce([(server.address() as AddressInfo).port]));
