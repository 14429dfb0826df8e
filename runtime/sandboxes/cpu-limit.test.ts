import assert from 'node:assert/strict';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { LimitPassed, layersFor, probeMachine, runConfined } from './index.ts';

const main = fileURLToPath(new URL('fixtures/hog.ts', import.meta.url));
const probe = await probeMachine();

for (const isolation of 'command' in probe.bubblewrap ? (['namespaces', 'process'] as const) : (['process'] as const)) {
  it(`a confined process ends at its CPU limit, independent of the clock (${isolation})`, async () => {
    const limits = { timeoutMs: 250_000, cpuMs: 2000, memoryMb: 256 };
    const running = runConfined(layersFor(isolation, probe), { main, args: ['1'], read: [] }, limits);
    await assert.rejects(running, (error) => error instanceof LimitPassed && error.limit === 'cpu');
  });
}
