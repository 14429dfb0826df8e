import type { GpuInferlet } from '#gpu-host/protocol/client.ts';
import { err, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Distribution } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** `wit/output-text.wit`. Each query of a state's next tokens counts as one output token. */
export const outputText = {
  'next-distribution': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    embed: number,
    topK: number,
  ): Promise<Outcome<Distribution>> =>
    look(inferlet, queue, (device) => device.nextDistribution(queue.id, embed, topK)),

  'log-probabilities': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    embed: number,
    tokens: Uint32Array,
  ): Promise<Outcome<Float32Array>> =>
    look(inferlet, queue, (device) => device.logProbabilities(queue.id, embed, tokens)),

  entropy: (inferlet: Inferlet, queue: DeviceQueue, embed: number): Promise<Outcome<number>> =>
    look(inferlet, queue, (device) => device.entropy(queue.id, embed)),

  'read-embed': (_inferlet: Inferlet, queue: DeviceQueue, embed: number): Promise<Outcome<Float32Array>> =>
    queue.device ? queue.device.readEmbed(queue.id, embed) : Promise.resolve(queue.refusal()),
};

const ONE_OUT = { inputs: 0, outputs: 1, cacheable: 0 };

function look<T>(
  inferlet: Inferlet,
  queue: DeviceQueue,
  call: (device: GpuInferlet) => Promise<Outcome<T>>,
): Promise<Outcome<T>> {
  const refused = inferlet.refuseTokens(1);
  if (refused) return Promise.resolve(err(refused));
  if (!queue.device) return Promise.resolve(queue.refusal());
  const answer = inferlet.countDuring(ONE_OUT, call(queue.device));
  return inferlet.hooks.steps ? inferlet.hooks.steps.sample(queue, answer) : answer;
}
