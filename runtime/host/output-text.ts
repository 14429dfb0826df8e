import { err, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Distribution } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** `wit/output-text.wit`. */
export const outputText = {
  'next-distribution': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    embed: number,
    topK: number,
  ): Promise<Outcome<Distribution>> => {
    const refused = inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    inferlet.count(0, 1);
    return queue.device ? queue.device.nextDistribution(queue.id, embed, topK) : Promise.resolve(queue.refusal());
  },
};
