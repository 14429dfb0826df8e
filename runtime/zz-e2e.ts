import { TestPlatform, TEST_MODEL } from './testing/platform.ts';
const p = await TestPlatform.start();
console.log('up', p.runtime.id, p.runtime.models.list());
const src = `
import { Queue } from 'pie:inferlet/queue@0.1.0';
import { allocatePages } from 'pie:inferlet/allocate@0.1.0';
import { step } from 'pie:inferlet/fused@0.1.0';
import { send, receive } from 'pie:inferlet/session@0.1.0';
import { log, models } from 'pie:inferlet/runtime@0.1.0';
import { tokenize, detokenize } from 'pie:inferlet/tokenize@0.1.0';
export async function run(input) {
  send({ tag: 'text', val: 'hello' });
  const { n } = JSON.parse(input);
  const q = new Queue(models()[0].name);
  const pages = allocatePages(q, 4);
  let toks = [1, 5, 6]; let pos = 0; const out = [];
  for (let i = 0; i < n; i++) {
    const r = await step(q, { tokens: toks, positions: toks.map((_, k) => pos + k), inPages: pages, outPages: pages, mask: undefined, rows: 1, output: { tag: 'sample', val: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 1 } } }).read();
    if (r.tag === 'err') throw new Error(JSON.stringify(r.val));
    pos += toks.length; toks = [r.val.tokens[0]]; out.push(toks[0]);
    send({ tag: 'text', val: ' ' + toks[0] });
  }
  log('info', 'done');
  return JSON.stringify(out);
}`;
let t = performance.now();
const v = await p.deploy(src);
console.log('deployed', v.version, performance.now() - t, v.build);
for (let i = 0; i < 4; i++) {
  t = performance.now();
  const tr = await p.invoke(v, { n: 10 });
  console.log(performance.now() - t, tr.messages.join(''), JSON.stringify(tr.end), tr.events.find((e) => e.event === 'metric')?.data, 'ready', p.runtime.pool.ready(), 'free', p.freePages());
}
t = performance.now();
const rs = await Promise.all(Array.from({ length: 50 }, () => p.invoke(v, { n: 10 })));
console.log('50 at once', performance.now() - t, new Set(rs.map((r) => JSON.stringify(r.end.data.output))).size, p.freePages(), p.errors);
await p.stop();
console.log('stopped');
