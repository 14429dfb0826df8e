import type { Mask } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

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
