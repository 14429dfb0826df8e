import { type Attack, ended } from '../attack.ts';
import { DONE, forever, type GuestText, MODEL_NAME, SCRATCH, swallow, TOPIC, times } from '../guest.ts';

const attack = (name: string, guest: GuestText, ends = ended('trap')): Attack => ({
  name: `handles-${name}`,
  kind: 'handles',
  source: () => ({ guest }),
  ends,
  manifest: { grants: { store: true, messaging: true, launch: '*' } },
});

const QUEUE = `(call $queue.queue.new ${MODEL_NAME})`;
const SYNCHRONIZE = `(call $queue.queue.synchronize ${QUEUE})`;
const DROP = '(call $queue.queue.drop (local.get $j))';
const SLEEP = '(call $runtime.sleep (i32.const 1000000))';
const READ = `(drop (call $read:runtime.sleep (local.get $j) ${SCRATCH}))`;
const SET = '(call $root:waitable-set-new)';

export const handles: readonly Attack[] = [
  attack('forged', { run: `(call $queue.queue.drop (i32.const 1)) ${DONE}` }, ended('trap')),
  attack('negative', { run: `(call $queue.queue.drop (i32.const -1)) ${DONE}` }),
  attack('dropped-twice', { run: `(local.set $j ${QUEUE}) ${DROP} ${DROP} ${DONE}` }, ended('trap')),
  attack('used-after-drop', {
    run: `(local.set $j ${QUEUE}) ${DROP} (drop (call $queue.queue.synchronize (local.get $j))) ${DONE}`,
  }),
  attack('reused-index', {
    run: `(local.set $j ${QUEUE}) ${DROP} (drop ${SET}) (drop (call $queue.queue.synchronize (local.get $j))) ${DONE}`,
  }),
  attack('of-another-resource', { run: `(call $messaging.subscription.drop ${QUEUE}) ${DONE}` }, ended('trap')),
  attack('a-queue-as-future', { run: `(drop (call $read:runtime.sleep ${QUEUE} ${SCRATCH})) ${DONE}` }),
  attack('a-future-as-queue', { run: `(drop (call $queue.queue.synchronize ${SLEEP})) ${DONE}` }),
  attack('a-future-of-another-type', { run: `(drop (call $read:store.get ${SLEEP} ${SCRATCH})) ${DONE}` }),
  attack('a-set-as-waitable', { run: `(call $root:waitable-join ${SET} ${SET}) ${DONE}` }),
  attack('a-queue-in-a-set', { run: `(call $root:waitable-join ${QUEUE} ${SET}) ${DONE}` }),
  attack('a-future-read-twice', { run: `(local.set $j ${SLEEP}) ${READ} ${READ} ${DONE}` }),
  attack(
    'a-future-dropped-while-read',
    { run: `(local.set $j ${SLEEP}) ${READ} (call $drop:runtime.sleep (local.get $j)) ${DONE}` },
    ended('trap'),
  ),
  attack('a-future-cancelled-unread', { run: `(drop (call $cancel:runtime.sleep ${SLEEP})) ${DONE}` }),
  attack(
    'a-future-cancelled-and-read-again',
    { run: `(local.set $j ${SLEEP}) ${READ} (drop (call $cancel:runtime.sleep (local.get $j))) ${READ} ${DONE}` },
    ended('result'),
  ),
  attack('an-unaligned-target', { run: `(drop (call $read:runtime.sleep ${SLEEP} (i32.const 257))) ${DONE}` }),
  attack('a-target-past-the-end', { run: `(drop (call $read:runtime.sleep ${SLEEP} (i32.const -8))) ${DONE}` }),
  attack('a-set-dropped-while-joined', {
    run: `(local.set $j ${SET}) (call $root:waitable-join ${SLEEP} (local.get $j)) (call $root:waitable-set-drop (local.get $j)) ${DONE}`,
  }),
  attack('a-dropped-set', {
    run: `(local.set $j ${SET}) (call $root:waitable-set-drop (local.get $j)) (drop (call $root:waitable-set-poll (local.get $j) ${SCRATCH})) ${DONE}`,
  }),
  attack('an-unknown-subtask', { run: `(call $root:subtask-drop (i32.const 5)) ${DONE}` }),
  attack('sets-without-end', { run: forever(`(drop ${SET})`) }, ended('trap')),
  attack('queues-without-end', { run: forever(`(drop ${QUEUE})`) }, ended('trap', 'cpu-limit', 'deadline-exceeded')),
  attack('timers-without-end', { run: forever(`(drop ${SLEEP})`) }, ended('trap', 'cpu-limit', 'deadline-exceeded')),
  attack(
    'matchers-without-end',
    {
      run: forever(
        '(drop (call $grammar.compiled.new (i32.const 32) (i32.const 10) (i32.const 3) (i32.const 0) (i32.const 0)))',
      ),
    },
    ended('trap', 'cpu-limit', 'deadline-exceeded'),
  ),
  attack(
    'subscriptions-without-end',
    { run: forever(`(drop (call $messaging.subscription.new ${TOPIC}))`) },
    ended('trap', 'cpu-limit', 'deadline-exceeded'),
  ),
  attack(
    'children-without-end',
    { run: forever(`(drop (call $children.child.new ${TOPIC} ${TOPIC}))`) },
    ended('trap', 'cpu-limit', 'deadline-exceeded'),
  ),
  attack(
    'detokenizers-without-end',
    { run: forever(`(drop (call $tokenize.detokenizer.new ${MODEL_NAME}))`) },
    ended('trap', 'cpu-limit', 'deadline-exceeded'),
  ),
  attack(
    'queues-made-and-dropped',
    { run: forever(`(call $queue.queue.drop ${QUEUE})`) },
    ended('cpu-limit', 'deadline-exceeded', 'trap'),
  ),
  attack(
    'futures-of-a-dropped-queue',
    {
      run: `(local.set $j ${QUEUE}) ${times(1000, '(drop (call $queue.queue.synchronize (local.get $j)))')} ${DROP} ${DONE}`,
    },
    ended('result'),
  ),
  attack(
    'synchronize-without-end',
    { run: `(local.set $j ${QUEUE}) ${forever('(drop (call $queue.queue.synchronize (local.get $j)))')}` },
    ended('trap', 'cpu-limit', 'deadline-exceeded'),
  ),
  attack(
    'join-and-leave-without-end',
    {
      run: `(local.set $j ${SLEEP}) ${forever(`(call $root:waitable-join (local.get $j) ${SET}) (call $root:waitable-join (local.get $j) (i32.const 0))`)}`,
    },
    ended('trap', 'cpu-limit', 'deadline-exceeded'),
  ),
  attack('swallowed-forgeries', { run: `${times(1000, swallow('(call $queue.queue.drop (local.get $i))'))} ${DONE}` }),
  attack('an-ended-guest-that-goes-on', {
    run: `${swallow('(call $queue.queue.drop (i32.const 1))')} (drop ${SYNCHRONIZE}) ${DONE}`,
  }),
];
