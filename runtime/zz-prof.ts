import { TestPlatform } from './testing/platform.ts';
import { readFile } from 'node:fs/promises';
const p = await TestPlatform.start({ pageCount: 1024 });
const v = await p.deploy(`
import { allocatePages } from 'pie:inferlet/allocate@0.1.0';
import { step } from 'pie:inferlet/fused@0.1.0';
import { Queue } from 'pie:inferlet/queue@0.1.0';
import { send } from 'pie:inferlet/session@0.1.0';
const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 1 };
export async function run(input) { const queue = new Queue('tiny'); const pages = allocatePages(queue, 14); let tokens = [1]; let position = 0; let cpu = 0;
 for (let i = 0; i < 200; i++) { const o = await step(queue, { tokens, positions: [position], inPages: pages, outPages: pages, mask: undefined, rows: 1, output: { tag: 'sample', val: sampler } }).read(); position++; tokens = o.val.tokens; if (input.length > 3) send({ tag: 'text', val: 'x' }); }
 return '1'; }`, {});
for (let i = 0; i < 3; i++) await Promise.all(Array.from({ length: 32 }, () => p.invoke(v, 1)));
for (const input of [1, 'send each']) { const c0 = process.cpuUsage(); const t = performance.now(); let cpu = 0;
for (let i = 0; i < 5; i++) { const rs = await Promise.all(Array.from({ length: 32 }, () => p.invoke(v, input))); cpu += rs.reduce((s, r) => s + (r.end.data.usage?.cpuMs ?? 0), 0); }
const d = performance.now() - t, c = process.cpuUsage(c0); const n = 5 * 32 * 200;
console.log(input, 'wall/tok µs', (d / n * 1e3).toFixed(1), 'cpu/tok µs user', (c.user / n).toFixed(1), 'sys', (c.system / n).toFixed(1), 'guest cpu/tok', (cpu * 1e3 / n).toFixed(1)); }
await p.stop();
