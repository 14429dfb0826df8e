import path from 'node:path';
import { importPeer, installPeers } from '#test/bench/engine/install-peers.ts';

/** The part of transformers.js that this module uses. */
interface Transformers {
  env: { localModelPath: string; allowRemoteModels: boolean };
  AutoModelForCausalLM: { from_pretrained(name: string, options: object): Promise<CausalModel> };
  Tensor: new (type: string, data: BigInt64Array, dims: readonly number[]) => object;
}
interface CausalModel {
  generate(options: object): Promise<{ readonly data: BigInt64Array }>;
  dispose(): Promise<unknown>;
}

/** Greedy tokens of transformers.js after `prompt`, on a model directory with `onnx/model.onnx`. */
export async function greedyTokens(directory: string, prompt: readonly number[], count: number): Promise<number[]> {
  await installPeers((line) => console.error(line));
  const { env, AutoModelForCausalLM, Tensor } = (await importPeer(
    '@huggingface/transformers/dist/transformers.node.mjs',
  )) as unknown as Transformers;
  env.localModelPath = path.dirname(directory);
  env.allowRemoteModels = false;
  const model = await AutoModelForCausalLM.from_pretrained(path.basename(directory), { dtype: 'fp32', device: 'cpu' });
  try {
    const result = await model.generate({
      input_ids: new Tensor('int64', BigInt64Array.from(prompt, BigInt), [1, prompt.length]),
      attention_mask: new Tensor('int64', new BigInt64Array(prompt.length).fill(1n), [1, prompt.length]),
      max_new_tokens: count,
      // No token of the vocabulary, so that decoding continues past the end of a turn, as in our engine.
      eos_token_id: -1,
      do_sample: false,
      repetition_penalty: 1,
    });
    return Array.from(result.data, Number).slice(prompt.length);
  } finally {
    await model.dispose();
  }
}
