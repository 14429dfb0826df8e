/** node-llama-cpp in a process of its own, on the same weights as GGUF. `node llama-cpp.ts FILE THREADS CONTEXT_LENGTH`. */
import { type Measurement, serve, type Task } from './engines.ts';
import { importPeer } from './install-peers.ts';

/** The part of node-llama-cpp that this module uses. */
interface Llama {
  loadModel(options: { modelPath: string }): Promise<LlamaModel>;
}
interface LlamaModel {
  createContext(options: object): Promise<LlamaContext>;
}
interface LlamaContext {
  getSequence(): LlamaSequence;
  dispose(): Promise<void>;
}
interface LlamaSequence {
  evaluate(tokens: readonly number[], options?: object): AsyncGenerator<number>;
  evaluateWithoutGeneratingNewTokens(tokens: readonly number[]): Promise<void>;
  clearHistory(): Promise<void>;
}

/** The token that fills every context; our engine's loop takes the same one. */
const BEGIN_OF_TEXT = 1;

const [file = '', threads = '2', contextLength = '256'] = process.argv.slice(2);
const { getLlama } = (await importPeer('node-llama-cpp/dist/index.js')) as {
  getLlama(options: object): Promise<Llama>;
};
const llama = await getLlama({ gpu: false, build: 'never', maxThreads: Number(threads), logLevel: 'error' });
const model = await llama.loadModel({ modelPath: file });

serve({ measure: (task) => (task.kind === 'decode' ? decode(task) : prefill(task.tokens, task.times)) });

async function decode({ batch, context, steps }: Task & { kind: 'decode' }): Promise<Measurement> {
  const llamaContext = await createContext(batch);
  try {
    const sequences = Array.from({ length: batch }, () => llamaContext.getSequence());
    // The first measured step appends one more BEGIN_OF_TEXT to this prompt.
    const prompt = Array.from({ length: context }, () => BEGIN_OF_TEXT);
    await Promise.all(sequences.map((each) => each.evaluateWithoutGeneratingNewTokens(prompt)));
    const start = performance.now();
    const texts = await Promise.all(sequences.map((each) => generate(each, steps)));
    return { ms: (performance.now() - start) / steps, tokens: texts[0] ?? [] };
  } finally {
    await llamaContext.dispose();
  }
}

async function generate(sequence: LlamaSequence, steps: number): Promise<number[]> {
  const tokens: number[] = [];
  for await (const token of sequence.evaluate([BEGIN_OF_TEXT], { temperature: 0, yieldEogToken: true })) {
    tokens.push(token);
    if (tokens.length === steps) break;
  }
  return tokens;
}

async function prefill(tokens: number, times: number): Promise<Measurement> {
  const llamaContext = await createContext(1);
  try {
    const sequence = llamaContext.getSequence();
    // Arbitrary token ids, the same as in `ours.ts`.
    const prompt = Array.from({ length: tokens }, (_, i) => 300 + (i % 1000));
    let total = 0;
    for (let i = -1; i < times; i++) {
      await sequence.clearHistory();
      const start = performance.now();
      await sequence.evaluateWithoutGeneratingNewTokens(prompt);
      if (i >= 0) total += performance.now() - start;
    }
    return { ms: total / times };
  } finally {
    await llamaContext.dispose();
  }
}

function createContext(sequences: number): Promise<LlamaContext> {
  return model.createContext({
    sequences,
    contextSize: Number(contextLength),
    batchSize: 512,
    threads: Number(threads),
  });
}
