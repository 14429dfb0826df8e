import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Implements `wit/input-text.wit`. */
export const inputText = {
  'embed-text': (
    inferlet: Inferlet,
    { device, id }: DeviceQueue,
    tokens: Uint32Array,
    positions: Uint32Array,
    embeds: Uint32Array,
  ): void => {
    // `refuseTokens` ends an inferlet that exceeds its quota.
    if (inferlet.tokens.quotaLeft < tokens.length && inferlet.refuseTokens(tokens.length)) return;
    inferlet.count(tokens.length, 0);
    device?.send(id, { op: 'embed-text', tokens, positions, embeds });
  },
};
