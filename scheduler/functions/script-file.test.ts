import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importedInterfaces } from './component-imports.ts';
import { isScript, readScriptFile, ScriptFileError, type ScriptHeader, writeScriptFile } from './script-file.ts';

const header: ScriptHeader = { engine: null, imports: ['forward', 'session'], scriptBytes: 3, mapBytes: 0 };
const payload = Uint8Array.of(1, 2, 3);

test('a script file keeps its header and its payload', () => {
  const file = writeScriptFile({ header, payload });
  assert.ok(isScript(file));
  assert.deepEqual(readScriptFile(file), { header, payload });
  assert.deepEqual(importedInterfaces(file), header.imports);
});

test('bytes that are no whole script are refused', () => {
  const file = writeScriptFile({ header, payload });
  const headerBytes = new DataView(file.buffer).getUint32(8, true);
  for (let length = 0; length < 12 + headerBytes; length++)
    assert.throws(() => readScriptFile(file.subarray(0, length)), ScriptFileError);
  const faults: readonly Partial<Record<keyof ScriptHeader, unknown>>[] = [
    { engine: 'A'.repeat(64) },
    { engine: undefined },
    { imports: ['../x'] },
    { imports: 'forward' },
    { scriptBytes: -1 },
    { scriptBytes: 2 ** 30 },
    { mapBytes: 0.5 },
  ];
  for (const fault of faults) {
    const forged = writeScriptFile({ header: { ...header, ...fault } as ScriptHeader, payload });
    assert.throws(() => readScriptFile(forged), ScriptFileError, JSON.stringify(fault));
  }
  const other = file.slice();
  other[4] = 2;
  assert.throws(() => readScriptFile(other), /format 2/);
});
