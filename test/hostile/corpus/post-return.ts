import { type Attack, ended } from '../attack.ts';
import { AT, forever, SCRATCH, swallow, TOPIC } from '../guest.ts';

/** The result exists before post-return runs, so the invocation may end with this result, or with a failure of post-return. */
const ENDS = ended('result', 'trap', 'cpu-limit', 'deadline-exceeded');

/** A guest whose `run` blocks and returns a pointer to its result. The host then calls post-return, which has `body`, with this pointer. */
const attack = (name: string, body: string): Attack => ({
  name: `post-return-${name}`,
  kind: 'post-return',
  source: () => ({
    guest: {
      run: '',
      fields: '(func $deep (call $deep) (call $deep))',
      entry: `(func (export "run") (param i32 i32) (result i32)
          (i32.store (i32.const 512) (i32.const 0))
          (i32.store (i32.const 516) (i32.const ${AT.answer}))
          (i32.store (i32.const 520) (i32.const 2))
          (i32.const 512))
        (func (export "cabi_post_run") (param i32) (local $i i32) ${body})`,
    },
  }),
  ends: ENDS,
});

export const postReturn: readonly Attack[] = [
  attack('spins', forever()),
  attack('traps', '(unreachable)'),
  attack('recurses', '(call $deep)'),
  attack('overwrites-the-result', '(memory.fill (i32.const 0) (i32.const 255) (i32.const 65536))'),
  attack('yields', forever(swallow('(drop (call $root:thread-yield))'))),
  attack('sends', `(call $session.send (i32.const 0) ${TOPIC} ${SCRATCH})`),
  attack('blocks', `(drop (call $wait:runtime.sleep (call $runtime.sleep (i32.const -1)) ${SCRATCH}))`),
];
