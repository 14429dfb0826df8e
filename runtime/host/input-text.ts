import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

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
