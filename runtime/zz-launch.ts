import { TestPlatform } from './testing/platform.ts';
const p = await TestPlatform.start({ runtime: { poolMemoryMb: 1200, concurrency: 1024 } });
const v = await p.deploy(`import { send, receive } from 'pie:inferlet/session@0.1.0';
export async function run(input) { send({ tag: 'text', val: 'hi' }); return 'null'; }`, { pool: { min: 256 } });
const pct = (a: number[], q: number) => a.sort((x, y) => x - y)[Math.min(a.length - 1, Math.floor(a.length * q))]!.toFixed(1);
async function one() { const t = performance.now(); const id = await p.submit(v, null); for await (const e of p.scheduler.events.follow(id, 0, AbortSignal.timeout(20000))) if (e.event === 'message') break; return performance.now() - t; }
await one();
for (let i = 0; i < 1000 && p.runtime.pool.ready() < 256; i++) await new Promise((r) => setTimeout(r, 20));
console.log('ready', p.runtime.pool.ready());
const s: number[] = []; for (let i = 0; i < 50; i++) { s.push(await one()); await new Promise(r => setTimeout(r, 5)); }
console.log('1 at a time p50', pct(s, .5), 'p99', pct(s, .99));
for (const n of [256, 896, 896]) { const c0 = process.cpuUsage(); const t = performance.now(); const r = await Promise.all(Array.from({ length: n }, one)); const c = process.cpuUsage(c0); console.log(n, 'p50', pct(r, .5), 'p99', pct(r, .99), 'all', (performance.now() - t).toFixed(0), 'cpu ms', (c.user + c.system) / 1e3, 'ready', p.runtime.pool.ready(), 'errors', p.errors.length); await new Promise((r) => setTimeout(r, 2500)); console.log(' later ready', p.runtime.pool.ready(), 'rss', (process.memoryUsage.rss() / 1e6).toFixed(0)); }
await p.stop(); process.exit(0);
