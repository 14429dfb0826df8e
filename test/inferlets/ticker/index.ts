/** Sends its function's version repeatedly, without a model. */
import { defineInferlet, invocation, receive, send, sleep } from '@pie/inferlet';

interface Input {
  readonly ticks?: number;
  readonly everyMs?: number;
  /** True to wait for a message of the client before the first tick. */
  readonly hold?: boolean;
}

export const run = defineInferlet(async ({ ticks = 10, everyMs = 50, hold = false }: Input) => {
  const { functionVersion: version } = invocation();
  if (hold) await receive();
  for (let tick = 0; tick < ticks; tick++) {
    await send(`${version} ${tick}`);
    await sleep(everyMs);
  }
  return { version, ticks };
});
