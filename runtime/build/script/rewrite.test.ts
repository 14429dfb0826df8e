import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FIRST_LINE, rewrite } from './rewrite.ts';

const modules: Readonly<Record<string, unknown>> = { a: { default: 1, x: 2, 'odd name': 3 }, b: { y: 4 } };

/** Evaluates a script as the engine does, and returns its exports. */
async function evaluate(text: string): Promise<unknown> {
  let exported: unknown;
  // biome-ignore lint/security/noGlobalEval: scripts are made for `eval`
  const script = globalThis.eval(text) as (
    find: (name: string) => unknown,
    give: (values: unknown) => void,
  ) => Promise<void>;
  await script(
    (name) => modules[name],
    (values) => {
      exported = values;
    },
  );
  return exported;
}

test('a script sees its imports and gives its exports', async () => {
  const code = [
    FIRST_LINE,
    'import one, { x as two, "odd name" as three } from "a"; import * as b from "b";',
    'import "b"; const sum = one + two + three + b.y; await null;',
    'export { sum as run, two as "other name" };',
  ].join('\n');
  assert.deepEqual(await evaluate(rewrite(code)), { run: 10, 'other name': 2 });
});

test('all lines and columns stay, also behind statements that move', () => {
  const code = `${FIRST_LINE}\nimport {\n  x\n} from "a"; let é = "export"; f();\nexport { é }; /* 🙂 */ g();\n`;
  const [before, after] = [code.split('\n'), rewrite(code).split('\n')];
  for (const text of ['let é', 'f()', '/* 🙂', 'g()']) {
    const place = (lines: readonly string[]) => lines.map((line) => line.indexOf(text)).slice(1, before.length);
    assert.deepEqual(place(after), place(before));
  }
});

test('a bundle without its first line, or with statements of other kinds, is refused', () => {
  assert.throws(() => rewrite('f();'), /first line/);
  assert.throws(() => rewrite(`${FIRST_LINE}\nexport default 1;`), /ExportDefaultDeclaration/);
});
