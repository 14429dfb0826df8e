import { type Attack, ended, SPENT, UNBUILT } from '../attack.ts';
import { DONE, forever, type GuestText } from '../guest.ts';

const attack = (name: string, guest: GuestText, ends = UNBUILT, more: Partial<Attack> = {}): Attack => ({
  name: `memory-${name}`,
  kind: 'memory',
  source: () => ({ guest }),
  ends,
  ...more,
});

const FULL = ended('memory-limit', 'trap');
const GROW_AND_TOUCH = `(loop $grow
    (local.set $i (memory.grow (i32.const 1)))
    (if (i32.ne (local.get $i) (i32.const -1))
      (then (memory.fill (i32.shl (local.get $i) (i32.const 16)) (i32.const 1) (i32.const 65536)) (br $grow))))
  (unreachable)`;
/** Enough processor time to fill the memory, also on a slow machine. */
const FILLS = { manifest: { limits: { cpuMs: 500, wallMs: 10_000, memoryMb: 16, pages: 16, tokens: 1000 } } };

export const memory: readonly Attack[] = [
  attack('grow-and-touch', { run: GROW_AND_TOUCH }, FULL, FILLS),
  attack('twenty-that-grow-and-touch', { run: GROW_AND_TOUCH }, FULL, { ...FILLS, invocations: 20 }),
  attack('grow-forever', { run: forever('(drop (memory.grow (i32.const 1)))') }, SPENT),
  attack('grow-by-minus-one', { run: `(drop (memory.grow (i32.const -1))) ${DONE}` }, ended('result')),
  attack('grow-by-65536', { run: `(drop (memory.grow (i32.const 65536))) ${DONE}` }, ended('result')),
  attack('load-past-the-end', { run: `(drop (i64.load offset=4294967295 (i32.const -1))) ${DONE}` }, ended('trap')),
  attack('four-gib-at-start', { memory: '65536', run: DONE }, UNBUILT),
  attack('more-than-its-limit', { memory: '300', run: DONE }),
  attack('64-bit', { fields: '(memory i64 1)', run: DONE }, UNBUILT),
  attack('shared', { fields: '(memory 1 100 shared)', run: DONE }, UNBUILT),
  attack('atomics', { run: `(drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1))) ${DONE}` }, [
    ...UNBUILT,
    ...ended('result'),
  ]),
  attack(
    'wait-on-memory',
    { run: `(drop (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1))) ${DONE}` },
    [...UNBUILT, ...ended('trap')],
  ),
  attack('twenty-memories', { fields: '(memory 1)'.repeat(20), run: DONE }),
  attack('two-memories', { fields: '(memory 1)', run: DONE }, [...UNBUILT, ...ended('result')]),
  attack('garbage-collected', {
    fields: '(type $s (struct (field i32))) (func (drop (struct.new $s (i32.const 1))))',
    run: DONE,
  }),
  attack('arrays-without-end', {
    fields: '(type $a (array (mut i64))) (global $keep (mut (ref null $a)) (ref.null $a))',
    run: forever('(global.set $keep (array.new_default $a (i32.const 100000000)))'),
  }),
  attack('tiny-pages', { memory: '1 (pagesize 1)', run: DONE }),
];
