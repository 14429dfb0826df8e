import { type Attack, ended, UNBUILT } from '../attack.ts';
import { DONE, forever, type GuestText, SCRATCH, swallow, TOPIC, times } from '../guest.ts';

/** The deploy refuses a component whose start function uses up its fuel, or traps. */
const REFUSED = UNBUILT;
const HARMLESS = [...REFUSED, ...ended('result')];

const attack = (name: string, guest: Omit<GuestText, 'run'>, ends = REFUSED): Attack => ({
  name: `start-${name}`,
  kind: 'start',
  source: () => ({ guest: { run: DONE, ...guest } }),
  ends,
});

export const start: readonly Attack[] = [
  attack('spins', { start: forever() }, REFUSED),
  attack('swallows-its-end', { start: forever(swallow(forever())) }),
  attack('spins-to-the-fuel', { start: times(900_000, '') }, HARMLESS),
  attack(
    'fills-memory-to-the-fuel',
    { memory: '200', start: times(100, '(memory.fill (i32.const 0) (i32.const 1) (i32.const 13000000))') },
    // The start function overwrites the result's memory. Filling takes CPU time close to the limit.
    [...HARMLESS, ...ended('invalid-result', 'cpu-limit')],
  ),
  attack('grows-memory', { start: forever('(drop (memory.grow (i32.const 1)))') }),
  attack('grows-memory-once', { start: '(drop (memory.grow (i32.const 200)))' }, HARMLESS),
  attack('traps', { start: '(unreachable)' }, REFUSED),
  attack('throws', { fields: '(tag $tag)', start: '(throw $tag)' }),
  attack('recurses', { fields: '(func $deep (call $deep) (call $deep))', start: '(call $deep)' }, REFUSED),
  attack('swallows-recursion', {
    fields: `(func $deep ${swallow('(call $deep)')} ${swallow('(call $deep)')})`,
    start: '(call $deep)',
  }),
  attack('calls-now', { start: '(drop (call $runtime.now))' }, HARMLESS),
  attack('sends', { start: `(call $session.send (i32.const 0) ${TOPIC} ${SCRATCH})` }, HARMLESS),
  attack('swallows-calls', { start: swallow(`(call $session.send (i32.const 0) ${TOPIC} ${SCRATCH})`) }, HARMLESS),
  attack('yields', { start: forever(swallow('(drop (call $root:thread-yield))')) }),
  attack(
    'blocks',
    { start: `(drop (call $wait:runtime.sleep (call $runtime.sleep (i32.const -1)) ${SCRATCH}))` },
    HARMLESS,
  ),
  attack('runs', { start: '(drop (call $run (i32.const 0) (i32.const 0)))' }, HARMLESS),
  attack('returns', { start: '(call $return (i32.const 0) (i32.const 16) (i32.const 2))' }, HARMLESS),
  attack('spins-in-copies-of-elements', {
    fields: '(table $t 60000 funcref) (elem $e func $realloc)',
    start: forever('(table.fill $t (i32.const 0) (ref.null func) (i32.const 60000))'),
  }),
];
