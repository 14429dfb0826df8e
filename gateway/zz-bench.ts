import { spawn } from 'node:child_process';
import { mkdtemp, readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import http from 'node:http';
import { TestPlatform } from './testing/platform.ts';
const platform = await TestPlatform.start();
await platform.register({ name: 'echo', input: { type: 'object', properties: { prompt: { type: 'string' } }, required: ['prompt'], additionalProperties: false } });
const home = await mkdtemp('/tmp/gwb-');
const args = process.env.PROF ? ['--cpu-prof', '--cpu-prof-dir=/tmp/gwprof'] : [];
const child = spawn(process.execPath, [...args, 'gateway/main.ts'], { env: { ...process.env, PIE_HOME: home, PIE_PORT: '0', REDIS_URL: `unix://${platform.redis.socket}` }, stdio: ['pipe', 'pipe', 'inherit'] });
for await (const l of createInterface({ input: child.stdout })) if (l.startsWith('{"ready"')) break;
const { url, apiKey } = JSON.parse(await readFile(`${home}/credentials.json`, 'utf8'));
const { port } = new URL(url);
const agent = new http.Agent({ keepAlive: true, maxSockets: 2000 });
const cpu = async () => (await readFile(`/proc/${child.pid}/stat`, 'utf8')).split(' ').slice(13, 15).reduce((a, b) => a + Number(b), 0) * 10;
const post = (headers: Record<string, string>) => new Promise<http.IncomingMessage>((res, rej) => { const r = http.request({ port, host: '127.0.0.1', agent, method: 'POST', path: '/v1/functions/echo/invocations', headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', ...headers } }, res); r.on('error', rej); r.end('{"prompt":"x"}'); });
const submit = async () => { const t = performance.now(); const r = await post({ prefer: 'respond-async' }); r.resume(); await new Promise((f) => r.on('end', f)); if (r.statusCode !== 202) throw new Error(String(r.statusCode)); return performance.now() - t; };
const pct = (a: number[]) => { a.sort((x, y) => x - y); return `p50 ${a[a.length >> 1]!.toFixed(2)} p99 ${a[Math.floor(a.length * 0.99)]!.toFixed(2)}`; };
for (let i = 0; i < 300; i++) await submit();
let c0 = await cpu(); let a: number[] = []; for (let i = 0; i < 300; i++) a.push(await submit()); console.log('submit 1 at a time', pct(a), 'cpu ms/req', ((await cpu()) - c0) / 300);
for (const n of [256, 896]) { c0 = await cpu(); const t = performance.now(); a = await Promise.all(Array.from({ length: n }, submit)); console.log('burst', n, pct(a), 'total', (performance.now() - t).toFixed(0), 'cpu ms/req', ((await cpu()) - c0) / n); }
// SSE
const N = 32, T = 300;
const sse = async () => { const r = await post({ accept: 'text/event-stream' }); const id = (r.headers['content-location'] as string).split('/').at(-1)!; let text = ''; const done = new Promise<void>((f) => { r.on('data', (d) => { text += d; }); r.on('end', f); }); return { id, done, count: () => text.split('event: message').length - 1 }; };
const runs = await Promise.all(Array.from({ length: N }, sse));
const atts = await Promise.all(runs.map((r) => platform.attempt(r.id)));
c0 = await cpu(); const t = performance.now();
for (let i = 0; i < T; i++) { await Promise.all(atts.map((x) => x.say(' token'))); await new Promise((f) => setTimeout(f, 3)); }
await Promise.all(atts.map((x) => x.succeed(1))); await Promise.all(runs.map((r) => r.done));
const ms = performance.now() - t; console.log('sse', N * T, 'events in', ms.toFixed(0), 'ms', ((N * T) / ms * 1000).toFixed(0), '/s cpu µs/event', (((await cpu()) - c0) / (N * T) * 1000).toFixed(1), runs.map((r) => r.count()).every((x) => x === T));
child.kill('SIGTERM'); await platform.stop(); agent.destroy();
