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

const kinds = (process.argv[3]??'plain,mask,embed,future,step').split(',');
for (const unmetered of [false]) for (const n of [1, 100, 900]) for (const kind of kinds) {
  const calls = kind === 'future' || kind === 'step' ? (n===1?2000:n===100? 200:50) : n===1? 50000 : 2000;
  const es = Array.from({ length: n }, () => instantiate({ plan, modules }, compiled, { slices, cpuLimitMs: 60000 }));
  for (let k=0;k<3;k++) await instantiate({ plan, modules }, compiled, { slices, cpuLimitMs: 60000 }).start(`${kind} 50`);
  const c0 = process.cpuUsage(); t = performance.now();
  const r = await Promise.all(es.map((e) => e.start(`${kind} ${calls}`)));
  const d = performance.now() - t; const c = process.cpuUsage(c0);
  if (r.some((x) => x.kind !== 'returned' || !x.ok)) console.log('BAD', r[0]);
  console.log(kind.padEnd(8), String(n).padStart(4), 'wall µs/call', ((d / calls / n) * 1e3).toFixed(2), 'cpu', ((c.user + c.system) / calls / n).toFixed(2));
}
process.exit(0);
