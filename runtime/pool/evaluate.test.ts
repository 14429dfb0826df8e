import assert from 'node:assert/strict';
import { before, suite, test } from 'node:test';
import { FIRST_LINE, rewrite } from '../build/script/rewrite.ts';
import { compileWorld } from '../lowering/compile.ts';
import { decodeHeap, encodeHeap } from '../lowering/heap.ts';
import { instantiate, type Program } from '../lowering/instance.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { testEngine } from '../testing/scripts.ts';
import { evaluateScript, ScriptError } from './evaluate.ts';

suite('a script on the engine', () => {
  let program: Program;
  let hash: string;
  before(async () => {
    const { engine, program: base } = await testEngine();
    hash = engine.hash;
    program = base;
  });
  const evaluate = (text: string) => evaluateScript(program, hash, rewrite(`${FIRST_LINE}\n${text}`), 500);

  test('a new instance with the heap runs the function, and can be restored', async () => {
    const made = await evaluate('let n=41; const run=async(input)=>input+" "+ ++n; export{run};');
    const heap = decodeHeap(encodeHeap(made), hash);
    const options = { slices: new SliceRunner(), cpuLimitMs: 10_000 };
    const execution = instantiate({ ...program, heap }, compileWorld(recordingHost().host), options);
    execution.guest.context = {} as never;
    const snapshot = execution.state.snapshot();
    assert.ok(snapshot);
    for (let turn = 0; turn < 2; turn++) {
      assert.deepEqual(await execution.start('answer'), { kind: 'returned', ok: true, text: 'answer 42' });
      assert.ok(execution.renew(snapshot, options));
    }
    execution.dispose();
  });

  for (const [what, text, message, place] of [
    ['throws', '\n  throw new RangeError("no");export{};', /RangeError: no/, 3],
    ['never settles', 'await new Promise(()=>{});', /never settles/, null],
    ['reads the clock', 'Date.now();', /reads the clock/, null],
    ['calls the host', 'import{log}from"pie:inferlet/runtime@0.1.0";log("info","x");', /calls runtime log/, null],
    ['loops without end', 'for(;;);', /computes for too long/, null],
    ['recurses without end', 'const f=()=>f()+1;f();', /call stack/, null],
    ['exports no function', 'const run=1;export{run};', /export a function named run/, null],
  ] as const) {
    test(`a module that ${what} is refused with advice`, async () => {
      await assert.rejects(evaluate(text), (error) => {
        assert.ok(error instanceof ScriptError && error.hint.length > 0);
        assert.match(error.message, message);
        assert.equal(error.place?.line ?? null, place);
        return true;
      });
    });
  }
});
