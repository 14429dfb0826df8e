import { err, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { AnswerOf, AskedOperation } from '#gpu-host/protocol/operations.ts';
import type { Distribution } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Implements `wit/output-text.wit`. Each query of a state's next tokens counts as one output token. */
export const outputText = {
  'next-distribution': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    embed: number,
    topK: number,
  ): Promise<Outcome<Distribution>> => queryState(inferlet, queue, { op: 'next-distribution', embed, topK }),

  'log-probabilities': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    embed: number,
    tokens: Uint32Array,
  ): Promise<Outcome<Float32Array>> => queryState(inferlet, queue, { op: 'log-probabilities', embed, tokens }),

  entropy: (inferlet: Inferlet, queue: DeviceQueue, embed: number): Promise<Outcome<number>> =>
    queryState(inferlet, queue, { op: 'entropy', embed }),
};

const ONE_OUT = { inputs: 0, outputs: 1, cacheable: 0 };

function queryState<Asked extends AskedOperation>(
  inferlet: Inferlet,
  queue: DeviceQueue,
  operation: Asked,
): Promise<Outcome<AnswerOf<Asked['op']>>> {
  const refused = inferlet.refuseTokens();
  if (refused) return Promise.resolve(err(refused));
  const { device } = queue;
  if (!device) return Promise.resolve(queue.refusal());
  const answer = inferlet.countDuring(ONE_OUT, () => device.ask(queue.id, operation));
  return inferlet.hooks.steps ? inferlet.hooks.steps.sample(queue, answer) : answer;
}
