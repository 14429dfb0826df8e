import { type Attack, ended, SPENT, UNBUILT } from '../attack.ts';
import { DONE, forever, type GuestText, SCRATCH, swallow } from '../guest.ts';

const TAG = /\(tag /;
/** Exceptions with tags do not build today; if a later build accepts them, the attack must end in one of the other ways. */
const THROWING = [...UNBUILT, ...SPENT, ...ended('trap')];

const attack = (name: string, guest: GuestText, ends: Attack['ends'] = SPENT): Attack => ({
  name: `control-${name}`,
  kind: 'control',
  source: () => ({ guest }),
  ends: TAG.test(guest.fields ?? '') ? THROWING : ends,
});

/** Tail calls and exceptions: a guest may use them to run on without a loop, and to catch the error that should end it. */
export const control: readonly Attack[] = [
  attack('loop', { run: forever() }, SPENT),
  attack(
    'tail-calls',
    {
      fields: '(func $f (param i32) (result i32) (return_call $f (i32.const 1)))',
      run: '(return_call $f (i32.const 0))',
    },
    SPENT,
  ),
  attack('mutual-tail-calls', {
    fields: '(func $f (result i32) (return_call $g)) (func $g (result i32) (return_call $f))',
    run: '(return_call $f)',
  }),
  attack('indirect-tail-calls', {
    fields:
      '(table funcref (elem $f)) (type $t (func (result i32))) (func $f (type $t) (return_call_indirect (type $t) (i32.const 0)))',
    run: '(return_call $f)',
  }),
  attack(
    'tail-calls-into-the-host',
    {
      fields: '(func $f (return_call $runtime.log (i32.const 1) (i32.const 16) (i32.const 2)))',
      run: `${forever('(call $f)')}`,
    },
    [...SPENT, ...ended('output-limit')],
  ),
  attack('swallows-its-end', { run: forever(swallow(forever())) }, SPENT),
  attack('swallows-in-every-frame', {
    fields: `(func $f (param i32) (if (local.get 0) (then ${swallow('(call $f (i32.sub (local.get 0) (i32.const 1)))')})) ${forever()})`,
    run: `(call $f (i32.const 1000)) ${DONE}`,
  }),
  attack('throws-forever', { fields: '(tag $t)', run: forever(swallow('(throw $t)')) }, SPENT),
  attack('rethrows-forever', {
    fields: '(tag $t)',
    run: forever(
      '(block $out (result exnref) (try_table (catch_all_ref $out) (block $in (result exnref) (try_table (catch_all_ref $in) (throw $t)) (unreachable)) (throw_ref)) (unreachable)) (drop)',
    ),
  }),
  attack('catches-and-throws-between-frames', {
    fields: `(tag $t) (func $f (param i32) (if (i32.eqz (local.get 0)) (then (throw $t))) (block $c (result exnref) (try_table (catch_all_ref $c) (call $f (i32.sub (local.get 0) (i32.const 1)))) (return)) (throw_ref))`,
    run: forever(swallow('(call $f (i32.const 500))')),
  }),
  attack('uncaught-exception', { fields: '(tag $t (param i64))', run: '(throw $t (i64.const 7))' }, ended('trap')),
  attack(
    'uncaught-exception-in-the-callback',
    { fields: '(tag $t)', run: '(i32.const 1)', callback: '(throw $t)' },
    ended('trap'),
  ),
  attack('swallows-host-errors', { run: forever(swallow('(call $queue.queue.drop (i32.const 77))')) }, ended('trap')),
  attack(
    'swallows-host-errors-and-goes-on',
    { run: `${swallow('(call $queue.queue.drop (i32.const 77))')} ${DONE}` },
    ended('trap'),
  ),
  attack('swallows-traps', { run: `${swallow('(unreachable)')} ${DONE}` }, ended('trap')),
  attack('swallows-out-of-bounds', { run: `${swallow('(drop (i32.load (i32.const -4)))')} ${DONE}` }, ended('trap')),
  attack('yields-and-swallows', { run: forever(swallow('(drop (call $root:thread-yield))')) }),
  attack(
    'sleeps-and-swallows',
    { run: forever(swallow(`(drop (call $wait:runtime.sleep (call $runtime.sleep (i32.const 1000)) ${SCRATCH}))`)) },
    ended('trap', 'deadline-exceeded', 'cpu-limit'),
  ),
  attack('divides-by-zero', { run: '(drop (i32.div_s (i32.const 1) (i32.const 0))) (unreachable)' }, ended('trap')),
  attack('large-payload', {
    fields: `(tag $t (param ${'i64 '.repeat(900)}))`,
    run: forever(swallow(`${'(i64.const 1) '.repeat(900)} (throw $t)`)),
  }),
];
