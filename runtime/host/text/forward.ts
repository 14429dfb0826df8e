import { err, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { AnswerOf, AskedOperation } from '#gpu-host/protocol/operations.ts';
import type { Distribution, Mask } from '#wit/generated/host.ts';
import type { DeviceQueue } from '../device/queue.ts';
import type { Inferlet } from '../session/inferlet.ts';

/** Implements `wit/forward.wit`. */
export const forward = {
  forward: (
    inferlet: Inferlet,
    queue: DeviceQueue,
    inPages: Uint32Array,
    inEmbeds: Uint32Array,
    outPages: Uint32Array,
    outEmbeds: Uint32Array,
    mask: Mask | undefined,
  ): void => {
    const refused = inferlet.tokens.forward(inEmbeds.length);
    if (refused) {
      queue.fail(refused);
      return;
    }
    inferlet.hooks.steps?.forward(queue, inEmbeds.length, outEmbeds.length > 0);
    queue.device?.send(queue.id, { op: 'forward', inPages, inEmbeds, outPages, outEmbeds, mask });
  },
};

/** Implements `wit/input-text.wit`. */
export const inputText = {
  'embed-text': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    tokens: Uint32Array,
    positions: Uint32Array,
    embeds: Uint32Array,
  ): void => {
    const refused = inferlet.refuseTokens();
    if (refused) {
      queue.fail(refused);
      return;
    }
    inferlet.tokens.embed(tokens.length);
    queue.device?.send(queue.id, { op: 'embed-text', tokens, positions, embeds });
  },
};

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

/** Implements `wit/introspect.wit`. */
export const introspect = {
  'forward-scores': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    inPages: Uint32Array,
    inEmbeds: Uint32Array,
    outPages: Uint32Array,
    outEmbeds: Uint32Array,
    mask: Mask | undefined,
  ): Promise<Outcome<Float32Array>> => {
    const refused = inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('introspect');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const overLimit = inferlet.tokens.forward(inEmbeds.length);
    if (overLimit) return Promise.resolve(err(overLimit));
    const step = inferlet.hooks.steps?.begin(queue, inEmbeds.length, outEmbeds.length > 0);
    const scores = offered.val.ask(queue.id, { op: 'forward-scores', inPages, inEmbeds, outPages, outEmbeds, mask });
    return step ? step.until(scores) : scores;
  },
};
