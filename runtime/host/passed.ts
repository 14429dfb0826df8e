import { type AskedOperation, OPERATIONS, type SentOperation } from '#gpu-host/protocol/operations.ts';
import { type QueueCall, queueCalls } from '#wit/generated/queue-calls.ts';
import type { HostTable } from '../lowering/compile.ts';
import type { DeviceQueue } from './queue.ts';

type Asked = Extract<QueueCall, { op: AskedOperation['op'] }>;
type Sent = Extract<QueueCall, { op: SentOperation['op'] }>;

/** How each operation is called: `asked` for a result, `sent` without one; any other way needs a function of its own. */
const ways = new Map<string, string>(Object.entries(OPERATIONS).map(([name, { way }]) => [name, way]));

const functions: HostTable = queueCalls((queue: DeviceQueue, call) => {
  const { device, id } = queue;
  if (ways.get(call.op) === 'sent') return device?.send(id, call as Sent);
  return device ? device.ask(id, call as Asked) : Promise.resolve(queue.refusal());
});

/** The functions of the contract whose calls go to the queue's device unchanged, by interface. */
export const passed: HostTable = Object.fromEntries(
  Object.entries(functions).map(([name, members]) => [name, pick(members)]),
);

/** The functions whose calls are only asked or sent. */
function pick(members: HostTable[string]): HostTable[string] {
  return Object.fromEntries(
    Object.entries(members).filter(([name]) => ways.get(name) === 'asked' || ways.get(name) === 'sent'),
  );
}
