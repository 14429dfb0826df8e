/** Makes one handler call many times, for `pie bench calls`. Sends a message when ready, waits for a message, and reports start and duration. */
import { allocateEmbeds, freeEmbeds } from 'pie:inferlet/allocate@0.1.0';
import { forward } from 'pie:inferlet/forward@0.1.0';
import { step } from 'pie:inferlet/fused@0.1.0';
import { embedText } from 'pie:inferlet/input-text@0.1.0';
import { nextDistribution } from 'pie:inferlet/output-text@0.1.0';
import { Queue } from 'pie:inferlet/queue@0.1.0';
import { models, now, random } from 'pie:inferlet/runtime@0.1.0';
import { receive, send } from 'pie:inferlet/session@0.1.0';
import { get } from 'pie:inferlet/store@0.1.0';
import { tokenize } from 'pie:inferlet/tokenize@0.1.0';
import { GREEDY, unwrap } from './bare.ts';

interface Input {
  readonly call: keyof typeof CALLS;
  readonly times: number;
}

/** Pairs of `allocate-embeds` and `free-embeds` between two waits for an answer. All of them travel to the GPU host with the next wait. */
const PAIRS = 32;

/** Model and memory that the calls use. */
interface CallContext {
  readonly model: string;
  readonly queue: Queue;
  readonly embeds: readonly number[];
}

const CALLS = {
  random: () => void random(),
  tokenize: ({ model }: CallContext) => void tokenize(model, 'bird', false),
  async allocate({ queue }: CallContext, index: number) {
    freeEmbeds(queue, allocateEmbeds(queue, 1));
    if (index % PAIRS === 0) unwrap(await queue.synchronize().read());
  },
  store: async () => void unwrap(await get('absent').read()),
  synchronize: async ({ queue }: CallContext) => void unwrap(await queue.synchronize().read()),
  async step({ queue }: CallContext) {
    const request = { tokens: [5], positions: [0], inPages: [], outPages: [], mask: undefined, rows: 1 };
    unwrap(await step(queue, { ...request, output: { tag: 'sample', val: GREEDY } }).read());
  },
  async split({ queue, embeds: [input = 0, output = 0] }: CallContext) {
    embedText(queue, [5], [0], [input]);
    forward(queue, [], [input], [], [output], undefined);
    unwrap(await nextDistribution(queue, output, 1).read());
  },
};

export async function run(input: string): Promise<string> {
  const { call, times } = JSON.parse(input) as Input;
  const model = models()[0]?.name ?? '';
  const queue = new Queue(model);
  const context = { model, queue, embeds: [...allocateEmbeds(queue, 2)] };
  unwrap(await queue.synchronize().read());
  const makeCall = CALLS[call];
  await makeCall(context, 0);
  send({ tag: 'text', val: 'ready' });
  unwrap(await receive().read());
  const startedAt = Number(now());
  for (let i = 1; i <= times; i++) {
    // A call that returns no promise must not pay for an `await`.
    const pending = makeCall(context, i);
    if (pending) await pending;
  }
  return JSON.stringify({ startedAt, elapsedMs: Number(now()) - startedAt });
}
