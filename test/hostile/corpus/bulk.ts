import { type Attack, ended, SPENT } from '../attack.ts';
import { DONE, forever, type GuestText } from '../guest.ts';

const MiB = 1 << 20;
/** Limits that let a guest touch 512 MiB with one instruction. */
const HUGE = { limits: { cpuMs: 500, wallMs: 20_000, memoryMb: 520, pages: 16, tokens: 1000 } };
/** 512 MiB in pages of 64 KiB. */
const HUGE_PAGES = 8192;
/** 15 MiB in pages of 64 KiB. */
const LARGE_PAGES = 240;
/** All bytes of a large memory but its last page. */
const LARGE_BYTES = 15 * MiB - 65_536;

const attack = (name: string, guest: GuestText, ends = SPENT, more: Partial<Attack> = {}): Attack => ({
  name: `bulk-${name}`,
  kind: 'bulk',
  source: () => ({ guest }),
  ends,
  ...more,
});

/** Single instructions that do much work. */
export const bulk: readonly Attack[] = [
  attack('fill-15-mib', {
    memory: String(LARGE_PAGES),
    run: forever(`(memory.fill (i32.const 0) (i32.const 1) (i32.const ${LARGE_BYTES}))`),
  }),
  attack('copy-15-mib', {
    memory: String(LARGE_PAGES),
    run: forever(`(memory.copy (i32.const 0) (i32.const 1) (i32.const ${LARGE_BYTES}))`),
  }),
  attack(
    'fill-512-mib',
    {
      memory: String(HUGE_PAGES),
      run: forever(`(memory.fill (i32.const 0) (i32.const 1) (i32.const ${512 * MiB}))`),
    },
    SPENT,
    { manifest: HUGE },
  ),
  attack(
    'copy-512-mib',
    {
      memory: String(HUGE_PAGES),
      run: forever(`(memory.copy (i32.const 0) (i32.const 4096) (i32.const ${511 * MiB}))`),
    },
    SPENT,
    { manifest: HUGE },
  ),
  attack('init', {
    fields: `(data $d "${'x'.repeat(100_000)}")`,
    memory: '4',
    run: forever('(memory.init $d (i32.const 65536) (i32.const 0) (i32.const 100000))'),
  }),
  attack(
    'fill-past-the-end',
    { run: `(memory.fill (i32.const 0) (i32.const 1) (i32.const -1)) ${DONE}` },
    ended('trap'),
  ),
  attack(
    'copy-past-the-end',
    { run: `(memory.copy (i32.const 16) (i32.const -16) (i32.const 64)) ${DONE}` },
    ended('trap'),
  ),
  attack(
    'init-after-drop',
    {
      fields: '(data $d "xxxx")',
      run: `(data.drop $d) (memory.init $d (i32.const 0) (i32.const 0) (i32.const 4)) ${DONE}`,
    },
    ended('trap'),
  ),
  attack('small-fills', { run: forever('(memory.fill (i32.const 0) (i32.const 1) (i32.const 0))') }),
  attack('fills-in-tail-calls', {
    memory: String(LARGE_PAGES),
    fields: `(func $f (result i32) (memory.fill (i32.const 0) (i32.const 1) (i32.const ${LARGE_BYTES})) (return_call $f))`,
    run: '(return_call $f)',
  }),
];
