import { readFile } from 'node:fs/promises';
import { TestPlatform } from './testing/platform.ts';
const p = await TestPlatform.start();
const v = await p.deploy(await readFile(new URL('./testing/fixtures/behaviour.js', import.meta.url), 'utf8'), { name: 'b', limits: { cpuMs: 30, wallMs: 2000, memoryMb: 16 } });
const wishes = [{ do: 'echo', value: 1 }, { do: 'throw' }, { do: 'generate', count: 3 }, { do: 'spin' }, { do: 'recurse' }, { do: 'never' }];
const report = async (i: number) => { globalThis.gc?.(); await new Promise((r) => setTimeout(r, 300)); globalThis.gc?.(); const m = process.memoryUsage(); const maps = (await readFile('/proc/self/maps', 'utf8')).split('\n').length; console.log(i, 'heap', (m.heapUsed / 1e6).toFixed(1), 'rss', (m.rss / 1e6).toFixed(0), 'ext', (m.external / 1e6).toFixed(0), 'maps', maps, 'free pages', await p.freePages(), 'handles', process.getActiveResourcesInfo().length, p.errors.length); };
await report(0);
for (let round = 1; round <= 5; round++) {
  for (let k = 0; k < 10; k++) await Promise.all(Array.from({ length: 30 }, (_, i) => p.invoke(v, wishes[i % wishes.length])));
  await report(round * 300);
}
await p.stop();
