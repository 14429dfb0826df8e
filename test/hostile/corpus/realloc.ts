import { type Attack, ended, SPENT, UNBUILT } from '../attack.ts';
import { DONE, forever, type GuestText, MODEL_NAME, RETURN, SCRATCH, swallow, TOPIC } from '../guest.ts';

const FIELDS = '(global $armed (mut i32) (i32.const 0))';
/** Sets `$armed` and calls `tenant`. The host calls `cabi_realloc` for memory for the result. */
const ASK = `(global.set $armed (i32.const 1)) (call $runtime.tenant ${SCRATCH}) ${DONE}`;
const BUMP = '(call $bump (local.get $align) (local.get $size))';

/** Runs `body` in `cabi_realloc` once `$armed` is set: while the host allocates a call's result, but not while it allocates the input of `run`. */
const armed = (body: string, more: Partial<GuestText> = {}): GuestText => ({
  run: ASK,
  realloc: `(if (global.get $armed) (then ${body})) ${BUMP}`,
  ...more,
  fields: `${FIELDS} ${more.fields ?? ''}`,
});

const attack = (name: string, guest: GuestText, ends = ended('trap')): Attack => ({
  name: `realloc-${name}`,
  kind: 'realloc',
  source: () => ({ guest }),
  // Exceptions with tags do not build today.
  ends: guest.fields?.includes('(tag ') ? [...UNBUILT, ...ends] : ends,
});

/** Calls that the guest makes from `cabi_realloc`. The canonical ABI forbids all of them there (`may_leave`). */
const CALLS: Readonly<Record<string, string>> = {
  now: '(drop (call $runtime.now))',
  log: `(call $runtime.log (i32.const 1) ${TOPIC})`,
  send: `(call $session.send (i32.const 0) ${TOPIC} ${SCRATCH})`,
  'queue-new': `(drop (call $queue.queue.new ${MODEL_NAME}))`,
  yield: '(drop (call $root:thread-yield))',
  'task-return': RETURN,
  'blocking-read': `(drop (call $wait:runtime.sleep (call $runtime.sleep (i32.const 1)) ${SCRATCH}))`,
  'set-new': '(drop (call $root:waitable-set-new))',
  tenant: `(call $runtime.tenant ${SCRATCH})`,
  tokenize: `(call $tokenize.tokenize ${MODEL_NAME} ${TOPIC} (i32.const 0) ${SCRATCH})`,
};

/** Reads a future whose value needs memory, and runs `body` on the future while the host calls `cabi_realloc`. */
const whileRead = (body: string): GuestText => ({
  fields: `${FIELDS} (global $future (mut i32) (i32.const 0))`,
  run: `(global.set $armed (i32.const 1)) (global.set $future (call $store.get ${TOPIC}))
    (drop (call $wait:store.get (global.get $future) ${SCRATCH})) ${DONE}`,
  realloc: `(if (global.get $armed) (then ${body})) ${BUMP}`,
});

export const realloc: readonly Attack[] = [
  ...Object.entries(CALLS).map(([name, body]) => attack(`calls-${name}`, armed(body), ended('trap'))),
  ...Object.entries(CALLS).map(([name, body]) => attack(`swallows-${name}`, armed(swallow(body)), ended('trap'))),
  attack('yields-forever', armed(forever(swallow('(drop (call $root:thread-yield))'))), ended('trap', 'cpu-limit')),
  attack(
    'input-yields-forever',
    { run: DONE, realloc: forever(swallow('(drop (call $root:thread-yield))')) },
    ended('trap', 'cpu-limit'),
  ),
  attack(
    'waits-forever',
    armed(forever(swallow(`(drop (call $root:waitable-set-wait (i32.const 1) ${SCRATCH}))`))),
    ended('trap', 'cpu-limit'),
  ),
  attack('drops-the-future', whileRead('(call $drop:store.get (global.get $future))'), ended('trap')),
  attack('reads-the-future', whileRead(`(drop (call $read:store.get (global.get $future) ${SCRATCH}))`)),
  attack(
    'joins-the-future',
    whileRead('(call $root:waitable-join (global.get $future) (call $root:waitable-set-new))'),
  ),
  attack('spins', armed(forever()), SPENT),
  attack('spins-for-input', { run: DONE, realloc: forever() }, SPENT),
  attack('swallows-its-end', armed(forever(swallow(forever()))), SPENT),
  attack('grows-memory', armed(forever('(drop (memory.grow (i32.const 1)))')), [...SPENT, ...ended('memory-limit')]),
  attack('moves-memory', armed('(drop (memory.grow (i32.const 1)))'), ended('result')),
  attack('out-of-bounds', { ...armed(''), realloc: '(i32.const -8)' }, ended('trap')),
  attack('past-the-end', { ...armed(''), realloc: '(i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 1))' }),
  attack('unaligned', {
    run: `(global.set $armed (i32.const 1)) (call $tokenize.tokenize ${MODEL_NAME} ${TOPIC} (i32.const 0) ${SCRATCH}) ${DONE}`,
    fields: FIELDS,
    realloc: `(i32.add ${BUMP} (global.get $armed))`,
  }),
  attack('overlaps-the-result', { ...armed(''), realloc: SCRATCH }, ended('result')),
  attack(
    'overlaps-itself',
    { run: `(call $runtime.models ${SCRATCH}) ${DONE}`, realloc: '(i32.const 512)' },
    ended('result', 'trap'),
  ),
  attack(
    'null',
    { run: `(call $runtime.models ${SCRATCH}) ${DONE}`, realloc: '(i32.const 0)' },
    ended('result', 'trap', 'invalid-result'),
  ),
  attack('traps', armed('(unreachable)')),
  attack('throws', armed('(throw $tag)', { fields: '(tag $tag)' }), ended('trap')),
  attack(
    'throws-through-the-host',
    {
      fields: `${FIELDS} (tag $tag)`,
      run: `(global.set $armed (i32.const 1)) ${swallow(`(call $runtime.tenant ${SCRATCH})`)} ${DONE}`,
      realloc: `(if (global.get $armed) (then (throw $tag))) ${BUMP}`,
    },
    ended('trap', 'result'),
  ),
  attack('recurses', armed('(drop (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 1)))')),
  attack('runs', armed('(drop (call $run (i32.const 0) (i32.const 0)))'), ended('trap', 'cpu-limit')),
];
