import { type Attack, ended, SPENT, UNBUILT } from '../attack.ts';
import { DONE, forever, type GuestText } from '../guest.ts';

const attack = (name: string, guest: GuestText, ends = ended('trap')): Attack => ({
  name: `tables-${name}`,
  kind: 'tables',
  source: () => ({ guest }),
  ends,
});

const many = (count: number, text: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => text(index)).join('\n');

export const tables: readonly Attack[] = [
  attack('huge', { fields: '(table 10000000 funcref)', run: DONE }, UNBUILT),
  attack('largest', { fields: '(table 4294967295 funcref)', run: DONE }, UNBUILT),
  attack('64-bit', { fields: '(table i64 1 funcref)', run: DONE }, UNBUILT),
  attack('many', { fields: many(100, () => '(table 1 funcref)'), run: DONE }, UNBUILT),
  attack(
    'grow-to-the-bound',
    {
      fields: '(table $t 1 funcref)',
      run: `(loop $l (br_if $l (i32.ge_s (table.grow $t (ref.null func) (i32.const 1000)) (i32.const 0)))) ${DONE}`,
    },
    ended('result'),
  ),
  attack(
    'grow-by-minus-one',
    { fields: '(table $t 1 funcref)', run: `(drop (table.grow $t (ref.null func) (i32.const -1))) ${DONE}` },
    ended('result'),
  ),
  attack(
    'grow-forever',
    { fields: '(table $t 1 funcref)', run: forever('(drop (table.grow $t (ref.null func) (i32.const 1)))') },
    SPENT,
  ),
  attack(
    'fill-forever',
    {
      fields: '(table $t 60000 funcref)',
      run: forever('(table.fill $t (i32.const 0) (ref.null func) (i32.const 60000))'),
    },
    SPENT,
  ),
  attack(
    'copy-forever',
    {
      fields: '(table $t 60000 funcref)',
      run: forever('(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 59000))'),
    },
    SPENT,
  ),
  attack(
    'init-forever',
    {
      fields: `(table $t 10000 funcref) (elem $e func ${'$realloc '.repeat(10_000)})`,
      run: forever('(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 10000))'),
    },
    SPENT,
  ),
  attack('wrong-signature', {
    fields: '(table funcref (elem $realloc)) (type $t (func))',
    run: `(call_indirect (type $t) (i32.const 0)) ${DONE}`,
  }),
  attack('null', {
    fields: '(table 1 funcref) (type $t (func))',
    run: `(call_indirect (type $t) (i32.const 0)) ${DONE}`,
  }),
  attack('out-of-bounds', {
    fields: '(table 1 funcref) (type $t (func))',
    run: `(call_indirect (type $t) (i32.const -1)) ${DONE}`,
  }),
  attack(
    'the-meters-names',
    {
      fields: '(global (export "pie_fuel") (mut i32) (i32.const 2000000000)) (table (export "pie_yield") 1 funcref)',
      run: forever(),
    },
    [...UNBUILT, ...SPENT],
  ),
  attack(
    'the-meters-fuel-as-function',
    { fields: '(func (export "pie_fuel")) (func (export "pie_yield"))', run: forever() },
    [...UNBUILT, ...SPENT],
  ),
  attack(
    'host-functions-in-a-table',
    {
      fields: '(table funcref (elem $runtime.now)) (type $t (func (result i64)))',
      run: `(drop (call $runtime.now)) (drop (call_indirect (type $t) (i32.const 0))) ${DONE}`,
    },
    ended('result'),
  ),
  attack(
    'externref',
    { fields: '(table $t 10 externref)', run: `(table.set $t (i32.const 0) (ref.null extern)) ${DONE}` },
    [...UNBUILT, ...ended('result')],
  ),
];
