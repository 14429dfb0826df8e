import fs from 'node:fs';
import { pathToFileURL } from 'node:url';
import { world } from '#wit/generated/world.ts';
import { compileWorld } from './compile.ts';
import { instantiate } from './instance.ts';
import { recordPlan } from './record.ts';
import { SliceRunner } from './slice-runner.ts';
import { meter } from '../build/wasm/meter.ts';
const dir = process.argv[2]!;
const METER = process.env.METER === '1';
const names = fs.readdirSync(dir).filter((f) => f.endsWith('.wasm'));
const mods = names.map((name) => { let bytes: Uint8Array = fs.readFileSync(`${dir}/${name}`); if (METER) bytes = meter(bytes).bytes; return { name, bytes, module: new WebAssembly.Module(bytes) }; });
let t = performance.now();
const app = await import(pathToFileURL(`${dir}/app.js`).href);
const plan = await recordPlan(app.instantiate, mods);
console.log('record ms', performance.now() - t, 'instances', plan.instances.map((i) => i.module).join(' '));
console.log(JSON.stringify(plan.entry), JSON.stringify(plan).length, plan.instances.flatMap(i=>i.imports.filter(x=>x.source.kind==='trap').map(x=>x.module+' '+x.name)).join('; '));
const later = <T>(v: T) => new Promise<T>((r) => setImmediate(r, v));
const L = (...a: unknown[]) => { if (!process.env.QUIET) console.log(...a); };
const okv = (val: unknown) => ({ tag: 'ok', val });
const host: any = {
  runtime: { version: () => '0.1.0', 'instance-id': () => 'id', tenant: () => 't', 'function-name': () => 'f', 'function-version': () => 'v', models: () => [], 'model-traits': () => okv([]), log: (_c: any, l: string, m: string) => L('LOG', l, m), 'is-cancelled': () => false, 'time-left': () => 5n, now: () => 123, random: () => 7, sleep: (_c: any, ms: number) => new Promise((r) => setTimeout(r, ms, okv(undefined))) },
  session: { send: (_c: any, m: any) => { L('send', m); return okv(undefined); }, flush: () => later(okv(undefined)), receive: () => later(okv({ tag: 'text', val: 'hey' })) },
  queue: { '[constructor]queue': (_c: any, m: string) => { L('new', m); return { m }; }, '[method]queue.set-priority': () => {}, '[method]queue.synchronize': () => later(okv(undefined)), '[resource-drop]queue': () => L('dropq') },
  allocate: { 'page-size': () => 16, 'allocate-pages': (_c: any, q: any, n: number) => { L('alloc', q, n); return okv(new Uint32Array(n).fill(3)); }, 'free-pages': () => {}, 'allocate-embeds': (_c: any, _q: any, n: number) => okv(new Uint32Array(n)), 'free-embeds': () => {}, 'share-pages': () => okv([]), 'copy-slots': () => {}, 'copy-embeds': () => {} },
  forward: { forward: (_c: any, ...a: any[]) => L('fwd', ...a), 'mask-page': () => {} },
  'input-text': { 'embed-text': () => {} },
  'output-text': { 'next-distribution': () => later(okv({ tokens: [1, 2], logProbabilities: [0.5, 0.25] })) },
  fused: { '[constructor]run': (_c: any, q: any, r: any) => { L('run', q, r); return {}; }, '[method]run.next': () => later(okv({ tokens: new Uint32Array([1, 2]), finished: 'stop-token' })), '[method]run.stop': () => {}, '[resource-drop]run': () => L('droprun'), step: (_c: any, q: any, r: any) => { L('step', q, JSON.stringify(r)); return later(r.rows===1? { tag: 'err', val: { tag: 'closed', val: 'zzz' } } : okv({tokens:[4], distributions:[{tokens:[1],logProbabilities:[.5]}]})); } },
  tokenize: { tokenize: () => ({ tag: 'err', val: { tag: 'not-found', val: 'no model' } }), detokenize: () => okv('x'), 'special-tokens': () => okv({ bos: 1, eos: [2], pad: undefined, unknown: undefined }), vocabulary: () => okv([]), 'chat-template': () => okv('t'), '[constructor]detokenizer': () => ({}), '[method]detokenizer.push': () => okv('p'), '[method]detokenizer.finish': () => '', '[resource-drop]detokenizer': () => {} },
};
t = performance.now();
const compiled = compileWorld(world, host);
console.log('compile world ms', performance.now() - t);
const slices = new SliceRunner();
const modules = new Map(mods.map((m) => [m.name, m.module] as const));
const opts = { slices, cpuLimitMs: 2000 };
for (const arg of (process.argv[3] ?? 'x').split(',')) {
  t = performance.now();
  const e = instantiate({ plan, modules }, compiled, opts);
  const ti = performance.now() - t;
  let gap = 0, last = performance.now(); const beat = setInterval(() => { const n = performance.now(); gap = Math.max(gap, n - last); last = n; }, 1);
  t = performance.now();
  const ending = await e.start(arg);
  clearInterval(beat);
  console.log(arg, '→', ending.kind === 'returned' ? [ending.ok, ending.text] : [ending.trap.code, ending.trap.message], 'inst', ti.toFixed(2), 'run', (performance.now() - t).toFixed(2), 'cpu', e.cpuMs.toFixed(1), 'calls', e.guest.calls, 'held', e.guest.held, 'gap', gap.toFixed(1), e.guest.stderr && 'STDERR ' + e.guest.stderr, 'mem', e.guest.memoryBytes / 65536);
}
const N = Number(process.env.N ?? 0);
if (N) for (const n of [1, 100, 300]) { const keep = []; globalThis.gc?.(); const m0 = process.memoryUsage(); t = performance.now(); for (let i = 0; i < n; i++) keep.push(instantiate({ plan, modules }, compiled, opts)); const d = performance.now() - t; globalThis.gc?.(); const m1 = process.memoryUsage(); console.log(n, 'ms/inst', (d / n).toFixed(3), 'rss KB', ((m1.rss - m0.rss) / n / 1024).toFixed(0), 'heap KB', ((m1.heapUsed - m0.heapUsed) / n / 1024).toFixed(1)); }
process.exit(0);
