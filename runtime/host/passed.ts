import { type AskedOperation, OPERATIONS, SENT, type SentOperation } from '#gpu-host/protocol/operations.ts';
import { type QueueCall, queueCalls } from '#wit/generated/queue-calls.ts';
import type { HostTable } from '../lowering/compile.ts';
import type { DeviceQueue } from './queue.ts';

type Asked = Extract<QueueCall, { op: AskedOperation['op'] }>;
type Sent = Extract<QueueCall, { op: SentOperation['op'] }>;

const askFunctions: HostTable = queueCalls((queue: DeviceQueue, call) =>
  queue.device ? queue.device.ask(queue.id, call as Asked) : Promise.resolve(queue.refusal()),
);
const sendFunctions: HostTable = queueCalls(({ device, id }: DeviceQueue, call) => device?.send(id, call as Sent));
const answers = new Map(Object.entries(OPERATIONS).map(([name, { answer }]) => [name, answer]));

/** The functions of the contract whose calls go to the queue's device unchanged, by interface, with or without an answer. */
export const passed: HostTable = Object.fromEntries(
  Object.keys(askFunctions).map((name) => [
    name,
    {
      ...pick(sendFunctions[name], (answer) => answer === SENT),
      ...pick(askFunctions[name], (answer) => answer !== SENT && answer !== undefined),
    },
  ]),
);

function pick(functions: HostTable[string] = {}, fits: (answer: unknown) => boolean): HostTable[string] {
  return Object.fromEntries(Object.entries(functions).filter(([name]) => fits(answers.get(name))));
}
