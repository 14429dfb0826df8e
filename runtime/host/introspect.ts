import { err, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Mask } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

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
