import { type AskedOperation, OPERATIONS, SENT, type SentOperation } from '#gpu-host/protocol/operations.ts';
import { type QueueCall, queueCalls } from '#wit/generated/queue-calls.ts';
import type { HostTable } from '../lowering/compile.ts';
import type { DeviceQueue } from './queue.ts';

type Asked = Extract<QueueCall, { op: AskedOperation['op'] }>;
type Sent = Extract<QueueCall, { op: SentOperation['op'] }>;

const asked: HostTable = queueCalls((queue: DeviceQueue, call) =>
  queue.device ? queue.device.ask(queue.id, call as Asked) : Promise.resolve(queue.refusal()),
);
const sent: HostTable = queueCalls(({ device, id }: DeviceQueue, call) => device?.send(id, call as Sent));
const answers = new Map(Object.entries(OPERATIONS).map(([name, { answer }]) => [name, answer]));

/** The functions of the contract whose calls go to the queue's device unchanged, by interface, with or without an answer. */
export const passed: HostTable = Object.fromEntries(
  Object.keys(asked).map((name) => [
    name,
    {
      ...pick(sent[name], (answer) => answer === SENT),
      ...pick(asked[name], (answer) => answer !== SENT && answer !== undefined),
    },
  ]),
);

function pick(functions: HostTable[string] = {}, fits: (answer: unknown) => boolean): HostTable[string] {
  return Object.fromEntries(Object.entries(functions).filter(([name]) => fits(answers.get(name))));
}
