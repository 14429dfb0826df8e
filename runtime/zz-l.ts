import { TestPlatform } from './testing/platform.ts';
const p = await TestPlatform.start({ runtime: { poolMemoryMb: 700, concurrency: 1024 } });
const v = await p.deploy(`import { send, receive } from 'pie:inferlet/session@0.1.0';
export async function run(input) { send({ tag: 'text', val: 'hi' }); return 'null'; }`, { pool: { min: 256 } });
async function one() { const t = performance.now(); const id = await p.submit(v, null); for await (const e of p.scheduler.events.follow(id, 0, AbortSignal.timeout(20000))) if (e.event === 'message') break; return performance.now() - t; }
await one();
for (let k = 0; k < 6; k++) { const c0 = process.cpuUsage(); const t = performance.now(); await Promise.all(Array.from({ length: 896 }, one)); const c = process.cpuUsage(c0); console.log((performance.now() - t).toFixed(0), 'cpu/launch ms', ((c.user + c.system) / 896e3).toFixed(2), 'ready', p.runtime.pool.ready()); for (let i = 0; i < 300 && p.runtime.pool.ready() < 890; i++) await new Promise((r) => setTimeout(r, 10)); }
await p.stop(); process.exit(0);
