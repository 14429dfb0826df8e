import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import {
  builtBytes,
  codeLines,
  inferlets,
  libraryLines,
  linesOf,
  type Row,
  writtenRows,
} from '../../docs/functions-table.ts';

const MAX_SCRIPTED_BYTES = 100_000;
const MAX_NATIVE_BYTES = 200_000;

/** Bytes of a size in the table, which is rounded. */
function bytesOf({ name, size }: Row): number {
  const [, number, unit] = /^([0-9.]+) (KB|MB)$/.exec(size) ?? [];
  assert.ok(unit, `${name}: ${size}`);
  return Number(number) * (unit === 'KB' ? 1000 : 1_000_000);
}

describe('the table of functions/README.md', () => {
  it('lists every inferlet and the library with their lines of code', async () => {
    const names = await inferlets();
    const expected = await Promise.all(names.map(async (name) => ({ name, lines: await linesOf(name) })));
    expected.push({ name: 'sdk', lines: await libraryLines() });
    const written = (await writtenRows()).map(({ name, lines }) => ({ name, lines }));
    assert.deepEqual(written, expected, 'run npm run functions:table');
  });

  it('lists no script or component above its bound, and the largest one is still within it when built', async () => {
    const rows = (await writtenRows()).filter(({ name }) => name !== 'sdk');
    const most = ({ name }: Row) => (/^(native|rust)-/.test(name) ? MAX_NATIVE_BYTES : MAX_SCRIPTED_BYTES);
    for (const row of rows) assert.ok(bytesOf(row) < most(row), `${row.name} has ${row.size}`);
    const [largest] = rows.sort((a, b) => bytesOf(b) - bytesOf(a));
    assert.ok(largest);
    const scratch = await mkdtemp(path.join(os.tmpdir(), 'pie-table-'));
    try {
      assert.ok((await builtBytes(largest.name, scratch)) < most(largest), largest.name);
    } finally {
      await rm(scratch, { recursive: true, force: true });
    }
  });

  it('counts only lines with code', () => {
    const text = '/* one */\n\n/** a\n * b */ let x = 1;\n// c\nlet y = 2; // d\n  /* e\n  */\n}\n';
    assert.equal(codeLines(text), 3);
  });
});
