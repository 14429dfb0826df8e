import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '#infra/install.ts';

/** Encodes a text, and prints the telemetry files of ONNX Runtime that the process has open. */
const PROGRAM = `
  import { OnnxEncoder } from '#gpu-host/backends/onnx/encoder.ts';
  import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
  import { readdirSync, readlinkSync } from 'node:fs';
  const encoder = await OnnxEncoder.open(await randomEncoder(process.argv[1], { kind: 'embedding' }, 1), { threads: 1 });
  await encoder.encode([{ tokens: Uint32Array.of(2, 5, 3), types: new Uint8Array(3) }]);
  const open = readdirSync('/proc/self/fd').map((fd) => { try { return readlinkSync('/proc/self/fd/' + fd); } catch { return ''; } });
  console.log(JSON.stringify(open.filter((path) => /onnxruntime\\.db|mat-debug/.test(path))));
`;

test('a session sends no telemetry to the maker of ONNX Runtime', async () => {
  const home = await mkdtemp(join(tmpdir(), 'pie-library-'));
  try {
    // The program gets no variable of a CI system, because ONNX Runtime sends nothing where it finds one.
    const env = { PATH: process.env.PATH, HOME: home, TMPDIR: home };
    const args = ['--input-type=module-typescript', '--eval', PROGRAM, join(home, 'encoder')];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT, env });
    assert.deepEqual(JSON.parse(stdout), []);
    assert.deepEqual(await readdir(home), ['encoder']);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
});
