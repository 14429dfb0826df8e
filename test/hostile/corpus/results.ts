import { type Attack, ended, SPENT } from '../attack.ts';
import { AT, DONE, forever, type GuestText, RETURN, SCRATCH } from '../guest.ts';

const MiB = 1 << 20;

const attack = (name: string, guest: GuestText, ends = ended('trap'), more: Partial<Attack> = {}): Attack => ({
  name: `results-${name}`,
  kind: 'results',
  source: () => ({ guest }),
  ends,
  ...more,
});

const returns = (tag: number, pointer: number, length: number): string =>
  `(call $return (i32.const ${tag}) (i32.const ${pointer}) (i32.const ${length})) (i32.const 0)`;

/** A blocking `run`, without a callback, that returns `pointer`. */
const plain = (pointer: number): GuestText => ({
  run: '',
  entry: `(func (export "run") (param i32 i32) (result i32) (i32.const ${pointer}))`,
});

/** A result of `bytes` bytes: the first half repeats the byte `first`, the second half `second`. */
const large = (bytes: number, first: number, second: number): GuestText => ({
  memory: String(2 + Math.ceil(bytes / 65_536)),
  run: `(memory.fill (i32.const ${AT.heap}) (i32.const ${first}) (i32.const ${bytes / 2}))
    (memory.fill (i32.const ${AT.heap + bytes / 2}) (i32.const ${second}) (i32.const ${bytes / 2}))
    ${returns(0, AT.heap, bytes)}`,
});

const [OPEN, CLOSE, SPACE, QUOTE] = [0x5b, 0x5d, 0x20, 0x22];
/** Codes that `run` and its callback return in the lowest four bits. The bits above them hold the waitable set to wait on or to poll. */
const [YIELD, WAIT, POLL] = [1, 2, 3];
const onSet = (set: number, code: number): number => (set << 4) | code;
const POLL_SET = `(i32.or (i32.shl (global.get $set) (i32.const 4)) (i32.const ${POLL}))`;
/** JSON with member names that have a meaning in JavaScript. */
const PROTOTYPES = '{"__proto__":{"then":1,"toString":1},"constructor":{"prototype":{"x":1}}}';

export const results: readonly Attack[] = [
  attack('past-the-end', { run: returns(0, -16, 4) }, ended('trap')),
  attack('wraps-around', { run: returns(0, AT.answer, -1) }),
  attack('not-utf-8', { run: returns(0, AT.answer, 4) }),
  attack('unknown-case', { run: returns(7, AT.answer, 2) }, ended('trap')),
  attack('twice', { run: `${RETURN} ${DONE}` }, ended('trap')),
  attack('never', { run: '(i32.const 0)' }),
  attack('unknown-callback-code', { run: '(i32.const 13)' }),
  attack('negative-callback-code', { run: '(i32.const -1)' }),
  attack('waits-on-forged-set', { run: `(i32.const ${onSet(5, WAIT)})` }),
  attack('waits-on-largest-set', { run: `(i32.const ${onSet(0x0fff_ffff, WAIT)})` }),
  attack('waits-for-nothing', {
    run: `(i32.or (i32.shl (call $root:waitable-set-new) (i32.const 4)) (i32.const ${WAIT}))`,
  }),
  attack(
    'polls-nothing-forever',
    {
      fields: '(global $set (mut i32) (i32.const 0))',
      run: `(global.set $set (call $root:waitable-set-new)) ${POLL_SET}`,
      callback: POLL_SET,
    },
    SPENT,
  ),
  attack('yields-forever', { run: `(i32.const ${YIELD})`, callback: `(i32.const ${YIELD})` }, SPENT),
  attack(
    'spins-after-the-result',
    { run: `${RETURN} ${forever()}` },
    ended('cpu-limit', 'deadline-exceeded', 'result'),
  ),
  attack(
    'yields-after-the-result',
    { run: `${RETURN} (i32.const ${YIELD})`, callback: `(i32.const ${YIELD})` },
    ended('result', 'cpu-limit'),
  ),
  attack('traps-after-the-result', { run: `${RETURN} (unreachable)` }, ended('trap', 'result')),
  attack(
    'waits-after-the-result',
    {
      run: `${RETURN} (drop (call $wait:runtime.sleep (call $runtime.sleep (i32.const -1)) ${SCRATCH})) (i32.const 0)`,
    },
    ended('result', 'deadline-exceeded'),
  ),
  attack('not-json', { run: returns(0, AT.model, 10) }, ended('invalid-result')),
  attack('empty', { run: returns(0, -1, 0) }, ended('invalid-result', 'trap')),
  attack('too-large', large(6 * MiB, QUOTE, SPACE), ended('output-limit')),
  attack(
    'error-too-large',
    {
      memory: '200',
      run: `(memory.fill (i32.const ${AT.heap}) (i32.const ${SPACE}) (i32.const ${8 * MiB})) ${returns(1, AT.heap, 8 * MiB)}`,
    },
    ended('inferlet-error'),
  ),
  attack('nested-2-million-deep', large(4 * MiB - 2, OPEN, CLOSE), ended('result', 'invalid-result', 'output-limit')),
  attack('opens-4-million-arrays', large(4 * MiB - 2, OPEN, OPEN), ended('invalid-result')),
  attack(
    'prototype-member',
    {
      fields: `(data (i32.const 1024) "${PROTOTYPES.replaceAll('"', '\\22')}")`,
      run: returns(0, 1024, PROTOTYPES.length),
    },
    ended('result'),
  ),
  attack('plain-past-the-end', plain(-4)),
  attack('plain-unaligned', plain(513)),
  attack('plain-zero-memory', plain(4096), ended('invalid-result')),
];
