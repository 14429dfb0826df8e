/**
 * Program of a sandbox, `node main.ts POOL_MB`, which `runtime/fleet/process.ts` starts confined. Descriptor 3 is the channel. Without
 * arguments it ends once it is loaded, so that Node keeps the compiled code for the next sandboxes.
 */
import { Socket } from 'node:net';
import { SandboxEnd, sandboxTable, suspendingWorld } from '../channel/sandbox-end.ts';
import type { ToSandbox } from '../fleet/messages.ts';
import { compileWorld } from '../lowering/compile.ts';
import { compileWhole } from '../sandboxes/confine.js';
import { Guests } from './guests.ts';
import { localTable } from './local.ts';

/** Interval of the beats: messages that show the runtime that the sandbox lives. Several fit into the silence that the runtime's watch allows. */
const BEAT_MS = 100;
/** A sandbox without guests sends only one beat in this many. */
const IDLE_BEATS = 10;
const CHANNEL = 3;

const [poolMb] = process.argv.slice(2);
const guests: Guests = new Guests({
  world: suspendingWorld(compileWorld(sandboxTable(localTable((model) => guests.vocabulary(model))))),
  poolBytes: Number(poolMb ?? 0) * 2 ** 20,
  tell: (message) => end.tell(message),
  isBehind: () => end.isBehind,
  compileWhole,
});
if (poolMb === undefined) process.exit();
const end = new SandboxEnd(new Socket({ fd: CHANNEL, readable: true, writable: true }), {
  opened: (invocation) => guests.run(invocation),
  control: (message, body) => guests.take(message as ToSandbox, new Uint8Array(body)),
  lost: (fault) => {
    // The runtime reads this from stderr unless it ended the channel itself.
    console.error(`${fault.code}: ${fault.message}`);
    process.exit(1);
  },
});
let skippedBeats = 0;
setInterval(() => {
  const isDue = guests.busy || skippedBeats >= IDLE_BEATS - 1;
  skippedBeats = isDue ? 0 : skippedBeats + 1;
  if (isDue) end.tell({ kind: 'beat', used: guests.takeUsage(), ready: guests.ready });
}, BEAT_MS);
end.tell({ kind: 'ready' });
