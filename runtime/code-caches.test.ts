import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { failingLog } from '#scheduler/testing/log.ts';
import { LOADING as BUILD } from './build/child.ts';
import { LOADING as SANDBOX } from './fleet/process.ts';
import { LOADING as EXAMINATION } from './pool/examine.ts';
import { LOADING as EVALUATION } from './pool/scripts.ts';
import { type ProgramLayers, withCompiledCode } from './runtime.ts';
import { layersFor, probeMachine, runConfined } from './sandboxes/index.ts';

const LIMITS = { timeoutMs: 240_000, memoryMb: 512 };
/** For each confined program, a run that only loads the program's code and ends. Such runs fill the code caches. */
const PROGRAMS = { sandbox: SANDBOX, build: BUILD, examination: EXAMINATION, evaluation: EVALUATION };
const probe = await probeMachine();
const skip = !('command' in probe.bubblewrap) && 'no namespaces here';

describe('the confined programs of a runtime', { skip }, () => {
  const stopping = new AbortController();
  const plainLayers = layersFor('auto', probe);
  const originalCacheFolder = process.env.NODE_COMPILE_CACHE;
  let folder: string;
  let layers: ProgramLayers;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pie-codes-'));
    process.env.NODE_COMPILE_CACHE = folder;
    const codeCaches = withCompiledCode(plainLayers, stopping.signal, failingLog);
    restore();
    layers = codeCaches.layers;
    await codeCaches.filled;
  });
  const restore = () => {
    if (originalCacheFolder === undefined) delete process.env.NODE_COMPILE_CACHE;
    else process.env.NODE_COMPILE_CACHE = originalCacheFolder;
  };
  after(async () => {
    stopping.abort();
    await rm(folder, { recursive: true, force: true });
  });

  for (const name of ['sandbox', 'build', 'examination', 'evaluation'] as const) {
    it(`the ${name} program takes its compiled code from its code cache`, async () => {
      const program = { ...PROGRAMS[name].program, environment: { NODE_DEBUG_NATIVE: 'COMPILE_CACHE' } };
      const { code, errors } = await runConfined(layers[name], program, LIMITS);
      assert.equal(code, 0, errors);
      // The test reads only this log line: when the program ends, its threads may write into the middle of later lines.
      const accepted = `V8 code cache for ESM ${pathToFileURL(program.main)} was accepted`;
      assert.ok(errors.includes(accepted), errors.slice(0, 2000));
      assert.doesNotMatch(errors, /was rejected|mismatch|no such file/);
    });
  }

  it('a process without a compile cache gives its confined programs no code caches', () => {
    delete process.env.NODE_COMPILE_CACHE;
    const uncachedLayers = {
      sandbox: plainLayers,
      build: plainLayers,
      examination: plainLayers,
      evaluation: plainLayers,
    };
    try {
      assert.deepEqual(withCompiledCode(plainLayers, stopping.signal, failingLog).layers, uncachedLayers);
    } finally {
      restore();
    }
  });
});
