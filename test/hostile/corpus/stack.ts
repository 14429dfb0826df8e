import { type Attack, ended } from '../attack.ts';
import { AT, DONE, type GuestText, MODEL_NAME, SCRATCH, swallow, TOPIC } from '../guest.ts';

/** Host calls of every kind: computed in the runtime, sent to the GPU host, written to Redis, a timer, and built-ins of the component model. */
const CALLS: Readonly<Record<string, string>> = {
  now: '(drop (call $runtime.now))',
  log: `(call $runtime.log (i32.const 1) ${TOPIC})`,
  send: `(call $session.send (i32.const 0) ${TOPIC} ${SCRATCH})`,
  sleep: '(drop (call $runtime.sleep (i32.const 1)))',
  'queue-new': `(call $queue.queue.drop (call $queue.queue.new ${MODEL_NAME}))`,
  synchronize: '(call $drop:queue.queue.synchronize (call $queue.queue.synchronize (global.get $queue)))',
  allocate: `(call $allocate.allocate-embeds (global.get $queue) (i32.const 1) ${SCRATCH})`,
  'embed-text':
    '(call $input-text.embed-text (global.get $queue) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 1))',
  forward:
    '(call $forward.forward (global.get $queue) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))',
  'store-set': `(call $drop:store.set (call $store.set ${TOPIC} ${TOPIC} (i32.const 0) (i32.const 0)))`,
  broadcast: `(call $drop:messaging.broadcast (call $messaging.broadcast ${TOPIC} (i32.const 0) ${TOPIC}))`,
  tokenize: `(call $tokenize.tokenize ${MODEL_NAME} ${TOPIC} (i32.const 0) ${SCRATCH})`,
  tenant: `(call $runtime.tenant ${SCRATCH})`,
  'debug-query': `(call $runtime.debug-query ${TOPIC} ${SCRATCH})`,
  'grammar-new':
    '(call $grammar.compiled.drop (call $grammar.compiled.new (i32.const 32) (i32.const 10) (i32.const 3) (i32.const 0) (i32.const 0)))',
  'set-new': '(call $root:waitable-set-drop (call $root:waitable-set-new))',
  yield: '(drop (call $root:thread-yield))',
};

/** Parameters per frame. A thousand frames of this size fill the stack, and one frame is still smaller than the stack of a host call. */
const PARAMETERS = 50;

/** Calls the host at every depth up to the end of the stack, so that some calls find almost no stack left. */
const descending = (call: string): GuestText => ({
  fields: `(global $queue (mut i32) (i32.const 0))
    (func $descend (param $depth i32) (param ${'i64 '.repeat(PARAMETERS)})
      (if (local.get $depth)
        (then (call $descend (i32.sub (local.get $depth) (i32.const 1))
          ${Array.from({ length: PARAMETERS }, (_, i) => `(local.get ${i + 1})`).join(' ')}))
        (else ${swallow(call)})))`,
  run: `(global.set $queue (call $queue.queue.new ${MODEL_NAME}))
    (loop $deeper
      (call $descend (local.get $i) ${'(i64.const 1) '.repeat(PARAMETERS)})
      (global.set $top (i32.const ${AT.heap}))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $deeper))
    (unreachable)`,
});

const MANIFEST = {
  limits: { cpuMs: 1500, wallMs: 20_000, memoryMb: 16, pages: 16, tokens: 1000 },
  grants: { store: true, messaging: true },
};

/** The end of the stack may end the invocation in any of these ways. State that its host calls leave must not harm another invocation. */
const attack = (name: string, guest: GuestText): Attack => ({
  name: `stack-${name}`,
  kind: 'stack',
  source: () => ({ guest }),
  ends: ended('trap', 'cpu-limit', 'deadline-exceeded', 'memory-limit', 'output-limit', 'result'),
  manifest: MANIFEST,
});

export const stack: readonly Attack[] = [
  ...Object.entries(CALLS).map(([name, call]) => attack(`descends-to-${name}`, descending(call))),
  attack('endless-recursion', { fields: '(func $f (call $f) (call $f))', run: `(call $f) ${DONE}` }),
  attack('swallowed-recursion', {
    fields: `(func $f ${swallow('(call $f)')} ${swallow('(call $f)')})`,
    run: `(call $f) ${DONE}`,
  }),
  attack('large-frames', {
    fields: `(func $f ${'(local f64)'.repeat(5000)} (call $f) (call $f))`,
    run: `(call $f) ${DONE}`,
  }),
  attack('indirect-recursion', {
    fields:
      '(table 1 funcref) (elem (i32.const 0) $f) (type $t (func)) (func $f (call_indirect (type $t) (i32.const 0)) (call_indirect (type $t) (i32.const 0)))',
    run: `(call $f) ${DONE}`,
  }),
];
